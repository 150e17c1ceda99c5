#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What lies on the disk alone: sizes and times newer than the bytes, a snapshot that knows nothing of the pool,
a pool that is thrown away after a good flush.

Kills of tests/mutants/cases-*: copy-taken-for-the-file, size-trusted.
"""
import hashlib
import os
import shutil
import subprocess
import sys

from cases import Agent, Image, block, errno, errno_of, main, read, require, run, time, wait_for

BLOCKS = 60


def size(c):
    return (64 if c.fs == "ext4" else 320) << 20


def begin(c, **settings):
    settings.setdefault("destage_age", "3600s")
    c.begin(image=Image(c.box, c.fs, name=c.name, size=size(c)), **settings)
    return Agent(c), c.path("log.0")


def text(first, n=BLOCKS):
    return b"".join(block(first + i) for i in range(n))


def right_size(c):
    """Length and times are durable, the bytes are not: a file of the right size, newer than its records'
    bytes, full of zeros. Neither says that nothing is to be done. In the same boot, and after one."""
    for boot in (False, True):
        a, path = begin(c)
        with open(path, "wb") as f:
            f.truncate(BLOCKS * 4096)
            os.fsync(f.fileno())
        fd = a.open(path, os.O_RDWR)
        a.many(fd, BLOCKS, 4096)
        c.accelerated()
        other = a.open(c.path("other"), os.O_RDWR | os.O_CREAT)
        a.fsync(other)  # commits the inodes: size, times
        c.cut()
        before = read(path)
        require(len(before) == BLOCKS * 4096 and before.count(0) > len(before) // 2,
                "the disk has the bytes: nothing is shown")
        if boot:
            c.reboot()
        c.recover()
        require(read(path) == text(0), "not all is back, boot %s", boot)
        c.end()
        c.agents = []


class Snapshot:
    """A copy of the disk as it is at this moment, mounted elsewhere."""

    def __init__(self, c):
        self.c = c
        self.file = os.path.join(c.box.path, "snapshot.img")
        self.path = c.box.folder("snapshot")
        run(["cp", "--sparse=always", c.image.file, self.file])
        r = subprocess.run(["losetup", "-f", "--show", self.file], capture_output=True, text=True)
        loop = r.stdout.strip()
        try:
            run(["mount", "-t", c.fs, "-o", "nouuid" if c.fs == "xfs" else "defaults", loop, self.path])
        finally:
            subprocess.run(["losetup", "-d", loop], stderr=subprocess.DEVNULL)
        c.box.mounts.append(self.path)

    def read(self, name="log.0"):
        path = os.path.join(self.path, name)
        return read(path) if os.path.exists(path) else b""

    def hash(self):
        h = hashlib.sha256()
        for name in sorted(os.listdir(self.path)):
            if name.startswith("log."):
                h.update(self.read(name))
        return h.hexdigest()

    def umount(self):
        run(["umount", self.path])
        self.c.box.mounts.remove(self.path)


def whole_or_not(have, versions):
    """Each 512 bytes are of one of the versions, or were never written."""
    for at in range(0, len(have), 512):
        piece = have[at:at + 512]
        require(not piece.strip(b"\0") or any(piece == v[at:at + 512] for v in versions),
                "byte %d of the snapshot: %r", at, piece[:16])


def snapshot_unasked(c):
    """A snapshot of the disk with records in the pool: an older state, no mixture. The copy never gets the
    pool's records, and the original gets them all."""
    a, path = begin(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.many(fd, BLOCKS, 4096)
    c.must_flush()
    for n in range(BLOCKS):
        a.write_synced(fd, block(1000 + n), n * 4096)
    c.accelerated()
    c.cut()
    s = Snapshot(c)  # what the cut has left, which is what a snapshot at that moment had held
    have = s.read()
    require(len(have) == BLOCKS * 4096, "the snapshot has %d bytes", len(have))
    whole_or_not(have, (text(0), text(1000)))
    require(have != text(1000), "the disk has everything: nothing is shown")
    before = s.hash()
    status, words = c.product.gate()
    require(status != 0 and "two devices" in words, "two of them mounted: gate: exit %d: %s", status, words)
    require(s.hash() == before, "records went into the copy")
    s.umount()
    c.recover()
    require(read(path) == text(1000), "the original has not got them")


def snapshot_alone(c):
    """The copy is mounted in the original's place on a machine whose pool knows nothing of it: its marks
    keep it from being written by halves."""
    a, path = begin(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.many(fd, BLOCKS, 4096)
    c.must_flush()
    a.write_synced(fd, block(7), 0)
    c.cut()
    c.product.kill()
    for folder in (c.product.pool, c.product.rundir, c.product.state):
        shutil.rmtree(folder)
        os.mkdir(folder, 0o755)
    run([c.product.ctl, "-c", c.product.config, "pool", "create", "--emulate"])
    b = Agent(c)
    got = errno_of(b.open, path, os.O_RDWR)
    require(got == errno.EIO, "opened without a daemon: errno %d", got)
    c.product.start()
    b = Agent(c)
    got = errno_of(b.open, path, os.O_RDWR)
    f = c.status("log.0")
    require(got == errno.EIO, "opened beside a pool that is not its own: errno %d", got)
    require(f and f["state"] == "bypass" and "another pool" in f["reason"], "status hides it: %s", f)


def snapshot_after_flush(c):
    """The same after a flush, with the writers at rest: every acknowledged byte."""
    a, path = begin(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.many(fd, BLOCKS, 4096)
    c.accelerated()
    c.must_flush()
    run(["sync", "-f", path])  # as any snapshot of a mounted file system begins with
    s = Snapshot(c)
    require(s.read() == text(0), "the snapshot after a flush lacks something")
    s.umount()
    a.write_synced(fd, block(5), 0)
    c.cut()
    c.recover()
    require(read(path)[:4096] == block(5), "lost beside a snapshot")


def pool_thrown_away(c):
    """Flush says yes, the database ends, somebody zeroes the pool: nothing is missing, and a new pool serves
    the files."""
    a, path = begin(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.many(fd, BLOCKS, 4096)
    c.accelerated()
    c.must_flush()
    a.end()
    c.agents = []
    wait_for("the domain is released", lambda: not (c.status() or {}).get("sessions"), 10)
    time.sleep(0.3)
    c.product.stop()
    for lane in c.product.lanes():
        with open(lane, "r+b") as f:
            f.write(bytes(os.fstat(f.fileno()).st_size))
    run([c.product.ctl, "-c", c.product.config, "pool", "create", "--force", "--emulate",
         "--yes=" + c.product.pool])
    c.product.start()
    status, words = c.product.gate()
    require(status == 0, "gate: exit %d: %s", status, words)
    b = Agent(c)
    fd = b.open(path, os.O_RDWR)
    require(b.pread(fd, BLOCKS * 4096, 0) == text(0), "something is missing after a good flush")
    b.write_synced(fd, block(9), 0)
    c.accelerated()
    c.cut()
    c.recover()
    require(read(path) == block(9) + text(1, BLOCKS - 1), "the new pool does not serve the file")


if __name__ == "__main__":
    sys.exit(main([right_size, snapshot_unasked, snapshot_alone, snapshot_after_flush,
                   pool_thrown_away]))
