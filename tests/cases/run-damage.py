#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pool itself: torn, damaged, cut short, unreadable, old, blank or gone; the volume gone for a while.

A torn last record is dropped and all before it is replayed. Damage in what was acknowledged is refused,
without a byte changed in pool or files, and said so; nothing crashes, nothing says "clean".

Kills of tests/mutants/cases-*: damage-taken-for-torn, torn-taken-for-damage.
"""
import fcntl
import random
import re
import shutil
import sys

from cases import (DOMAIN, Agent, Failed, Stamp, block, main, os, read, require, signal, subprocess,
                   time, wait_for)
from kept import HEADER, RECORDS, patch, records, tree_hash


def torn(c):
    """The last record as a power cut may leave it: nothing from any 8 bytes on; single words missing."""
    kept, lane, at = records(c)
    r = random.Random(c.seed)
    last = at[-1]
    whole = read(lane)[last:last + 576]
    cuts = list(range(0, 64, 8)) + sorted(r.sample(range(64, 576, 8), 10))
    images = [whole[:n] + bytes(576 - n) for n in cuts]
    for _ in range(6):  # cache lines and words come in any order
        words = [whole[i:i + 8] if r.random() < 0.7 else bytes(8) for i in range(0, 576, 8)]
        images.append(b"".join(words))
    for i, image in enumerate(images):
        kept.restore()
        patch(lane, last, image)
        status, words = c.product.gate()
        require(status == 0, "torn image %d: gate: %d %s", i, status, words)
        have = read(c.path("log.0"))
        want = b"".join(block(n, 512) for n in range(RECORDS - 1))
        full = want + block(RECORDS - 1, 512)
        require(have == (full if image == whole else want), "torn image %d: %d bytes", i, len(have))
    return "%d images" % len(images)


def flipped(c):
    """One bit of any acknowledged record: refused, named, nothing changed; with a daemon, too."""
    kept, lane, at = records(c)
    r = random.Random(c.seed)
    for i in range(12):
        kept.restore()
        n = 9 if i == 0 else r.randrange(RECORDS - 1)
        where = at[n] + r.randrange(576)
        byte = read(lane)[where]
        patch(lane, where, bytes([byte ^ 1 << r.randrange(8)]))
        before, file = read(lane), read(c.path("log.0"))
        if i % 3 == 0:
            c.product.start()
        status, words = c.product.gate()
        require(status == 1, "record %d byte %d: gate: exit %d %s", n, where - at[n], status, words)
        require("damaged" in words and str(at[n] - HEADER) in words, "not named: %s", words)
        require(read(lane) == before, "the lane was changed")
        require(read(c.path("log.0")) == file, "half a replay")
        dry = c.product.command("recover", "--dry-run", DOMAIN)
        apply = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
        require(apply.returncode != 0 and read(c.path("log.0")) == file, "--apply on damage: %s%s%s",
                dry.stdout, apply.stdout, apply.stderr)
    give_up = c.product.command("recover", "--discard", "--yes=" + DOMAIN, DOMAIN)
    require(give_up.returncode == 0, "--discard: %s", give_up.stderr)
    require(c.product.gate()[0] == 0, "after --discard")


def unreadable(c):
    """The lane's file lacks its end, its middle or all: no crash loop, no "clean"."""
    kept, lane, at = records(c)
    size = os.stat(lane).st_size
    for length in (size - 4096, HEADER + 4096, HEADER, 100, 0, None):
        for daemon in (True, False):
            kept.restore()
            if length is None:
                os.unlink(lane)
            else:
                os.truncate(lane, length)
            if daemon:
                c.product.start()
            status, words = c.product.gate()
            require(status == 1, "lane of %s bytes: gate: exit %d %s", length, status, words)
            require(not daemon or c.product.alive(), "the daemon died")
            dry = c.product.command("recover", "--dry-run", DOMAIN)
            require(dry.returncode != 0, "dry run says %d: %s", dry.returncode, dry.stdout)
    give_up = c.product.command("recover", "--discard", "--yes=" + DOMAIN, DOMAIN)
    require(give_up.returncode == 0, "--discard: %s", give_up.stderr)
    require(c.product.gate()[0] == 0, "after --discard")


def cut_short_alive(c):
    """Somebody cuts the lane short while it is in use: the daemon lives on and another domain's
    processes do not notice."""
    c.begin(lane_size="1MiB", destage_age="100ms")
    environment = c.environment
    c.environment = lambda: dict(environment(), PMEMLOGD_DOMAIN="victim")
    a = Agent(c)
    c.environment = environment
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(0), 0)
    lane = c.product.lanes()[0]
    s = Stamp(c, threads=2, files=2, folder="other")
    os.truncate(lane, HEADER + 4096)
    a.send("many", fd, 300, 4096)
    time.sleep(1.5)
    require(c.product.alive(), "the daemon died")
    d = c.product.status().domain("victim")
    require(d is None or d["state"] != "ok", "not shown: %s", d)
    s.moves(by=50)
    s.stop()
    s.check()
    c.cut()
    c.recover()
    c.check()


def old_or_gone(c):
    """The pool is an older copy of itself, blank, or not there; of another version: refused, unchanged."""
    kept, lane, at = records(c)
    pool = c.product.pool
    older = os.path.join(kept.folder, "older")

    def must_refuse(what):
        before = tree_hash(pool) if os.path.isdir(pool) else ""
        status, words = c.product.gate()
        require(status != 0, "%s: gate: exit 0 %s", what, words)
        try:
            c.product.start(timeout=10)
        except RuntimeError:
            pass
        else:
            require(c.product.gate()[0] != 0, "%s: daemon and gate say yes", what)
        c.product.kill()
        require((tree_hash(pool) if os.path.isdir(pool) else "") == before, "%s: changed", what)
        require(read(c.path("log.0")) == file, "%s: the file was changed", what)

    kept.restore()
    file = read(c.path("log.0"))
    shutil.copytree(pool, older)
    c.recover()  # this moves the pool on
    c.product.stop()
    file = read(c.path("log.0"))
    shutil.rmtree(pool)
    shutil.copytree(older, pool)
    must_refuse("an older copy")
    superblock = [os.path.join(pool, n) for n in os.listdir(pool)
                  if not read(os.path.join(pool, n)).startswith(b"PMLANE01")]
    kept.restore()
    file = read(c.path("log.0"))
    for path in superblock:
        patch(path, 0, bytes(8192))
    must_refuse("no superblock")
    kept.restore()
    for top, _, files in os.walk(pool):
        for name in files:
            path = os.path.join(top, name)
            size = os.stat(path).st_size
            with open(path, "wb") as f:
                f.truncate(size)
    must_refuse("zeros")
    kept.restore()
    shutil.rmtree(pool)
    os.mkdir(pool)
    must_refuse("an empty folder")
    kept.restore()
    shutil.rmtree(pool)
    must_refuse("no folder")


def volume_away(c):
    """Only the file system goes, the daemon stays: page cache lost, same boot; back again later."""
    c.begin(destage_age="3600s")
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.many(fd, 50, 4096)
    c.accelerated()
    c.image.cut()
    a.kill()
    c.agents = []
    begin = time.monotonic()
    c.image.umount()  # waits until the daemon lets go of it
    away = time.monotonic() - begin
    status, words = c.product.gate()
    require(status == 1, "gate without the volume: exit %d: %s", status, words)
    c.image.mount()
    wait_for("gate opens", lambda: c.product.gate()[0] == 0, 20)
    want = b"".join(block(n) for n in range(50))
    require(read(c.path("log.0")) == want, "not replayed")
    return "let go within %.1f s" % away


def no_room(c):
    """A memory too small for the lane: real syncs, no error, nothing left behind; then one that fits
    and that somebody fills up: no SIGBUS."""
    c.begin(memory="40m", lane_size="64MiB")
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(1), 0)
    require(not c.product.lanes(), "a lane was left behind: %s", c.product.lanes())
    require(c.product.alive(), "the daemon died")
    a.end()
    c.agents = []
    c.product.stop()
    c.product.settings["lane_size"] = "16MiB"
    c.product.create()
    c.product.start()
    s = Stamp(c, threads=4, files=2, plan="wide", folder="r")
    s.moves()
    with open(os.path.join(c.product.memory, "ballast"), "wb", buffering=0) as f:
        try:
            while f.write(bytes(65536)):
                pass
        except OSError:
            pass
    wait_for("the lane has wrapped", lambda: c.status()["wraps"] > 0, 30)
    s.fine()
    os.unlink(os.path.join(c.product.memory, "ballast"))
    c.cut()
    c.recover()
    require(read(c.path("log.0")) == block(1), "the file without a lane")
    c.check()


FSGETXATTR, FSSETXATTR, FLAG_DAX = 0x801C581F, 0x401C5820, 0x8000


def dax_flag(c):
    """A folder and files whose DAX flag is set, on a disk that has no DAX: it is not in force. Refused as any other
    disk, with words on the flag, and nothing is left there; what was made by `emulate` is not opened without it."""
    c.begin(start=False)
    pool = c.path("pool")
    os.mkdir(pool)
    fd = os.open(pool, os.O_RDONLY)
    flags = bytearray(28)
    fcntl.ioctl(fd, FSGETXATTR, flags)
    flags[:4] = (int.from_bytes(flags[:4], "little") | FLAG_DAX).to_bytes(4, "little")
    fcntl.ioctl(fd, FSSETXATTR, bytes(flags))
    os.close(fd)
    made = os.open(os.path.join(pool, "probe"), os.O_RDWR | os.O_CREAT)
    fcntl.ioctl(made, FSGETXATTR, flags)
    os.close(made)
    os.unlink(os.path.join(pool, "probe"))
    require(int.from_bytes(flags[:4], "little") & FLAG_DAX, "%s: files do not get the folder's flag", c.fs)
    c.product.pool = pool
    for again in (False, True):
        with open(c.product.config, "r+", encoding="ascii") as f:
            text = re.sub("^pool = .*$", 'pool = "%s";' % pool, f.read(), flags=re.M)
            f.seek(0)
            f.truncate()
            f.write(re.sub("^emulate = .*$", "", text, flags=re.M))
        if not again:
            r = c.product.command("pool", "create", "--force")
            require(r.returncode != 0 and not os.listdir(pool), "made: %d %s %s", r.returncode, r.stderr, os.listdir(pool))
            said = r.stdout + r.stderr
        else:
            r = c.product.command("pool", "create", "--emulate", "--force")
            require(r.returncode == 0, "for a trial: %s", r.stderr)
            try:
                c.product.start(timeout=10)
            except RuntimeError:
                pass
            else:
                raise Failed("the daemon started on it")
            with open(os.path.join(c.box.path, "pmemlogd.log"), encoding="utf-8", errors="replace") as f:
                said = f.read()
        for words in (("is an emulated pool",) if again else
                      ("MAP_SYNC is refused", "DAX flag is set and not in force", "dax=always")):
            require(words in said, "%s: not said: %s", words, said[-600:])


if __name__ == "__main__":
    sys.exit(main([torn, flipped, unreadable, cut_short_alive, old_or_gone, volume_away, no_room, dax_flag]))
