# SPDX-License-Identifier: LGPL-2.1-or-later
"""Medians with an interval: what a few rounds on a noisy machine allow to say."""
import random
import statistics


def interval(values, draws=2000, level=0.95):
    """(median, low, high): percentile bootstrap of the median, from a fixed seed."""
    values = sorted(values)
    middle = statistics.median(values)
    if len(values) < 3:
        return middle, values[0], values[-1]
    r = random.Random(len(values))
    medians = sorted(statistics.median(r.choices(values, k=len(values))) for _ in range(draws))
    cut = int(draws * (1 - level) / 2)
    return middle, medians[cut], medians[-1 - cut]


def verdict(low, high, goal, less):
    """'reached' when the whole interval is on the good side, 'missed' when none of it is, else
    'open'. less: smaller is better."""
    if less:
        return "reached" if high <= goal else "missed" if low > goal else "open"
    return "reached" if low >= goal else "missed" if high < goal else "open"
