# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon beside living sessions, killed at every system call of what it was asked to do: destage,
heal, registration, a last session's end, reload, a clean stop, and its next start.

A program of two files writes before each kill and goes on after it; a third file comes and goes. Every
acknowledged byte must be readable at once, be in the files after the next daemon's flush and, where the
power failed after the kill, after the recovery.
"""
import os
import random
import signal
import subprocess

from cases import Agent, block, read
from scene import Failed, require, wait_for
from offline import points

WAYS = {"kill": 1, "cut": 0.5, "step": 0.2}
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
    return lambda: r.wait(timeout=60)


def heal(live):
    live.m.fault.set(sync_fail=1)
    return flush(live)


def reload(live):
    os.kill(live.m.orders["pid"], signal.SIGHUP)
    return lambda: live.m.command_begin("flush").wait(timeout=60)


def stop(live):
    os.kill(live.m.orders["pid"], signal.SIGTERM)
    return lambda: live.m.product.process.wait(timeout=30)


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
        agent.process.wait(timeout=60)
        wait_for("the domain's end", lambda: live.m.orders["hit"] or not live.m.control_files())
    return done


def resume(live):
    """The start of a daemon that finds living sessions with records."""
    live.m.end_daemon()
    at, steps = live.at
    live.m.traced_daemon(at, steps, wait=False)
    return live.m.wait_ready_or_dead


OPS = {"destage": flush, "heal": heal, "registration": register, "end": end, "reload": reload,
       "stop": stop, "resume": resume}


def count(live, op):
    """Events of an undisturbed one."""
    live.begin()
    live.writes()
    if op is resume:
        live.at = (1 << 30, 0)
        op(live)()
        return live.m.orders["events"]
    before = live.m.orders["events"]
    op(live)()
    events = live.m.orders["events"] - before
    if op is stop:
        live.m.product.kill()
    return events


def one(live, op, n, way, r):
    """Words for what is wrong."""
    m = live.m
    live.begin()
    m.fault.clear()
    live.writes()
    steps = r.choice((3, 20, 100, 500, 2000)) if way == "step" else 0
    live.at = (n, steps)
    if op is not resume:
        m.orders.after(n, steps)
    done = op(live)
    # Before the power goes nothing of the request may be waited for: its end is a death, too.
    if way == "cut" and op is not resume:
        m.wait_hit(3)  # it may have fewer events than in the undisturbed run
    else:
        done()
    if m.orders["hit"] == 0 and m.product.process:
        m.end_daemon()  # it had fewer events this time
    elif m.product.process:
        m.product.process.wait(timeout=20)
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
        m.product.start()
        status, words = m.product.gate()
        wrong = live.wrong() + (["gate: exit %d: %s" % (status, words)] if status else [])
        m.product.stop()
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
    events = count(live, op)
    total = bad = 0
    for way, part in WAYS.items():
        for n in points(events + 3, share * part, r):
            total += 1
            try:
                wrong = one(live, op, n, way, r)
            except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
                wrong = ["%s" % e]
            if not wrong:
                continue
            bad += 1
            tell("%s %s at event %d of %d (%s): %s" % (name, way, n, events, live.spot,
                                                       "; ".join(wrong)))
            return total, bad  # what comes after it would start from a broken state
    return total, bad
