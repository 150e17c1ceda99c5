#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records in the pool, and newer bytes that reached the file by another way: never the old ones on top.

Where it is our own way (bypass, large writes, another domain) the newer bytes stand after the cut. Where it
is somebody else's (no session, a restored file, a volume rolled back) the domain is quarantined, with both
versions kept; nothing is put back silently.

Kills of tests/mutants/cases-*: bypass-unfenced, ctime-unlooked, mark-unread, one-quarantined-rest-
replayed, roll-back-unseen, token-unseen, yield-to-nobody.
"""
import random
import shutil
import sys

from cases import (DOMAIN, Agent, Failed, block, errno_of, main, os, read, require, run, signal, time,
                   wait_for)

OLD, NEW = b"X" * 4096, b"Y" * 4096


def undrained(c, **settings):
    settings.setdefault("destage_age", "3600s")
    c.begin(**settings)
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, OLD, 0)
    c.accelerated()
    return a, fd


def refused(c, words, file=None):
    """Quarantine with these words, both versions kept; --discard then leaves the file as it is."""
    text = c.recover(expect=1)
    require(words in text, "gate says %r, expected %r", text, words)
    path = file or c.path("log.0")
    before = read(path)
    require(before == NEW, "the newer bytes are gone: %r", before[:8])
    require(c.live() > 0, "the records are gone")
    if c.seed % 2:
        r = c.product.command("recover", "--discard", "--yes=" + DOMAIN, DOMAIN)
        want = NEW
    else:
        r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
        want = OLD
    require(r.returncode == 0, "recover: exit %d: %s%s", r.returncode, r.stdout, r.stderr)
    c.recover()
    require(read(path) == want, "after recover: %r", read(path)[:8])


def write_foreign(path, data=NEW):
    with open(path, "r+b") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def gone(c, a):
    """Neither daemon nor session, and no sign of life for longer than a second."""
    c.product.kill()
    a.kill()
    time.sleep(1.2)


def others_later(c):
    """A program without the library, after a crash of the database and the daemon."""
    a, fd = undrained(c)
    gone(c, a)
    write_foreign(c.path("log.0"))
    refused(c, "changed")


def others_after_power(c):
    """A rescue boot: the file is written before anything of ours runs again."""
    a, fd = undrained(c)
    c.cut()
    time.sleep(1.2)
    write_foreign(c.path("log.0"))
    c.reboot()
    refused(c, "changed")


def restored(c):
    """Another file under its name: a restore."""
    a, fd = undrained(c)
    path = c.path("log.0")
    c.cut()
    with open(path + ".new", "wb") as f:
        f.write(NEW)
    shutil.copystat(path, path + ".new")
    os.rename(path + ".new", path)
    text = c.recover(expect=1)
    require("gone" in text or "replaced" in text, "gate says %r", text)
    require(read(path) == NEW, "the restored file was changed")
    r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
    require(r.returncode != 0 and read(path) == NEW, "--apply on a file that is gone")
    r = c.product.command("recover", "--discard", "--yes=" + DOMAIN, DOMAIN)
    require(r.returncode == 0, "--discard: %s%s", r.stdout, r.stderr)
    c.recover()
    require(read(path) == NEW, "the restored file was changed by --discard")


def rolled_back(c, marked):
    """The volume as it was before the session that wrote the records. marked: while an earlier session
    had the file, so that it carries our mark in the older volume, too."""
    a, fd = undrained(c)
    path = c.path("log.0")
    a.write_synced(fd, NEW, 0)
    if marked:
        c.must_flush()
        run(["fsfreeze", "-f", c.image.path])
        run(["cp", "--sparse=always", c.image.file, c.image.file + ".old"])
        run(["fsfreeze", "-u", c.image.path])
    a.end()
    wait_for("the session's end is noticed", lambda: not c.status()["sessions"])
    c.agents = []
    if not marked:
        c.image.umount()
        run(["cp", "--sparse=always", c.image.file, c.image.file + ".old"])
        c.image.mount()
    time.sleep(1.2)
    a = Agent(c)
    fd = a.open(path, os.O_RDWR)
    a.write_synced(fd, OLD, 0)
    c.accelerated()
    c.cut()
    c.image.umount()
    os.rename(c.image.file + ".old", c.image.file)
    c.image.mount()
    text = c.recover(expect=1)
    require(read(path) == NEW, "records of a newer life in the older file: %s", text)


def rolled_back_before(c):
    """The volume is an older one, from when nobody had the file."""
    rolled_back(c, False)


def rolled_back_within(c):
    """The volume is an older one, from an earlier session: only its times tell."""
    rolled_back(c, True)


def own_bypass(c):
    """The program itself, when the lane was full and no daemon there."""
    a, fd = undrained(c, lane_size="1MiB", reconnect_timeout="200ms")
    c.product.kill()
    for n in range(1, 400):
        a.write_synced(fd, block(n), n * 4096)
    a.write_synced(fd, NEW, 0)
    if c.seed % 2:
        c.cut()
    else:
        c.product.start()
        c.in_lane()
        a.write_synced(fd, block(77), 77 * 4096)
        c.cut()
    c.recover()
    want = NEW + b"".join(block(n) for n in range(1, 400))
    require(read(c.path("log.0")) == want, "an older record is on top: %r", read(c.path("log.0"))[:8])


def unsynced_bypass(c):
    """Written in bypass without a sync, back in the lane, then fsync: it must be a real one."""
    a, fd = undrained(c, lane_size="1MiB", reconnect_timeout="200ms")
    c.product.kill()
    for n in range(1, 400):
        a.write_synced(fd, block(n), n * 4096)
    a.pwrite(fd, NEW, 0)
    c.product.start()
    c.in_lane()
    a.fdatasync(fd)
    c.cut()
    c.recover()
    require(read(c.path("log.0"))[:4096] == NEW, "lost: %r", read(c.path("log.0"))[:8])


def large(c):
    """A write above bypass_size over older records, and other calls that no record stands for."""
    a, fd = undrained(c, bypass_size="64KiB")
    a.write_synced(fd, NEW * 32, 0)
    a.write_synced(fd, OLD, 40 * 4096)
    a.fallocate(fd, 16, 40 * 4096, 4096)  # FALLOC_FL_ZERO_RANGE
    other = a.open(c.path("log.1"), os.O_RDWR | os.O_CREAT)
    a.write_synced(other, OLD, 0)
    source = a.open(c.path("plain"), os.O_RDWR | os.O_CREAT)
    a.write_synced(source, NEW, 0)
    a.copy_file_range(source, other, 4096, 0, 0)
    a.fsync(other)
    third = a.open(c.path("log.2"), os.O_RDWR | os.O_CREAT)
    a.write_synced(third, OLD, 0)
    a.sendfile(third, source, 0, 4096)
    a.fsync(third)
    require(c.live() > 0, "nothing live at the cut")
    c.cut()
    c.recover()
    want = {"log.0": NEW * 32 + bytes(8 * 4096) + bytes(4096), "log.1": NEW, "log.2": NEW}
    for name, text in want.items():
        have = read(c.path(name))
        require(have == text, "%s: %d bytes of %d, %r", name, len(have), len(text), have[:8])


def second_domain(c):
    """Another domain opens the file and writes it."""
    a, fd = undrained(c)
    environment = c.environment
    c.environment = lambda: dict(environment(), PMEMLOGD_DOMAIN="others")
    b = Agent(c)
    c.environment = environment
    other = b.open(c.path("log.0"), os.O_RDWR)
    b.write_synced(other, NEW, 0)
    a.write_synced(fd, OLD, 4096)
    b.write_synced(other, NEW, 8192)
    c.cut()
    c.recover()
    require(read(c.path("log.0")) == NEW + OLD + NEW, "not as written")


def token(c):
    """Opened while no daemon and no session was there, so in bypass; the daemon comes and another program
    opens it, too: neither may have records over the other's bytes."""
    c.begin(destage_age="3600s", start=False)
    for name in ("bypass", "control"):
        os.mkdir(os.path.join(c.product.rundir, name))
    os.chmod(os.path.join(c.product.rundir, "bypass"), 0o1777)
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, OLD, 0)
    a.fork_write(fd, OLD, 4096)  # it has forked: it stays there
    c.product.start()
    b = Agent(c)
    other = b.open(c.path("log.0"), os.O_RDWR)
    b.write_synced(other, OLD, 8192)
    f = c.status("log.0")
    require(f and f["state"] == "bypass", "accelerated beside a writer in bypass: %s", f)
    a.write_synced(fd, NEW, 8192)
    b.write_synced(other, NEW, 0)
    c.cut()
    c.recover()
    require(read(c.path("log.0")) == NEW + OLD + NEW, "not as written")


def marked(c):
    """Live records, no daemon, no session: the file is not opened for writing, so nothing gets newer."""
    a, fd = undrained(c)
    gone(c, a)
    b = Agent(c)
    error = errno_of(b.open, c.path("log.0"), os.O_RDWR)
    require(error == 5, "opened for writing: %s", error)
    b.open(c.path("log.0"), os.O_RDONLY)
    c.recover()
    require(read(c.path("log.0")) == OLD, "not replayed")
    b.open(c.path("log.0"), os.O_RDWR)


def one_of_two(c):
    """Two files, one of them changed by somebody else: neither is replayed."""
    a, fd = undrained(c)
    other = a.open(c.path("log.1"), os.O_RDWR | os.O_CREAT)
    a.write_synced(other, OLD, 0)
    a.write_synced(fd, OLD, 4096)
    os.sync()
    a.write_synced(other, OLD, 4096)
    c.cut()
    time.sleep(1.2)
    before = read(c.path("log.1"))
    write_foreign(c.path("log.0"))
    c.recover(expect=1)
    require(read(c.path("log.1")) == before, "half of the domain was replayed")


if __name__ == "__main__":
    sys.exit(main([others_later, others_after_power, restored, rolled_back_before,
                   rolled_back_within, own_bypass, unsynced_bypass,
                   large, second_domain, token, marked, one_of_two]))
