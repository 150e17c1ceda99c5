#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon stands still, dies, is stopped, is replaced, or its socket is full, under 16 writing threads.

Each write with its sync returns within LIMIT, none with an error; the same processes are accelerated
again afterwards; and whatever way the writes took, each power cut leaves what was acknowledged.

It misses, too, what tests/mutants/space-waits-for-ever and domain-bypass-for-ever break.
"""
import random
import socket
import sys

from cases import (Agent, Stamp, block, main, os, read, require, signal, time, wait_for)

LIMIT = 2.0  # seconds for one write with its sync: reconnect_timeout (0.5 s), and the disk's own time

DOINGS = {
    "stop": lambda c: c.product.process.send_signal(signal.SIGSTOP),
    "go": lambda c: c.product.process.send_signal(signal.SIGCONT),
    "kill": lambda c: c.product.kill(),
    "end": lambda c: c.product.stop(),
    "start": lambda c: c.product.start(),
}


def begin(c, threads=16):
    c.begin(lane_size="1MiB", reconnect_timeout="500ms", destage_age="100ms")
    s = Stamp(c, threads=threads, files=2)
    time.sleep(0.3)
    c.accelerated()
    s.slow_us(reset=True)
    return s


def fast(s, what):
    took = s.slow_us(reset=True) / 1e6
    s.fine()
    require(took <= LIMIT, "%s: a write took %.2f s", what, took)
    return "%s %.2f s" % (what, took)


def returns(c):
    """Stopped, gone on, killed, started, ended, started: no error, no long wait, accelerated again."""
    s = begin(c)
    told = []
    for what, pause in (("stop", 2.5), ("go", 0.5), ("kill", 2.5), ("start", 0.5), ("end", 1.5),
                        ("start", 0.5)):
        DOINGS[what](c)
        time.sleep(pause)
        s.moves()
        told.append(fast(s, what))
        if what in ("go", "start"):
            for name in ("log.0", "log.1"):
                c.in_lane(name)
            before = c.status()["records"]
            s.moves(by=100)
            require(c.status()["records"] > before, "%s: no record after it", what)
    s.stop()
    s.check()
    c.cut()
    c.recover()
    c.check()
    return ", ".join(told)


def cut_after(c, *doings):
    """The power cut at a random moment after each of these."""
    r = random.Random("%d/%s" % (c.seed, doings))
    s = begin(c)
    for i, what in enumerate(doings):
        DOINGS[what](c)
        last = i == len(doings) - 1
        # long enough for a full lane and bypass, or in the middle of getting there
        time.sleep(r.choice((0.05, 0.4, 0.7, 1.3)) * r.uniform(0.8, 1.2) if last else 1.2)
    s.fine()
    c.cut()
    c.recover()
    return "%d acked" % c.check()


def cut_while_stopped(c):
    return cut_after(c, "stop")


def cut_after_going_on(c):
    return cut_after(c, "stop", "go")


def cut_while_dead(c):
    return cut_after(c, "kill")


def cut_after_start(c):
    return cut_after(c, "kill", "start")


def cut_after_end(c):
    return cut_after(c, "end")


def cut_after_all(c):
    return cut_after(c, "kill", "start", "end", "start", "stop", "go")


def full_socket(c):
    """It accepts and nobody answers: programs that start meanwhile, and those that are there."""
    s = begin(c, threads=4)
    DOINGS["stop"](c)
    full = []
    path = os.path.join(c.product.rundir, "pmemlogd.sock")
    for _ in range(600):
        x = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        x.setblocking(False)
        full.append(x)
        try:
            x.connect(path)
            while True:
                x.send(bytes(1000))
        except BlockingIOError:
            if len(full) > 500:
                break
    a = Agent(c)
    a.getpid()
    began = time.monotonic()
    fd = a.open(c.path("log.8"), os.O_RDWR | os.O_CREAT)
    opened = time.monotonic() - began
    for n in range(20):
        a.write_synced(fd, block(n), n * 4096)
    took = time.monotonic() - began
    require(opened < LIMIT and took < 2 * LIMIT, "open took %.2f s, 20 writes %.2f s", opened, took)
    s.moves()
    told = fast(s, "others")
    for x in full:
        x.close()
    DOINGS["go"](c)

    def taken():
        a.write_synced(fd, block(0), 0)
        f = c.status("log.8")
        return f and f["state"] == "lane" and f["records"] > 0
    wait_for("the new program is accelerated after all", taken)
    c.in_lane("log.0")
    c.cut()
    c.recover()
    require(read(c.path("log.8")) == b"".join(block(n) for n in range(20)), "the new program's file")
    c.check()
    return "open %.2f s, %s" % (opened, told)


if __name__ == "__main__":
    sys.exit(main([returns, cut_while_stopped, cut_after_going_on, cut_while_dead, cut_after_start,
                   cut_after_end, cut_after_all, full_socket]))
