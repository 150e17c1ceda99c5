# SPDX-License-Identifier: LGPL-2.1-or-later
"""A file system that runs full, for the program's own write and for the replay."""
import os
import time

from toy import block_of
from cases import DOMAIN, Agent, errno_of, read, require, wait_for
from faults import BLOCK, HEAL_SECONDS, Ballast


def append_until_full(a, fd, most=4000):
    """(blocks that were acknowledged, errno or 0)"""
    for n in range(most):
        e = errno_of(a.write_synced, fd, block_of(n), n * BLOCK)
        if e:
            return n, e
    return most, 0


def full_for_writer(t, fault):
    # what the disk alone does, first
    c = t.begin()
    ballast = Ballast(c.image.path, spare=1 << 20)
    a = Agent(c, shimmed=False)
    fd = a.open(c.path("plain.9"), os.O_RDWR | os.O_CREAT)
    plain = append_until_full(a, fd)
    require(plain[1], "the disk alone did not run full")
    a.close(fd)
    ballast.remove()
    os.unlink(c.path("plain.9"))

    t.writers()
    a = Agent(c)
    fd = a.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
    ballast = Ballast(c.image.path, spare=1 << 20)
    n, e = append_until_full(a, fd)
    require(e == plain[1], "errno %d with pmemlogd, %d without, after %d and %d blocks", e, plain[1], n,
            plain[0])
    require(n > 0, "no block was written")
    # a file in which nothing is to be allocated goes on
    t.stamp.moves(by=200)
    c.must_flush()
    t.stamp.moves(by=200)
    if t.seed % 2:
        ballast.remove()
        more = errno_of(a.write_synced, fd, block_of(n), n * BLOCK)
        require(not more, "room has been made, and a write still fails: %s", os.strerror(more))
        n += 1
        t.notes["healed"] = 0.0
    t.c.cut()
    if os.path.exists(c.path("ballast")):
        os.unlink(c.path("ballast"))
    t.c.recover()
    t.checked()
    have = read(c.path("log.9"))
    want = b"".join(block_of(i) for i in range(n))
    if have[:len(want)] != want:
        t.notes["lost"] += 1
        t.problems.append("log.9: %d bytes, %d acknowledged" % (len(have), len(want)))


def full_for_replay(t, fault):
    """Records whose blocks were never allocated; while the power was off somebody filled the disk."""
    for half in (False, True):
        c = t.begin(destage_age="60s")
        a = Agent(c)
        fd = a.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
        blocks = 1024
        a.many(fd, blocks, BLOCK)
        c.accelerated("log.9")
        c.cut()
        ballast = Ballast(c.image.path, spare=(1 << 20) if half else 0)
        c.product.start()
        status, words = c.product.gate()
        require(status != 0, "gate says yes with a full disk")
        d = c.status()
        want = "quarantined" if half else "held"
        require(d["state"] == want, "%s on a full disk, should be %s: %s", d["state"], want, d["reason"])
        require("log.9" in d["reason"] and "No space" in d["reason"], "reason: %s", d["reason"])
        text = c.product.command("status").stdout
        require("No space" in text and "log.9" in text, "status hides it: %s", text)
        require(c.flush()[0] != 0, "flush says yes while records wait for room")
        ballast.remove()
        begin = time.monotonic()
        if half:
            r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
            require(r.returncode == 0, "recover --apply: exit %d: %s", r.returncode, r.stdout + r.stderr)
        wait_for("recovery by itself", lambda: c.product.status().domain(DOMAIN)["state"] == "ok",
                 HEAL_SECONDS)
        t.notes["healed"] = round(time.monotonic() - begin, 1)
        c.must_flush()
        require(c.product.gate()[0] == 0, "gate says no after recovery")
        if read(c.path("log.9")) != b"".join(block_of(i) for i in range(blocks)):
            t.notes["lost"] += 1
            t.problems.append("log.9 is not what was written")
        t.notes["commits"] += blocks
        t.end()
