# SPDX-License-Identifier: LGPL-2.1-or-later
"""sysbench: one-row updates, each a transaction; latencies from its histogram."""
import re

from sandbox import run

PROGRAMS = ["sysbench"]
PACKAGES = "sysbench"
TABLE_ROWS = 20000

_LINE = re.compile(r"^\s*([\d.]+) \|[* ]*\s(\d+)$", re.M)
_RATE = re.compile(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec")
_FAULT = re.compile(r"(?:ignored errors|reconnects):\s+(\d+)")


def _base(server):
    return ["sysbench", "oltp_update_non_index", *server.sysbench(),
            "--tables=1", "--table-size=%d" % TABLE_ROWS, "--rand-type=uniform"]


def prepare(server):
    server.query("CREATE DATABASE sbtest")
    run(_base(server) + ["prepare"])


def percentile(histogram, q):
    """Value at quantile q of a list of (value, count), values rising."""
    total = sum(n for _, n in histogram)
    seen = 0
    for value, n in histogram:
        seen += n
        if seen >= q * total:
            return value
    return histogram[-1][0] if histogram else 0.0


def measure(server, clients, seconds, seed):
    """Runs the load; returns commits, commits_per_s, p50_us, p99_us, p999_us."""
    text = run(_base(server) + ["--threads=%d" % clients, "--time=%d" % max(1, round(seconds)), "--histogram=on",
                                "--rand-seed=%d" % seed, "run"])
    if any(int(n) for n in _FAULT.findall(text)):
        raise RuntimeError("sysbench saw errors:\n" + text)
    commits, rate = _RATE.search(text).groups()
    histogram = [(float(v), int(n)) for v, n in _LINE.findall(text)]
    if sum(n for _, n in histogram) < int(commits) * 0.99:
        raise RuntimeError("histogram not understood:\n" + text)
    out = {"commits": int(commits), "commits_per_s": float(rate)}
    for name, q in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)):
        out[name] = round(percentile(histogram, q) * 1000)
    return out
