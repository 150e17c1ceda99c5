#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A sync error is reported once, then forgotten: what the disk lost must be written again from the pool.

The disk really loses the pages (fulldisk.py); the same twice, where a failed sync was somebody else's,
or happened while no daemon ran. And `flush` says yes only when it is true.

Kills of tests/mutants/cases-*: fence-trusts-new-description, flush-says-yes, heal-short-write,
older-records-trusted, sync-tried-again.
"""
import ctypes
import sys

from cases import (Agent, block, errno_of, main, os, read, require, time, wait_for)
from fulldisk import LosingDisk

BLOCKS = 100
LIBC = ctypes.CDLL(None, use_errno=True)


def prepare(c, **settings):
    """A file of 100 old blocks on the disk, open in a program under the library."""
    settings.setdefault("destage_age", "50ms")
    c.begin(image=LosingDisk(c.box, c.fs, name=c.name), **settings)
    path = c.path("log.0")
    with open(path, "wb") as f:
        for n in range(BLOCKS):
            f.write(block(1000000 + n))
        f.flush()
        os.fsync(f.fileno())
    a = Agent(c)
    fd = a.open(path, os.O_RDWR)
    a.write_synced(fd, block(0), 0)
    c.accelerated()
    c.must_flush()
    return a, fd, path


def verify(c, path, expected):
    """No recovery before it: flush has said that the file has everything."""
    c.cut()
    have = read(path)
    wrong = [n for n in range(BLOCKS) if have[n * 4096:(n + 1) * 4096] != block(expected[n])]
    require(not wrong, "%d blocks wrong after a good flush, first %s: %r", len(wrong), wrong[:3],
            have[wrong[0] * 4096:][:16] if wrong else "")
    c.recover()


def lost_pages(c):
    """The disk fails under 100 acknowledged blocks; ten more come while it does."""
    a, fd, path = prepare(c)
    c.image.lose(path)
    a.many(fd, BLOCKS, 4096)
    wait_for("the daemon sees the error", lambda: c.status()["destage_errors"] > 0)
    status, text = c.flush()
    require(status != 0 and "log.0" in text, "flush on a failing disk: exit %d: %s", status, text)
    f = c.status("log.0")
    require(f["degraded"] and f["live_bytes"] > 0, "status hides it: %s", f)
    for n in range(10):
        a.write_synced(fd, block(500 + n), n * 4096)
    time.sleep(0.5)  # further cycles of the daemon
    c.fault.set(write_odd=40)  # and the heal's writes come short
    with open(path, "rb") as f:  # what little memory would do to pages that are clean
        for _ in range(20):
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.01)
    c.image.find()
    wait_for("flush succeeds again", lambda: c.flush()[0] == 0)
    require(not c.status("log.0")["degraded"], "still degraded after a good flush")
    verify(c, path, {n: 500 + n if n < 10 else n for n in range(BLOCKS)})
    return "destage errors counted, healed"


def lose_unheard(c, path):
    """The pages are lost by somebody else's sync, who hears of the error; the disk is well again."""
    c.image.lose(path)
    LIBC.syncfs(c.image.fd)
    with open(path, "rb") as f:
        require(errno_of(os.fsync, f.fileno()) != 0, "no error: the disk has not lost anything")
    c.image.find()
    with open(path, "rb") as f:
        require(errno_of(os.fsync, f.fileno()) == 0, "the error was reported twice")


def lost_by_others(c):
    """The error was somebody else's: the daemon hears of it by its own description."""
    a, fd, path = prepare(c, destage_age="60s")
    a.many(fd, BLOCKS, 4096)
    lose_unheard(c, path)
    wait_for("flush succeeds", lambda: c.flush()[0] == 0)
    verify(c, path, {n: n for n in range(BLOCKS)})


def lost_without_daemon(c):
    """It happened while no daemon ran: the next one cannot hear of it."""
    a, fd, path = prepare(c, destage_age="60s")
    a.many(fd, BLOCKS, 4096)
    c.product.kill()
    a.many(fd, 10, 4096)
    lose_unheard(c, path)
    c.product.start()
    c.in_lane()
    c.must_flush()
    verify(c, path, {n: n for n in range(BLOCKS)})


def lost_before_a_call(c):
    """A new program's truncate with the daemon dead: its own sync proves nothing about older records."""
    a, fd, path = prepare(c, destage_age="60s")
    a.many(fd, BLOCKS, 4096)
    c.product.kill()
    lose_unheard(c, path)
    b = Agent(c)
    other = b.open(path, os.O_RDWR)
    b.ftruncate(other, BLOCKS * 4096 + 100)
    verify_fenced(c, path)
    c.recover()
    require(os.stat(path).st_size == BLOCKS * 4096 + 100, "size %d", os.stat(path).st_size)


def verify_fenced(c, path):
    """The call has made everything durable before it was made: on the disk, without recovery."""
    c.cut()
    have = read(path)
    wrong = [n for n in range(BLOCKS) if have[n * 4096:(n + 1) * 4096] != block(n)]
    require(not wrong, "%d blocks wrong below a FENCE, first %s", len(wrong), wrong[:3])


def lost_and_cut(c):
    """The power goes while the disk fails: recovery has everything from the pool."""
    a, fd, path = prepare(c)
    c.image.lose(path)
    a.many(fd, BLOCKS, 4096)
    wait_for("the daemon sees the error", lambda: c.status()["destage_errors"] > 0)
    time.sleep(c.seed % 7 * 0.05)
    c.image.find()
    c.cut()
    c.recover()
    have = read(path)
    wrong = [n for n in range(BLOCKS) if have[n * 4096:(n + 1) * 4096] != block(n)]
    require(not wrong, "%d blocks lost, first %s", len(wrong), wrong[:3])


def flush_tells(c):
    """EIO on one of three files: flush fails and names it; afterwards yes means that the pool may go."""
    c.begin(destage_age="60s")
    a = Agent(c)
    fds = [a.open(c.path("log.%d" % i), os.O_RDWR | os.O_CREAT) for i in range(3)]
    for i, fd in enumerate(fds):
        a.many(fd, 20 + i, 4096)
    c.accelerated("log.2")
    c.fault.on("log.2")
    c.fault.set(sync_fail_every=1)
    status, text = c.flush()
    require(status != 0 and "log.2" in text and "log.1" not in text, "flush: exit %d: %s", status, text)
    f = c.status("log.2")
    require(f["live_bytes"] >= 22 * 4096, "bytes still dirty are not shown: %s", f)
    require(c.product.alive(), "the daemon ended")
    c.fault.clear()
    wait_for("flush succeeds again", lambda: c.flush()[0] == 0)
    c.cut()
    for i in range(3):
        want = b"".join(block(n) for n in range(20 + i))
        require(read(c.path("log.%d" % i)) == want, "log.%d: not durable though flush said so", i)


if __name__ == "__main__":
    sys.exit(main([lost_pages, lost_by_others, lost_without_daemon, lost_before_a_call, lost_and_cut,
                   flush_tells]))
