# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who hears of a failed sync: a program, an earlier daemon, whoever grows the file."""
import errno
import os
import threading

from toy import LIBC, block_of
from cases import Agent, Failed, errno_of, read, require, wait_for
from faultdisk import ALL, INSIDE
from faults import BLOCK
from faults_gone import break_journal

GROWN_TRIES = 6
APPENDS_MOST = 20000
NOT_THE_LOGS = "the write that failed was of another block"
BIG = 300  # blocks: above bypass_size


def heard_by_client(t, fault):
    """Only a program's own sync has failed; the daemon's description never does."""
    c = t.begin(destage_age="60s")
    t.writers()
    t.stamp.stop()
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR)
    a.write_synced(fd, read(c.path("log.0"))[:BLOCK], 0)
    t.disk.order(write_fail=ALL, where=INSIDE)
    a.fchmod(fd, 0o640)  # so that its next fsync is a real one
    e = errno_of(a.fsync, fd)
    require(e == errno.EIO, "fsync: errno %d, the disk has failed it", e)
    f = c.status("log.0")
    require(f["degraded"], "a client's failed sync is not shown: %s", f)
    w = t.watch(fault)
    w.must_refuse()
    t.disk.good()
    t.notes["healed"] = w.healed()
    t.take(w)
    t.flushed_cut()


def heard_by_earlier(t, fault):
    """The daemon that heard of it is dead; the disk is well when the next one comes."""
    c = t.begin()
    t.writers()
    t.disk.order(write_fail=ALL, where=INSIDE)
    wait_for("the daemon sees an error", lambda: c.status()["destage_errors"] > 0)
    c.product.kill()
    t.stamp.stop()
    # the pages are clean from here on, though no disk has them
    require(LIBC.syncfs(c.image.fd) < 0, "no error: the disk has not lost anything")
    t.disk.good()
    c.product.start()
    w = t.watch(fault)
    t.notes["healed"] = w.healed()
    t.take(w)
    t.flushed_cut()


def restarted_in_it(t, fault):
    """The disk is away when the daemon comes back: it cannot even open the files."""
    c = t.begin()
    t.writers()
    a = Agent(c)  # its session lives on, whatever the disk does
    fd = a.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
    a.many(fd, 8, BLOCK)
    c.must_flush()
    c.product.kill()
    a.many(fd, 16, BLOCK)
    t.disk.order(**fault.orders)
    break_journal(t)
    t.stamp.note_floor()
    c.product.start()
    w = t.watch(fault)
    w.during(fault.seconds)
    t.take(w)
    t.stamp.forgive()
    t.cut_and_check()
    if read(c.path("log.9")) != b"".join(block_of(i) for i in range(16)):
        t.notes["lost"] += 1
        t.problems.append("log.9 is not what was written")


def grown(t, fault):
    """The write-back of blocks that are new in the file fails, once. ext4 keeps them as unwritten, and the
    same pages written again and synced are zeros after the next boot: whoever heals has to get round
    that. Who heals: the daemon; a program's own truncate; the replay within the same boot. And who cannot,
    since somebody appends beside him and the pages are all there is of it, must not fence. Without a
    record to heal from: a write above bypass_size fails, and is made again."""
    for who in ("daemon", "program", "replay", "appender", "again"):
        for left in range(GROWN_TRIES - 1, -1, -1):
            try:
                grown_by(t, fault, who)
                break
            except (OSError, Failed) as e:
                # ext4 gives up altogether now and then, when its journal hears of the error first
                if not left or "Read-only" not in str(e) and NOT_THE_LOGS not in str(e):
                    raise
                t.end()


def append_beside(t, a, fd):
    """Appends until a stranger has come between; what a write says that has met one. The disk is well
    again, and only the program's own sync has heard of the error."""
    c, path = t.c, t.c.path("log.9")
    a.fchmod(fd, 0o640)
    require(errno_of(a.fsync, fd) == errno.EIO, NOT_THE_LOGS)
    stranger = os.open(path, os.O_WRONLY | os.O_APPEND)
    stop = threading.Event()

    def strange():
        while not stop.is_set():
            os.write(stranger, b"stranger" * 6)

    thread = threading.Thread(target=strange)
    thread.start()
    try:
        for i in range(APPENDS_MOST):
            e = errno_of(a.write, fd, b"a friend" * 6)
            if e or i % 20 == 0 and c.status("log.9")["state"] == "bypass":
                t.notes["appender"] = os.strerror(e)
                return
    finally:
        stop.set()
        thread.join()
        os.close(stranger)
    raise Failed("nobody came between in %d writes" % APPENDS_MOST)


def grown_by(t, fault, who):
    c = t.begin(destage_age="60s")
    a = Agent(c)
    missed = False
    path = c.path("log.9")
    fd = a.open(path, os.O_RDWR | os.O_CREAT | (os.O_APPEND if who == "appender" else 0))
    a.many(fd, 8, BLOCK)
    c.must_flush()
    c.accelerated("log.9")
    t.disk.watch_new()  # any sync of the machine may write the journal first
    a.many(fd, 92, BLOCK, 8)
    blocks = 100
    if who == "again":
        c.must_flush()  # no FENCE on the way
        t.disk.watch_new()
        big = b"".join(block_of(i) for i in range(blocks, blocks + BIG))
        t.disk.order(write_fail=1, where=INSIDE)
        e = errno_of(a.pwrite, fd, big, blocks * BLOCK)
        require(e in (0, errno.EIO), "the write that fails says %s", e)
        missed = e == 0  # another block was hit, or the write's error was lost: what is on the disk tells
        if not missed:
            require(a.pwrite(fd, big, blocks * BLOCK) == len(big), "the write made again is short")
        blocks += BIG
    elif who == "daemon":
        t.disk.order(write_fail=1, where=INSIDE)
        w = t.watch(fault)
        t.notes["healed"] = w.healed()
        t.take(w)
    else:
        if who != "appender":
            c.product.kill()
        t.disk.order(write_fail=1, where=INSIDE)
        require(LIBC.syncfs(c.image.fd) < 0, "no error: the disk has not failed")
    require(t.disk["failed"] == 1 or missed, "%s: the disk has not failed", who)
    if who == "appender":
        append_beside(t, a, fd)
    if who == "program":
        b = Agent(c)
        b.ftruncate(b.open(path, os.O_RDWR), blocks * BLOCK + 100)
    if who == "replay":
        a.kill()
        c.product.start()
        require(c.product.gate()[0] == 0, "replay: %s", c.product.gate()[1])
        c.product.kill()
    c.cut()
    if who == "appender":
        c.recover()
    have = read(path)[:blocks * BLOCK]
    wrong = [i for i in range(blocks) if have[i * BLOCK:(i + 1) * BLOCK] != block_of(i)]
    if wrong:
        t.notes["lost"] += 1
        t.problems.append("%s: %d blocks are not on the disk, first %d: %r" % (
            who, len(wrong), wrong[0], have[wrong[0] * BLOCK:][:16]))
    require(wrong or not missed, NOT_THE_LOGS)
    t.notes["commits"] += blocks
    t.end()
