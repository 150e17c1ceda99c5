#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many writers at once and little room: whatever they wait for, each write has its place in the order, and no
neighbour's bytes are lost.

Kills of tests/mutants: cases-eintr-from-a-wait; append-place-before-the-lock by chance.
"""
import random
import sys

from cases import Agent, Stamp, block, main, os, read, require, time


def narrow(c):
    """64 threads with writes of 64 B to 64 KiB in a lane of 1 MiB with a slow disk below: who waits for
    room must not go on with a place that he took before."""
    r = random.Random(c.seed)
    c.begin(lane_size="1MiB", destage_age="20ms", bypass_size="64KiB")
    live = acked = 0
    for turn in range(2):
        small = Stamp(c, threads=32, files=16, folder="r%d" % turn)
        time.sleep(r.uniform(1.5, 2))  # as quick as they can: for each lock, somebody waits
        s = Stamp(c, first=32, threads=32, files=16, plan="wide", folder="r%d" % turn)
        c.fault.set(sync_sleep_ms=5)
        time.sleep(r.uniform(1, 1.5))
        small.fine()
        s.fine()
        d = c.status()
        require(d["full_waits"] > 0 and d["wraps"] > 0, "never full or never wrapped: %s", d)
        c.cut()
        live += c.live()
        c.recover()
        acked += c.check()
        c.stamps = []
    require(live > 0, "nothing was live at either cut, so nothing is shown")
    return "%d acked, %d waits" % (acked, d["full_waits"])


def pieces(c):
    """Small and large records of two files in turn, of which only one can be drained; then a write that
    needs more room than is free in one piece, and one of 1 MiB."""
    c.begin(lane_size="1MiB", destage_age="20ms", reconnect_timeout="300ms", bypass_size="128KiB")
    a = Agent(c)
    fds = [a.open(c.path("log.%d" % i), os.O_RDWR | os.O_CREAT) for i in range(2)]
    c.fault.on("log.1")
    c.fault.set(sync_fail_every=1)
    want = [b"", b""]
    for n in range(24):
        for i, size in ((0, 65536), (1, 512)):
            a.write_synced(fds[i], block(n, size), len(want[i]))
            want[i] += block(n, size)
    require(c.status()["destage_errors"] > 0, "the disk never failed")
    large = block(1, 1 << 20)
    a.write_synced(fds[0], large, len(want[0]))
    want[0] += large
    c.fault.clear()
    c.cut()
    c.recover()
    for i, text in enumerate(want):
        have = read(c.path("log.%d" % i))
        require(have == text, "log.%d: %d bytes of %d", i, len(have), len(text))


def shared_block(c):
    """Two programs write every other 512 bytes of the same 4 KiB, one of them through O_DIRECT, while
    syncs fail and heals write: no neighbour's bytes are lost."""
    c.begin(lane_size="1MiB", destage_age="20ms")
    path = c.path("log.0")
    with open(path, "wb") as f:
        f.write(bytes(4096))
    a, b = Agent(c), Agent(c)
    fds = [a.open(path, os.O_RDWR), b.open(path, os.O_RDWR | os.O_DIRECT)]
    c.fault.set(sync_fail_every=3, write_sleep_us=3000, write_odd=20)
    end = time.monotonic() + 4
    turn = 0
    want = bytearray(4096)
    while time.monotonic() < end:
        for side in (a, b):
            side.send("alternate", fds[side is b], turn * 50, 50, int(side is b))
        for side in (a, b):
            side.answer()
        turn += 1
        for i in range(8):
            want[i * 512:(i + 1) * 512] = block(last_of(turn * 50, i), 512)
        have = read(path)
        require(have == want, "turn %d: differs at %s", turn,
                next((i for i, (x, y) in enumerate(zip(have, want)) if x != y), "its end"))
    require(c.fault["writes"] > 0, "no heal took place")
    c.cut()
    c.recover()
    require(read(path) == want, "not what was acknowledged after the cut")
    return "%d writes beside %d of heals" % (turn * 100, c.fault["writes"])


def last_of(count, place):
    """Number of the last write there: agent.alternate takes the four places of its side in turn."""
    return max(n for n in range(count - 4, count) if n % 4 == place // 2)


def signals(c):
    """A signal each millisecond, with and without SA_RESTART, in writers that wait for room, for the file's
    lock, in bypass and at its end: write and fdatasync return EINTR for none of them."""
    c.begin(lane_size="1MiB", destage_age="20ms", reconnect_timeout="200ms")
    s = Stamp(c, threads=8, files=2, plan="wide", env={"STAMP_SIGNALS": "1"})
    c.fault.set(sync_sleep_ms=50, write_odd=20)
    time.sleep(random.Random(c.seed).uniform(1, 1.5))
    c.product.kill()
    time.sleep(1)
    c.fault.clear()
    c.product.start()
    s.moves()
    time.sleep(0.5)
    require(c.status()["full_waits"] > 0, "nobody waited for room")
    require(s.signals() > 1000, "%d signals only", s.signals())
    c.cut()
    c.recover()
    return "%d acked, %d signals" % (c.check(), s.signals())


if __name__ == "__main__":
    sys.exit(main([narrow, pieces, shared_block, signals]))
