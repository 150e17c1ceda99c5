# SPDX-License-Identifier: LGPL-2.1-or-later
"""A disk that is slow, and one that does not answer."""
import time

from toy import PAUSE_US
from cases import require, wait_for
from faultdisk import INSIDE
from faults import HEAL_SECONDS


def pace(stamp, seconds):
    """Commits/s over the time, and the longest that a writer stood still: also one that still does."""
    begin = time.monotonic()
    last = [(stamp.acked_by(i), begin) for i in range(stamp.threads)]
    longest, first = 0, stamp.acked()
    now = begin
    while now < begin + seconds:
        time.sleep(0.02)
        now = time.monotonic()
        for i, (n, since) in enumerate(last):
            longest = max(longest, now - since)
            if stamp.acked_by(i) != n:
                last[i] = (stamp.acked_by(i), now)
    return (stamp.acked() - first) / (now - begin), longest


def slow(t, fault):
    t.begin()
    t.writers(shimmed=False, threads=1)  # as a database's log: one at a time
    t.stamp.moves(by=100)
    t.disk.order(**fault.orders)
    time.sleep(1)
    plain_rate, plain = pace(t.stamp, fault.seconds)
    t.stamp.stopping()
    t.end()
    require(plain >= 1, "the disk is not slow: %.3f s", plain)

    for lane in ("64MiB", "1MiB"):
        t.begin(lane_size=lane)
        # the small one is to run full within a second
        t.writers(pause_us=PAUSE_US if lane != "1MiB" else 0, threads=1)
        t.disk.order(**fault.orders)
        rate, longest = pace(t.stamp, fault.seconds if lane == "64MiB" else 2 * fault.seconds)
        d = t.c.status()
        # A full lane and a sync of the daemon that takes longer than a second: that second, RULE F's
        # sync and the program's own, each behind the daemon's perhaps. Once; then the disk's pace.
        require(longest < 3 * plain + 3, "lane of %s: a commit waited %.2f s, the disk alone %.2f s",
                lane, longest, plain)
        if lane == "64MiB":
            require(not d["full_waits"], "the lane ran full, which is the other half of this test")
            # Not each is: ext4 lets a write wait for its journal's commit, once every few seconds.
            require(rate > 20 * plain_rate, "%.1f commits/s with room in the lane, %.1f with the disk "
                    "alone", rate, plain_rate)
            t.notes["with_room"] = "%.0f/s, longest %.2f s" % (rate, longest)
        else:
            require(d["full_waits"], "the lane did not run full")
            require(rate > 0, "no commit")
            t.notes["full"] = "%.0f/s, longest %.2f s, disk alone %.1f/s, %.2f s" % (
                rate, longest, plain_rate, plain)
        t.stamp.fine()
        if lane == "64MiB":
            r = t.c.product.command("flush", timeout=HEAL_SECONDS)
            require(r.returncode == 0, "flush on a slow disk: %s", r.stdout + r.stderr)
        t.cut_and_check()
        t.end()


def hangs(t, fault):
    """A sync that does not end gives no error. The one that was mended before must not stand for it."""
    c = t.begin()
    t.writers()
    t.disk.order(write_fail=1, where=INSIDE)
    w = t.watch(fault)
    wait_for("the daemon sees an error", lambda: c.status()["destage_errors"] > 0)
    w.healed()
    t.take(w)
    old = c.status()["last_error"]
    require("the disk reports an error" in old, "last_error: %s", old)
    t.disk.order(**fault.orders)
    told = "the disk hangs"
    wait_for("status says that the disk hangs", lambda: told in c.status()["last_error"], fault.seconds)
    require(not any(f["degraded"] for f in c.status()["files"]), "a hang is no error")
    text = c.product.command("status").stdout
    require(told in text, "text hides it: %s", text)
    t.stamp.fine()
    t.disk.good()
    wait_for("the disk answers", lambda: told not in c.status()["last_error"], HEAL_SECONDS)
    t.stamp.moves(by=200)
    t.flushed_cut()
