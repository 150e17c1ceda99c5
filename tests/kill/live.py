# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon beside living sessions, killed at every system call of what it was asked to do: destage,
heal, registration, a last session's end, reload, a clean stop, and its next start.

A program of two files writes before each kill and goes on after it; a third file comes and goes. Every
acknowledged byte must be readable at once, be in the files after the next daemon's flush and, where the
power failed after the kill, after the recovery. The ways are those of offline.py.
"""
import os
import random
import signal
import subprocess

from cases import Agent, block, read
from sandbox import wait_end
from scene import PATIENCE, Failed, wait_for
from orders import NEVER, Spot
from points import Counted

WAYS = {"kill": 1, "cut": 0.5, "step": 0.3}
FILES = ("log.0", "log.1")


class Live:
    """The machine with its one program, and what its files must hold."""

    def __init__(self, m):
        self.m = m
        self.want = {}
        self.n = 0
        self.third = 0
        self.agent = None

    def begin(self):
        m = self.m
        if not m.product.process:
            m.traced_daemon()
        if self.agent is None:
            self.agent = Agent(m)
            self.fds = {name: self.agent.open(m.path(name), os.O_RDWR | os.O_CREAT) for name in FILES}
            for name in FILES:
                self.want.setdefault(name, bytearray())

    def write(self, name, size=512):
        """One acknowledged write, over and behind what is there."""
        self.n += 1
        at = self.n * 700 % 16384
        data = block(self.n, size)
        want = self.want[name]
        self.agent.write_synced(self.fds[name], data, at)
        if len(want) < at:
            want.extend(bytes(at - len(want)))
        want[at:at + size] = data

    def writes(self):
        for name in FILES:
            self.write(name)
            self.write(name, 4096)

    def wrong(self):
        for name, data in self.want.items():
            found = read(self.m.path(name))
            if found != data:
                at = next((i for i, (a, b) in enumerate(zip(found, data)) if a != b), -1)
                return ["%s: %d bytes, %d expected; they differ at %d" % (name, len(found), len(data),
                                                                          at)]
        return []

    def end_agent(self):
        if self.agent:
            self.m.agents.remove(self.agent)
            self.agent.end()
            self.agent = None

    def drop_agent(self):
        self.agent = None  # the power cut has killed it


# What the daemon is asked for: each returns a function that waits for the end of it.

def flush(live):
    r = live.m.command_begin("flush")
    return lambda: wait_end(r, PATIENCE)


def heal(live):
    live.m.fault.set(sync_fail=1)
    return flush(live)


def reload(live):
    live.m.signal_daemon(signal.SIGHUP)
    return lambda: wait_end(live.m.command_begin("flush"), PATIENCE)


def stop(live):
    live.m.signal_daemon(signal.SIGTERM)
    return lambda: wait_end(live.m.product.process, PATIENCE)


def register(live):
    """A new file, opened for the first time; the call must come back whatever happens."""
    live.third += 1
    name = "log.%d" % (1000 + live.third)
    live.agent.send("open", live.m.path(name), os.O_RDWR | os.O_CREAT)

    def done():
        fd = live.agent.answer()
        live.fds[name] = fd
        live.want[name] = bytearray()
        live.write(name)
        for old in [n for n in live.want if n not in FILES and n != name]:
            live.agent.close(live.fds.pop(old))
            live.agent.unlink(live.m.path(old))
            del live.want[old]
    return done


def end(live):
    agent, live.agent = live.agent, None
    live.m.agents.remove(agent)
    agent.process.stdin.close()

    def done():
        wait_end(agent.process, PATIENCE)
        wait_for("the domain's end", lambda: live.m.orders["hit"] or not live.m.control_files(), PATIENCE)
    return done


def resume(live):
    """The start of a daemon that finds living sessions with records."""
    live.m.end_daemon()
    live.m.traced_daemon(live.at, wait=False)
    return live.m.wait_ready_or_dead


OPS = {"destage": flush, "heal": heal, "registration": register, "end": end, "reload": reload,
       "stop": stop, "resume": resume}


def count(live, op):
    """An undisturbed one. All events: to look at each of them would take longer than sessions wait."""
    m = live.m
    live.begin()
    live.writes()
    if op is resume:
        live.at = Spot(NEVER)
        op(live)()
        return Counted(m.orders, looked=False)
    m.orders.count()
    op(live)()
    counted = Counted(m.orders, looked=False)
    if op is stop:
        m.product.kill()
    return counted


def one(live, op, spot, way):
    """Words for what is wrong."""
    m = live.m
    live.begin()
    m.fault.clear()
    live.writes()
    live.at = spot
    if op is not resume:
        m.orders.at_spot(spot)
    done = op(live)
    # Before the power goes nothing of the request may be waited for: its end is a death, too.
    if way == "cut" and op is not resume:
        m.wait_hit(3)  # it may have fewer events than in the undisturbed run
    else:
        done()
    live.missed += m.orders["hit"] == 0
    if m.orders["hit"] == 0 and m.product.process:
        m.end_daemon()  # it had no such event this time
    elif m.product.process:
        wait_end(m.product.process, PATIENCE)
        m.product.kill()
    live.spot = m.orders.where()
    m.fault.clear()
    if way == "cut":
        m.cut()
        live.drop_agent()
        m.reboot()
        if op is register:  # nobody has heard of it
            for name in [x for x in live.want if x not in FILES]:
                del live.want[name]
        m.product.start(PATIENCE)
        status, words = m.product.gate()
        wrong = live.wrong() + (["gate: exit %d: %s" % (status, words)] if status else [])
        m.product.stop(PATIENCE)
        return wrong + m.left_over()
    return live.wrong() + again(live, op)


def again(live, op):
    """The next daemon, and everything goes on."""
    m = live.m
    m.traced_daemon()
    wrong = []
    if live.agent is None:
        status, words = m.product.gate()
        wrong += ["gate: exit %d: %s" % (status, words)] if status else []
        wrong += m.left_over()
    else:
        live.writes()
    status, words = m.flush()
    if status:
        wrong.append("flush: exit %d: %s" % (status, words))
    d = m.status()
    if d and d["state"] != "ok":
        wrong.append("status: %s: %s" % (d["state"], d.get("reason")))
    return wrong + live.wrong()


def part_run(m, name, share, tell):
    op = OPS[name]
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(start=False, reconnect_timeout="200ms")
    live = Live(m)
    live.spot = ""
    live.missed = 0
    counted = count(live, op)
    print("        %s: %s" % (name, counted), flush=True)
    total = bad = 0
    for way, part in WAYS.items():
        for spot in counted.spots(way, share * part, r):
            total += 1
            try:
                wrong = one(live, op, spot, way)
            except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
                wrong = ["%s" % e]
            if not wrong:
                continue
            bad += 1
            tell("%s %s at %s (%s): %s" % (name, way, spot, live.spot, "; ".join(wrong)))
            return total, bad  # what comes after it would start from a broken state
    if live.missed:
        print("        %s: %d points had no such event" % (name, live.missed), flush=True)
    return total - live.missed, bad
