#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What earlier versions left behind meets this version: their pools, their preload library, control files of
other versions (kept.py; include/abi).

Kills of tests/mutants/abi-*: pool-version, control-version-unlooked, hello-version-unlooked.
"""
import hashlib
import os
import shutil
import struct
import sys

from kept import CONTROL_VERSION, HEAD_BYTES, KeptDisk, control_file, versions
from cases import Agent, Stamp, block, errno, errno_of, main, read, require, run, time, wait_for
from wire import HELLO, Client, hello

ABI = 1  # CTL_VERSION; a daemon serves clients of one ABI older
HEAD = struct.Struct("<8sIIIIQQII16s")


def differing(c, files):
    return [name for name, f in files.items()
            if not os.path.exists(c.path(name)) or
            (os.stat(c.path(name)).st_size, hashlib.sha256(read(c.path(name))).hexdigest())
            != (f["size"], f["sha256"])]


def old_pool(c, kept):
    folder = c.box.folder("kept-" + kept.name)
    kept.unpack(folder)
    c.begin(image=KeptDisk(c.box, os.path.join(folder, "disk.img"), c.name), start=False,
            lane_size="1MiB", destage_age="3600s")
    for part in ("pool", "state"):
        shutil.rmtree(getattr(c.product, part))
        run(["cp", "-a", os.path.join(folder, part), getattr(c.product, part)])
    c.reboot()  # those who made it may have done so since this machine started
    files = kept.about["files"]
    require(differing(c, files), "the files have everything: recovery shows nothing")
    return files


def pools(c):
    """A pool with live records of every kind is recovered, and goes on being used."""
    told = []
    for kept in versions():
        files = old_pool(c, kept)
        c.recover()
        wrong = differing(c, files)
        require(not wrong, "%s: not what was acknowledged: %s", kept.name, wrong)
        require(not os.path.exists(c.path("log.2")) and not os.path.exists(c.path("log.3")),
                "%s: a name that was taken away is there again", kept.name)
        a = Agent(c)
        fd = a.open(c.path("log.0"), os.O_RDWR)
        a.write_synced(fd, block(77), 0)
        c.accelerated()
        c.cut()
        c.recover()
        require(read(c.path("log.0"))[:4096] == block(77), "%s: the pool is not used on", kept.name)
        told.append(kept.name)
        c.end()
    return ", ".join(told)


def without_daemon(c):
    """The gate alone recovers it, too."""
    for kept in versions():
        files = old_pool(c, kept)
        status, words = c.product.gate()
        require(status == 0 and not differing(c, files), "%s: gate: exit %d %s", kept.name, status,
                words)
        c.end()


def libraries(c):
    """A database that runs on under the old library while the daemon is replaced by this one."""
    told = []
    for kept in versions():
        c.begin(destage_age="100ms", lane_size="1MiB", reconnect_timeout="500ms")
        new = c.product.library
        c.product.library = os.path.join(os.path.dirname(new), "old-" + os.path.basename(new))
        kept.library(c.product.library)
        if kept.about["abi"] < ABI - 1:
            refused(c)
        else:
            served(c, new)
        told.append(kept.name)
        c.stamps = []
        c.end()
    return ", ".join(told)


def served(c, new):
    old = Stamp(c, first=0, threads=3)
    time.sleep(0.3)
    c.accelerated()
    c.product.library = new
    both = Stamp(c, first=8, threads=3)  # beside it, in the same files
    time.sleep(0.3)
    c.product.kill()
    old.moves()
    c.product.start()
    old.moves()
    both.moves()
    c.in_lane()
    c.cut()
    c.recover()
    require(c.check() > 100, "too few writes")


def refused(c):
    """Too old: to the disk with the sync asked for, in words, and never by halves."""
    old = Stamp(c, threads=3)
    old.moves()
    require(not c.status("log.0"), "a library of an ABI too old was let in")
    c.cut()
    c.check()


def frozen_head(c):
    """The first 64 bytes of a control file, then and now."""
    c.begin()
    a = Agent(c)
    a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    now = HEAD.unpack(read(control_file(c.product))[:HEAD_BYTES])
    for kept in versions():
        with open(kept.path("control-head"), encoding="ascii") as f:
            then = HEAD.unpack(bytes.fromhex(f.read()))
        require(then[0] == now[0] == b"PMCTL001", "magic: %r, %r", then[0], now[0])
        require(then[1] == kept.about["abi"], "%s: version %d", kept.name, then[1])
        require(then[2] == now[2] == 1 and then[4] == now[4] == 0, "state, uid: %s, %s", then, now)
        require(then[9] == now[9] == bytes(16), "bytes that stay zero: %s, %s", then[9], now[9])
    # the images of rewritten blocks come after what an older process maps
    require(now[1] == ABI and now[6] == then[6] <= os.stat(control_file(c.product)).st_size,
            "now: %s", now)


def other_control(c):
    """A control file of another version, left by a daemon that is gone: nobody joins, nobody dies, its
    sessions go on; a daemon of this version holds the domain until they have ended."""
    for version in (0, ABI + 1, 0xffffffff):
        c.begin(destage_age="3600s", reconnect_timeout="200ms")
        a = Agent(c)
        fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
        a.write_synced(fd, block(1), 0)
        c.accelerated()
        c.product.kill()
        path = control_file(c.product)
        was = read(path)[CONTROL_VERSION:CONTROL_VERSION + 4]
        patch(path, CONTROL_VERSION, struct.pack("<I", version))
        b = Agent(c)
        got = errno_of(b.open, c.path("log.0"), os.O_RDWR)
        require(got == errno.EIO, "version %d: a marked file was opened: errno %d", version, got)
        fresh = b.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
        b.write_synced(fresh, block(3), 0)  # to the disk
        a.write_synced(fd, block(2), 4096)
        c.product.start()
        d = c.status()
        require(d and d["state"] in ("held", "quarantined"), "version %d: %s", version, d)
        require(c.product.gate()[0] != 0, "version %d: the gate opened", version)
        a.write_synced(fd, block(4), 8192)
        patch(path, CONTROL_VERSION, was)  # what that version would have found
        a.end()
        b.end()
        wait_for("version %d: the domain is decided" % version, lambda: c.product.gate()[0] == 0, 30)
        have = read(c.path("log.0"))
        require(have == block(1) + block(2) + block(4), "version %d: %d bytes", version, len(have))
        require(read(c.path("log.9")) == block(3), "version %d: log.9", version)
        c.end()


def patch(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def other_hello(c):
    """A client of another version is refused by number and name; one of ours is served on beside it."""
    c.begin()
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(1), 0)
    # also with what a later version may add to it
    for version, want, domain in ((0, 1, "cases"), (ABI + 1, 1, "cases"), (0xffffffff, 1, "cases"),
                                  (ABI + 1, 0xff, "cases"), (ABI + 1, 1, "a name/of later times")):
        with Client(os.path.join(c.product.rundir, "pmemlogd.sock")) as client:
            r = client.ask(HELLO, hello(domain, "future", want, version))
            require(r and r.status == -errno.EPROTO and not r.fds, "version %d: %s", version, r and vars(r))
            require(str(version) in r.text and r.words(1)[0] == ABI, "version %d: %r", version, r.text)
    a.write_synced(fd, block(2), 4096)
    c.accelerated()


if __name__ == "__main__":
    sys.exit(main([pools, without_daemon, libraries, frozen_head, other_control, other_hello]))
