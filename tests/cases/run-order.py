#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Newest wins, whatever the daemon does meanwhile: overlapping writes, slow and failing drains, heals
under load, a full lane, and the daemon's death or standstill at any step of a drain.

Every byte must be of the newest acknowledged write that covered it (stamp.c), in the page cache as
long as the machine runs and in the file after each power cut.

Kills of tests/mutants/cases-*: tail-before-sync.
"""
import random
import sys

from cases import Agent, Stamp, block, main, os, read, require, signal, time, wait_for


def seconds(r, least, most):
    time.sleep(r.uniform(least, most))


def overlap(c):
    """A block, its first and last 512 bytes, again and again; writes late, short and interrupted."""
    c.begin(lane_size="1MiB", destage_age="20ms")
    s = Stamp(c, threads=4, files=2, plan="overlap")
    c.in_lane("log.1")
    c.fault.set(write_sleep_us=20000, sync_fail_every=20, write_odd=30)
    time.sleep(5)
    c.accelerated("log.0")
    s.stop()
    s.check()
    c.fault.clear()
    wait_for("flush succeeds", lambda: c.flush()[0] == 0)
    s.check()
    healed, failed = c.fault["writes"], c.fault["failed"]
    require(healed > 0 and failed > 0, "no heal took place: %d writes, %d failed syncs", healed, failed)
    c.cut()
    c.recover()
    return "%d acked, %d writes of heals, %d failed syncs" % (c.check(), healed, failed)


def overlap_cut(c):
    """The same, with the power cut while it goes on."""
    r = random.Random(c.seed)
    c.begin(lane_size="1MiB", destage_age="20ms")
    acked = live = 0
    for i in range(4):
        Stamp(c, threads=4, files=2, plan=r.choice(("overlap", "mixed")), folder="r%d" % i)
        c.in_lane("r%d/log.1" % i)
        c.fault.set(write_sleep_us=5000, sync_fail_every=r.choice((0, 3, 20)), write_odd=30)
        seconds(r, 0.3, 1.5)
        c.cut()
        live += c.live() > 0
        c.recover()
        acked += c.check()
        c.stamps = []
    require(live, "nothing was live at any of the cuts")
    return "%d acked" % acked


def steps(c):
    """The daemon dies or stands still at a random step; then the power goes, at once or later."""
    r = random.Random(c.seed + 100)
    c.begin(lane_size="1MiB", destage_age="20ms")
    acked = 0
    told = []
    for i in range(14):
        how = ("kill_at", "stop_at")[i % 2]
        s = Stamp(c, threads=3, files=3, plan=r.choice(("overlap", "mixed")), folder="r%d" % i)
        n = r.randint(1, 40)
        c.in_lane("r%d/log.0" % i)  # registering needs syncs, too
        c.fault.set(sync_fail_every=r.choice((0, 2, 5)), write_odd=20)
        c.fault.set(**{how: c.fault["steps"] + n})
        wait_for("step %d" % n, lambda: c.fault["steps"] >= c.fault[how], 20)
        after = ("cut", "later", "again", "again")[i % 4]
        if after == "later":
            seconds(r, 0, 0.5)
        elif after == "again":  # the next daemon goes on with what this one left
            c.product.process.send_signal(signal.SIGKILL)
            c.product.kill()
            c.fault.set(kill_at=0, stop_at=0)
            seconds(r, 0, 0.2)
            c.product.start()
            seconds(r, 0, 0.5)
        s.fine()
        c.cut()
        told.append("%s %d %s" % (how[:4], n, after))
        c.recover()
        acked += c.check()
        c.stamps = []
    return "%d acked; %s" % (acked, ", ".join(told))


def full(c):
    """The drain stands for seconds: 10 MiB into 1 MiB, and one write larger than the lane."""
    c.begin(lane_size="1MiB", reconnect_timeout="500ms")
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.many(fd, 10, 4096)
    c.accelerated()
    c.fault.set(sync_sleep_ms=2500)
    begin = time.monotonic()
    a.many(fd, 2560, 4096)
    took = time.monotonic() - begin
    big = block(7, 4 << 20)
    begin = time.monotonic()
    a.write_synced(fd, big, 1 << 20)
    big_took = time.monotonic() - begin
    require(took < 20 and big_took < 12, "10 MiB took %.1f s, 4 MiB %.1f s", took, big_took)
    require(c.status()["full_waits"] > 0, "the lane never filled up")
    c.cut()
    c.recover()
    have = read(c.path("log.0"))
    want = b"".join(block(n) for n in range(2560))
    want = want[:1 << 20] + big + want[5 << 20:]
    require(have == want, "%d bytes, %d expected; first difference in block %s", len(have), len(want),
            next((n for n in range(2560) if have[n * 4096:][:4096] != want[n * 4096:][:4096]), None))
    return "10 MiB in %.1f s, 4 MiB in %.1f s" % (took, big_took)


if __name__ == "__main__":
    sys.exit(main([overlap, overlap_cut, steps, full]))
