#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whatever door the bytes come in by: another process or descriptor, a mapping, O_DIRECT; and whoever
reads them meanwhile: a reader without the library sees each acknowledged byte at once.

Kills of tests/mutants/cases-*: dsync-forgotten, flags-not-passed-on, heal-without-lock, mapped-in-
lane, passed-on-in-lane.
"""
import mmap
import random
import sys

from cases import (HERE, Agent, Stamp, block, default_builddir, errno_of, find, main, os, read, require, time, wait_end,
                   wait_for)

sys.path.insert(0, os.path.join(HERE, "..", "kill"))
from orders import Orders, Spot  # noqa: E402

BLOCKS = 40
A, B = b"A" * 8192, b"B" * 4096


def begin(c, **settings):
    settings.setdefault("destage_age", "3600s")
    c.begin(**settings)
    return Agent(c), c.path("log.0")


def after_cut(c, want, name="log.0"):
    c.cut()
    c.recover()
    have = read(c.path(name))
    require(have == want, "%s: %d bytes of %d, differs at %s", name, len(have), len(want),
            next((i for i, (x, y) in enumerate(zip(have, want)) if x != y), "its end"))


def sync_by_another(c):
    """One process writes without a sync, another one syncs: by its own descriptor, or one passed to it."""
    a, path = begin(c)
    b, d = Agent(c), Agent(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    other = b.open(path, os.O_RDONLY)
    a.pwrite(fd, A, 0)
    b.fdatasync(other)
    c.accelerated()
    # the descriptor over a socket, to a process that has none
    sock = c.path("socket")
    d.send("receive_fd", sock)
    wait_for("a socket", lambda: os.path.exists(sock))
    wait_for("connected", lambda: errno_of(a.send_fd, sock, fd) == 0)
    passed = d.answer()
    d.pwrite(passed, A, 8192)
    d.fdatasync(passed)
    a.pwrite(fd, A, 16384)
    d.fdatasync(passed)
    require(a.fork_write(fd, A, 24576) == 0, "the child failed")
    after_cut(c, A * 4)


def sync_by_another_thread(c):
    """Threads write, each a piece of its own, none syncs; another one does, once."""
    a, path = begin(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    other = a.open(path, os.O_RDWR)
    a.write_in_threads(fd, A, 16)
    a.fdatasync(other)
    c.accelerated()
    after_cut(c, A * 16)


def seen_and_synced(c):
    """A process is killed in the middle of a write. What another one then reads and syncs, it may build
    on (a database that restarts does): it must be there after a cut, record or not. In every other turn that one
    opens the files after the death, while a third process keeps the domain."""
    c.begin(destage_age="3600s", lane_size="16MiB")
    b = Agent(c)
    r = random.Random(c.seed)
    names = ["log.%d" % i for i in range(4)]
    fds = [b.open(c.path(name), os.O_RDWR | os.O_CREAT) for name in names]
    half = 0
    for turn in range(6):
        for fd in fds:
            b.write_synced(fd, block(turn, 64), 1 << 20)
        s = Stamp(c, threads=8, files=4, plan="wide")
        time.sleep(r.uniform(0.05, 0.15))
        s.process.kill()
        s.process.wait()
        seen = []
        if turn % 2:
            b = Agent(c)
            fds = [b.open(c.path(name), os.O_RDWR) for name in names]
        for fd in fds:
            seen.append(b.pread(fd, 2 << 20, 0))
            b.fdatasync(fd)
        half += any(s.issued(t) > s.acked_by(t) for t in range(8))
        c.cut()
        c.recover()
        for name, text in zip(names, seen):
            have = read(c.path(name))
            at = next((i for i, (x, y) in enumerate(zip(have, text)) if x != y), None)
            require(at is None and len(have) == len(text),
                    "turn %d: %s: %d bytes of %d, differs at %s from what was read and synced", turn,
                    name, len(have), len(text), at)
        c.stamps = []
        b = Agent(c)
        fds = [b.open(c.path(name), os.O_RDWR) for name in names]
    return "killed inside a write in %d of 6 turns" % half


PWRITEV2 = 328
# Who reads what a dead one has left, and then syncs: open before, or opened afterwards for that.
READERS = ("before", "again", "to-read")


def killed_in_write(c):
    """As above, killed where the bytes are in the page cache and have no record, over some that have one: whether
    they stay or go is decided before anybody who opens the file then can read them."""
    c.begin(destage_age="3600s", lane_size="16MiB")
    killat = find(default_builddir(), "killat")
    for turn in range(6):
        reader = READERS[turn % 3]
        b = Agent(c)
        fd = b.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
        b.write_synced(fd, block(turn, 64), 1 << 20)
        c.accelerated()
        orders = Orders(os.path.join(c.product.memory, "orders"))
        s = Stamp(c, threads=1, files=1, plan="overlap" if turn < 3 else "wide", wrap=[killat, orders.path])
        s.moves(by=20)
        orders.at_spot(Spot(1 + turn, PWRITEV2, leaving=True))
        wait_for("killed in a write", lambda: orders["hit"])
        wait_end(s.process, 20)
        if reader != "before":  # the first one keeps the domain alive
            b = Agent(c)
        if reader == "again":
            fd = b.open(c.path("log.0"), os.O_RDWR)
            seen = b.pread(fd, 2 << 20, 0)
        elif reader == "to-read":
            fd = b.open(c.path("log.0"), os.O_RDONLY)
            seen = b.pread(fd, 2 << 20, 0)
            fd = b.open(c.path("log.0"), os.O_RDWR)
        else:
            seen = b.pread(fd, 2 << 20, 0)
        b.fdatasync(fd)
        c.cut()
        c.recover()
        have = read(c.path("log.0"))
        at = next((i for i, (x, y) in enumerate(zip(have, seen)) if x != y), None)
        require(at is None and len(have) == len(seen), "turn %d, opened %s: %d bytes of %d, differs at %s from what was read",
                turn, reader, len(have), len(seen), at)
        c.stamps = []


def passed_on(c):
    """The receiver of a descriptor writes over what has a live record."""
    a, path = begin(c)
    d = Agent(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, A, 0)
    c.accelerated()
    sock = c.path("socket")
    d.send("receive_fd", sock)
    wait_for("a socket", lambda: os.path.exists(sock))
    wait_for("connected", lambda: errno_of(a.send_fd, sock, fd) == 0)
    passed = d.answer()
    d.pwrite(passed, B, 4096)
    d.fdatasync(passed)
    after_cut(c, A[:4096] + B)


def inherited(c):
    """An O_DSYNC descriptor in a program that comes by exec: synchronous there, too."""
    a, path = begin(c)
    for name, how in (("log.0", "fcntl"), ("log.1", "ioctl")):
        fd = a.open(c.path(name), os.O_RDWR | os.O_CREAT | os.O_DSYNC)
        a.write(fd, A)
        c.accelerated(name)
        a.lseek(fd, 4096, 0)
        a.inherit(fd, how)
        require(a.exec_write(fd, B) == 0, "the other program failed")
        f = c.status(name)
        require(f["state"] == "bypass", "%s: not in bypass: %s", how, f)
    c.cut()
    c.recover()
    for name in ("log.0", "log.1"):
        have = read(c.path(name))
        require(have == A[:4096] + B, "%s: %d bytes, %r", name, len(have), have[4096:4100])


def sync_of_others(c):
    """A program without the library writes, one with it syncs: the sync must be real."""
    a, path = begin(c)
    u = Agent(c, shimmed=False)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, B, 0)
    c.accelerated()
    plain = u.open(path, os.O_RDWR)
    u.pwrite(plain, A, 4096)
    u.fdatasync(plain)
    a.write_synced(fd, B, 0)
    after_cut(c, B + A)


def mapped(c):
    """A writable shared mapping: out of acceleration, and msync and fdatasync are real."""
    a, path = begin(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, A, 0)
    c.accelerated()
    a.map_shared(fd, 8192)
    f = c.status("log.0")
    require(f["state"] == "bypass" and f["reason"], "mapped, and not shown: %s", f)
    a.map_store(fd, 0, B)
    a.map_sync(fd)
    a.map_store(fd, 4096, b"C" * 1000)
    a.fdatasync(fd)
    after_cut(c, B + b"C" * 1000 + b"A" * 3096)


def direct(c):
    """O_DIRECT and buffered descriptors of one file, the flag switched half-way, an odd length; direct
    writes with no sync at all."""
    a, path = begin(c)
    u = Agent(c, shimmed=False)
    fd = a.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    reader = u.open(path, os.O_RDONLY)
    straight = u.open(path, os.O_RDONLY | os.O_DIRECT)
    for n in range(20):
        a.direct_write(fd, block(n), n * 4096)
        require(u.pread(reader, 4096, n * 4096) == block(n), "block %d: a buffered reader is behind", n)
        require(u.direct_read(straight, 4096, n * 4096) == block(n), "block %d: O_DIRECT is behind", n)
        require(a.direct_read(fd, 4096, n * 4096) == block(n), "block %d: the program itself", n)
    c.accelerated()
    plain = a.open(path, os.O_RDWR)
    a.pwrite(plain, b"odd" * 100, 20 * 4096)
    require(u.pread(reader, 300, 20 * 4096) == b"odd" * 100, "the odd tail is not seen")
    a.direct_write(fd, block(99), 3 * 4096)
    want = b"".join(block(99 if n == 3 else n) for n in range(20)) + b"odd" * 100
    after_cut(c, want)


def direct_switched(c):
    """O_DIRECT set and cleared by fcntl half-way: the program sees the flag that it set, each reader sees
    each write, with aligned and odd ones in between, and none needs a sync while the flag is set."""
    a, path = begin(c)
    u = Agent(c, shimmed=False)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    reader, straight = u.open(path, os.O_RDONLY), u.open(path, os.O_RDONLY | os.O_DIRECT)
    want = bytearray(8 * 4096)
    a.write_synced(fd, bytes(want), 0)
    for n in range(24):
        flags = os.O_DIRECT if n % 3 else 0
        got = a.set_flags(fd, flags)
        require(got & os.O_DIRECT == flags, "turn %d: F_GETFL says %o", n, got)
        data, at = block(n), n % 8 * 4096
        a.direct_write(fd, data, at)
        want[at:at + 4096] = data
        if not flags:
            a.pwrite(fd, b"odd", at + 777)
            want[at + 777:at + 780] = b"odd"
        for what, have in (("pread", u.pread(reader, len(want), 0)),
                           ("O_DIRECT", u.direct_read(straight, len(want), 0)),
                           ("its own", a.direct_read(fd, len(want), 0))):
            require(have == want, "turn %d: %s is behind", n, what)
    c.accelerated()
    after_cut(c, bytes(want))


def direct_in_bypass(c):
    """The same without a daemon and with a full lane: a direct write without a sync counts on the disk."""
    a, path = begin(c, lane_size="1MiB", reconnect_timeout="200ms")
    fd = a.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    a.direct_write(fd, block(0), 0)
    c.accelerated()
    c.product.kill()
    for n in range(1, 330):
        a.direct_write(fd, block(n), n * 4096)
    after_cut(c, b"".join(block(n) for n in range(330)))


def dsync_in_bypass(c):
    """And O_DSYNC: the flag lives in the library, each write must be as good."""
    a, path = begin(c, lane_size="1MiB", reconnect_timeout="200ms")
    fd = a.open(path, os.O_RDWR | os.O_CREAT | os.O_DSYNC)
    a.pwrite(fd, block(0), 0)
    c.accelerated()
    c.product.kill()
    for n in range(1, 330):
        a.pwrite(fd, block(n), n * 4096)
    after_cut(c, b"".join(block(n) for n in range(330)))


def readers(c):
    """A backup tool beside the writer: pread, a mapping, O_DIRECT, each right after the acknowledgement;
    with drains and heals going on."""
    c.begin(destage_age="20ms", lane_size="1MiB")
    c.fault.set(sync_fail_every=5, write_sleep_us=2000)
    a, u = Agent(c), Agent(c, shimmed=False)
    path = c.path("log.0")
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    have = bytearray(BLOCKS * 512)
    a.write_synced(fd, bytes(have), 0)
    reader = os.open(path, os.O_RDONLY)
    straight = u.open(path, os.O_RDONLY | os.O_DIRECT)
    m = mmap.mmap(reader, len(have), prot=mmap.PROT_READ)
    end = time.monotonic() + 4
    n = 0
    while time.monotonic() < end:
        n += 1
        data, at = block(n, 512), n * 7 % BLOCKS * 512
        a.write_synced(fd, data, at)
        have[at:at + 512] = data
        # all of it: a heal may put an older block back elsewhere
        require(os.pread(reader, len(have), 0) == have, "write %d: pread is behind", n)
        require(m[:] == have, "write %d: the mapping is behind", n)
        if n % 8 == 0:
            require(u.direct_read(straight, len(have), 0) == have, "write %d: O_DIRECT is behind", n)
    c.accelerated()
    require(c.fault["writes"] > 0, "no heal took place")
    m.close()
    os.close(reader)
    return "%d writes, %d writes of heals" % (n, c.fault["writes"])


if __name__ == "__main__":
    sys.exit(main([sync_by_another, sync_by_another_thread, seen_and_synced, killed_in_write, passed_on, inherited,
                   sync_of_others, mapped, direct, direct_switched, direct_in_bypass, dsync_in_bypass,
                   readers]))
