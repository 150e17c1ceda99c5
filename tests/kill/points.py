# SPDX-License-Identifier: LGPL-2.1-or-later
"""At which events of a run it is killed. An event at which the world is what it was at the event before is the same
point; the ways take the fresh ones (killat.c), where they are known."""
from orders import Spot

STEPS_EACH = 2  # points for each span with stores
STEPS_MOST = 4000


def points(events, share, r):
    """All events of a run, or a share of them, spread out; the first and the last are always in."""
    if share >= 1:
        return list(range(1, events + 1))
    step = 1 / share
    return sorted({1, events} | {min(events, int((i + r.random()) * step) + 1)
                                 for i in range(int(events * share))})


class Counted:
    """What a run without a kill had. looked: it is known which of its events were fresh; else all may be."""

    def __init__(self, orders, looked=True):
        self.events, self.fresh, self.looked = orders["events"], orders.fresh(), looked

    def __str__(self):
        if not self.looked:
            return "%d events" % self.events
        return "%d events, %d of them fresh, stores before %d" % (
            self.events, len(self.fresh), sum(bool(f.before) for f in self.fresh))

    def one_of(self, r):
        return r.choice(self.fresh).spot if self.looked else Spot(r.randint(1, self.events))

    def spots(self, way, share, r, begin=0):
        """Where that way kills. begin: the part of a run that is left out."""
        if not self.looked or way == "any":
            skipped = int(self.events * begin)
            return [Spot(n + skipped, steps=int(STEPS_MOST ** r.random()) if way == "step" else 0)
                    for n in points(self.events - skipped, share, r)]
        chosen = self.fresh[int(len(self.fresh) * begin):]
        if way == "step":
            chosen = [f.before for f in chosen if f.before] * STEPS_EACH
            n = len(chosen) if share >= 1 else min(len(chosen), int(len(chosen) * share) + 1)
            # as often a few as thousands
            return [b._replace(steps=int(STEPS_MOST ** r.random())) for b in r.sample(chosen, n)]
        return [chosen[n - 1].spot for n in points(len(chosen), share, r)]
