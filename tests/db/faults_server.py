# SPDX-License-Identifier: LGPL-2.1-or-later
"""Disk faults under a loaded database. The same without pmemlogd goes first: with it, it may not be worse."""
import os
import subprocess
import time
from dataclasses import replace

import load
import powercut
import sandbox
from faultdisk import INSIDE, FaultDisk
from faults import FAULTS, Ballast, Watch
from product import default_builddir
from sandbox import need

RECOVER_SECONDS = 20.0
# Small rows. The redo of all who wait is one call: above bypass_size that is RULE F, and a lane that runs full while
# nothing can be destaged is bypass. A failing disk fails their syncs as it fails the server's own.
SIZES = load.Plan.SIZES[:2]


class Life:
    """One loaded server on one disk, from its start to the power cut and the check."""

    number = 0

    def __init__(self, engine, box, fs, seed, mode, template=None, lane="128MiB", args=()):
        Life.number += 1
        self.engine = engine
        self.box = box
        self.disk = FaultDisk(box, default_builddir(), fs, name="disk%d" % Life.number, size=768 << 20)
        self.c = powercut.Campaign(box, default_builddir(), fs, seed, mode=mode, image=self.disk,
                                   template=template, sizes=SIZES, engine=engine)
        self.c.LANES = (lane,)
        self.c.extra = list(args)
        self.c.start_over(0)
        self.c.since = engine.mark(self.c.datadir)
        self.clients = self.c.start_clients(Life.number)
        if self.c.product:
            self.c.check_accelerated()
        time.sleep(0.5)
        self.disk.watch(self.logs)

    def is_log(self, path):
        return any(p.search(path) for p in self.engine.LOGS)

    def logs(self):
        return [p for folder, _, names in os.walk(self.c.datadir)
                for p in (os.path.join(folder, n) for n in names) if self.is_log(p)]

    def acks(self):
        return sum(len(load.acks(path)) for path, _ in self.clients.values())

    def alive(self):
        return self.c.server.alive() and all(p.poll() is None for _, p in self.clients.values())

    def longest_s(self, since_ns):
        """Longest commit that ended after that, or has not ended."""
        now, longest = time.monotonic_ns(), 0
        for path, _ in self.clients.values():
            last = since_ns
            for _, start, end in load.acks(path):
                if end > since_ns:
                    longest = max(longest, end - start)
                    last = end
            longest = max(longest, now - last)
        return longest / 1e9

    def cut(self):
        self.c.power_cut(self.clients)
        self.rec = {"acked": 0, "lost": 0, "quarantined": 0, "unstarted": 0, "problems": []}
        self.acked = dict(self.c.ledger.have)
        self.sent = self.c.read_acks(self.rec, self.clients, self.acked)

    def check(self):
        """Power is back, recovery, every acknowledged row: (commits, lost, problems)."""
        self.c.restart(self.rec, "plain", None, self.acked, self.sent)
        self.end()
        r = self.rec
        return r["acked"], r["lost"] + r["quarantined"] + r["unstarted"], r["problems"]

    def end(self):
        self.c.abandon()
        self.disk.close()


class Run:
    def __init__(self, engine, box, fs, seed, name):
        self.engine, self.box, self.fs, self.seed, self.name = engine, box, fs, seed, name
        self.fault = FAULTS[name]
        self.notes = {"commits": 0, "lost": 0, "status": "ok", "flush": "ok"}
        self.problems = []
        self.template = engine.prepare(box, "template", engine.TABLES)

    def life(self, mode="pmemlogd", lane="128MiB", args=()):
        self.now = Life(self.engine, self.box, self.fs, self.seed, mode, template=self.template, lane=lane, args=args)
        return self.now

    def begin_fault(self, life):
        life.disk.order(**self.fault.orders)

    def plain(self):
        """The server without pmemlogd: does it live on, and how long does a commit take?"""
        life = self.life("disk")
        self.begin_fault(life)
        since = time.monotonic_ns()
        time.sleep(max(self.fault.seconds, 2))
        alive, longest = life.alive(), life.longest_s(since)
        words = life.c.server.complaint()
        life.disk.good()
        for _, child in life.clients.values():
            child.kill()
        life.end()
        self.notes["disk_alone"] = ("lives, longest commit %.2f s" % longest if alive
                                    else "ends: %s" % (words or "no word"))[:70]
        return alive, longest

    def take(self, watch):
        for words in watch.wrong:
            self.notes["flush" if words.startswith("flush") else "status"] = "WRONG"
            self.problems.append(words)

    def watch(self, life):
        return Watch(life.c.product, self.engine.NAME, life.is_log, self.fault.reason)

    def checked(self, life):
        commits, lost, problems = life.check()
        self.notes["commits"] += commits
        self.notes["lost"] += lost
        self.problems += problems

    def require(self, good, text, *args):
        if not good:
            self.problems.append(text % args if args else text)

    # ---- the faults

    def logs_fail(self):
        """Writes of the logs alone: the server must live on, and the fault heal."""
        self.plain()
        life = self.life()
        before = life.acks()
        self.begin_fault(life)
        w = self.watch(life)
        if self.fault.seconds:
            w.during(self.fault.seconds)
        else:
            time.sleep(1)
        self.require(life.alive(), "the server or a client ended: %s; the lane was full %d times",
                     life.c.server.complaint(), life.c.product.status().domain(self.engine.NAME)["full_waits"])
        self.require(life.acks() > before, "no commit while the disk fails")
        if self.name != "eio-forever":
            life.disk.good()
            self.notes["healed"] = w.healed()
            before = life.acks()
            time.sleep(1)
            self.require(life.acks() > before, "no commit after the disk has healed")
        self.take(w)
        self.require(life.disk["failed"], "the disk has not failed: nothing was tested")
        life.cut()
        self.checked(life)

    def all_fails(self):
        """The file system is no more. Nobody can commit; what was acknowledged is there afterwards. No new
        binlog: where it cannot make one MariaDB turns the binlog off and goes on without ("Turning logging
        off"), and then it lacks rows of the table, with pmemlogd or without."""
        self.plain()
        life = self.life(args=self.engine.STILL)
        self.begin_fault(life)
        w = self.watch(life)
        w.during(self.fault.seconds)
        self.take(w)
        life.cut()
        self.checked(life)

    def full(self):
        """The file system is full for the server, then there is room again. A client ends where the table
        cannot grow, with pmemlogd or without; which file meets the end of the room first is chance."""
        plain = self.life("disk")
        ballast = Ballast(plain.c.image.path)
        time.sleep(3)
        alive, words = plain.c.server.alive(), plain.c.server.complaint()
        ballast.remove()
        for _, child in plain.clients.values():
            child.kill()
        plain.end()
        self.notes["disk_alone"] = ("lives: " if alive else "ends: ") + (words or "no word")[:60]
        life = self.life()
        ballast = Ballast(life.c.image.path)
        time.sleep(3)
        words = life.c.server.complaint()
        self.require(life.c.server.alive() or not alive, "the server ended, without pmemlogd it lives: %s",
                     words)
        self.require(not words or "d/t.ibd" in words or "'t' is full" in words, "the server logged: %s", words)
        self.require(life.alive() or words, "a client ended, and no table was full")
        r = life.c.product.command("flush")
        self.require(r.returncode == 0, "flush: nothing has to be allocated: %s", r.stdout + r.stderr)
        ballast.remove()
        life.cut()
        self.checked(life)

    def full_at_replay(self):
        """Somebody has filled the disk while the power was off."""
        life = self.life()
        life.cut()
        p = life.c.product
        life.c.image.umount()
        life.c.image.mount()
        ballast = Ballast(life.c.image.path)
        p.start()
        status, words = p.gate()
        if status:
            self.require("No space" in words and any(life.is_log(w.rstrip(":")) for w in words.split()),
                         "gate: %s", words)
            ballast.remove()
            state = p.status().domain(self.engine.NAME)["state"]
            if state == "quarantined":
                p.command("recover", "--apply", "--yes=" + self.engine.NAME, self.engine.NAME)
            begin = time.monotonic()
            while p.gate()[0] and time.monotonic() < begin + RECOVER_SECONDS:
                time.sleep(0.1)
            self.notes["healed"] = round(time.monotonic() - begin, 1)
            self.notes["was"] = state
        else:
            self.notes["was"] = "nothing to allocate"
            ballast.remove()
        p.kill()
        self.checked(life)

    def slow(self):
        """The logs' blocks are slow. Not all of the disk: the file system's journal would have the writes
        of everybody wait, and no lane would run full."""
        self.fault = replace(self.fault, orders=dict(self.fault.orders, where=INSIDE))
        _, plain = self.plain()
        for lane in ("128MiB", "1MiB"):
            life = self.life(lane=lane)
            before = life.acks()
            self.begin_fault(life)
            since = time.monotonic_ns()
            time.sleep(self.fault.seconds)
            longest, commits = life.longest_s(since), life.acks() - before
            full = life.c.product.status().domain(self.engine.NAME)["full_waits"]
            self.require(life.alive(), "the server ended: %s", life.c.server.complaint())
            self.require(longest < 3 * plain + 3, "lane of %s: a commit waited %.2f s, the disk alone %.2f s",
                         lane, longest, plain)
            if lane == "128MiB":
                self.require(not full, "the lane ran full, which is the other half")
            self.notes["lane_" + lane] = "%.0f commits/s, longest %.2f s, %d waits for room" % (
                commits / self.fault.seconds, longest, full)
            life.cut()
            self.checked(life)


RUNS = {
    "eio-once": Run.logs_fail,
    "eio-n": Run.logs_fail,
    "eio-forever": Run.logs_fail,
    "eio-heal": Run.logs_fail,
    "enospc-write": Run.full,
    "enospc-destage": Run.logs_fail,
    "enospc-replay": Run.full_at_replay,
    "readonly": Run.all_fails,
    "gone": Run.all_fails,
    "slow1000": Run.slow,
}


# A file system that is full, and one that is slow, look at what MariaDB says and how it goes on.
OTHERS = [name for name, run in RUNS.items() if run in (Run.logs_fail, Run.all_fails)]


def faults(engine):
    """Those that this engine is put through."""
    return list(RUNS) if engine == "mariadb" else OTHERS


def run_fault(box, fs, seed, name, engine):
    """(notes, problems)"""
    engine = sandbox.engine(engine)
    need(engine.PROGRAMS, engine.PACKAGES)
    r = Run(engine, box, fs, seed, name)
    try:
        RUNS[name](r)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as e:
        r.problems.append(repr(e))
    if r.problems:
        box.tails()
    return r.notes, r.problems
