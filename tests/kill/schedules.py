# SPDX-License-Identifier: LGPL-2.1-or-later
"""Random schedules: clients and the daemon are killed, stopped, restarted, asked to flush, while others
write, rotate, truncate and unlink; the power cut comes at the end, recovery is killed on its way, and all
files are compared with what the programs had acknowledged.

The same seed and number give the same decisions (not the same instants).
"""
import os
import random
import signal
import subprocess
import time

from cases import Agent, block, read
from sandbox import wait_end
from clients import STEPS, Crowd
from scene import Failed, require

PARTS = 4  # parts, to share the processors


class Names:
    """A program that rotates, truncates and unlinks; each call returned before the next thing happens."""

    def __init__(self, m, r):
        self.m, self.r = m, r
        self.agent = Agent(m)
        self.want = {}  # name: bytes
        self.fds = {}
        self.n = 0
        self.folder = self.agent.open(m.image.path, os.O_RDONLY | os.O_DIRECTORY)
        for name in ("log.20", "log.21"):
            self.create(name)

    def create(self, name):
        self.fds[name] = self.agent.open(self.m.path(name), os.O_RDWR | os.O_CREAT)
        self.want[name] = bytearray()
        self.agent.fsync(self.folder)
        self.write(name)

    def write(self, name=None):
        name = name or self.r.choice(sorted(self.fds))
        self.n += 1
        size = self.r.choice((64, 512, 4096, 4096, 16384))
        at = self.r.randint(0, 40000) // 64 * 64
        data = block(self.n, size)
        self.agent.write_synced(self.fds[name], data, at)
        want = self.want[name]
        want.extend(bytes(max(0, at - len(want))))
        want[at:at + size] = data

    def truncate(self):
        name = self.r.choice(sorted(self.fds))
        size = self.r.randint(0, 50000)
        self.agent.ftruncate(self.fds[name], size)
        self.agent.fsync(self.fds[name])
        want = self.want[name]
        del want[size:]
        want.extend(bytes(size - len(want)))

    def rotate(self):
        name = self.r.choice(sorted(self.fds))
        self.agent.rename(self.m.path(name), self.m.path(name + ".old"))
        self.agent.close(self.fds[name])
        self.want[name + ".old"] = self.want.pop(name)
        self.create(name)

    def unlink(self):
        old = sorted(n for n in self.want if n.endswith(".old"))
        name = self.r.choice(old) if old else self.r.choice(sorted(self.fds))
        self.agent.unlink(self.m.path(name))
        self.agent.fsync(self.folder)
        del self.want[name]
        if name in self.fds:
            self.write_unlinked(name)

    def write_unlinked(self, name):
        """Bytes that nobody wants any more, then the name anew."""
        fd = self.fds.pop(name)
        self.agent.write_synced(fd, block(1), 0)
        self.create(name)
        self.agent.close(fd)

    def wrong(self):
        for name, data in self.want.items():
            if not os.path.exists(self.m.path(name)):
                return "%s is gone" % name
            found = read(self.m.path(name))
            if found != data:
                at = next((i for i, (a, b) in enumerate(zip(found, data)) if a != b), -1)
                return "%s: %d bytes, %d expected; they differ at %d" % (name, len(found), len(data), at)
        return None


class Schedule:
    def __init__(self, m, c, seed, number):
        self.m, self.c = m, c
        self.r = random.Random("%d/%d" % (seed, number))
        self.told = []

    # ---- what may happen

    def daemon_traced(self):
        if not self.m.product.process:
            self.m.traced_daemon()
        elif self.m.traced_pid():
            self.m.orders.after(self.r.randint(1, 200), self.r.choice(STEPS))
            if self.m.wait_hit(1):
                wait_end(self.m.product.process, 20)
                self.m.product.kill()
            self.m.orders.set(at=0)
        else:
            self.m.product.kill()

    def daemon_start(self):
        if not self.m.product.process:
            if self.r.random() < 0.3:
                self.start_killed()
            self.m.traced_daemon()

    def start_killed(self):
        self.m.traced_daemon(self.r.randint(1, 1500), self.r.choice(STEPS), wait=False)
        if self.m.wait_ready_or_dead():
            self.m.end_daemon()

    def daemon_end(self):
        if self.m.product.process:
            self.daemon_goes_on()
            self.m.product.stop()

    def daemon_stands(self):
        if self.m.traced_pid():
            self.m.signal_daemon(signal.SIGSTOP)
            time.sleep(self.r.choice((0.01, 0.1, 0.4)))
            if self.r.random() < 0.7:
                self.m.signal_daemon(signal.SIGCONT)

    def daemon_goes_on(self):
        self.m.signal_daemon(signal.SIGCONT)

    def victim(self):
        self.c.start_victim()
        self.c.orders.after(self.r.randint(1, 60), self.r.choice(STEPS))
        self.c.wait_death()

    def victim_starting(self):
        self.c.start_victim(self.r.randint(200, 700), self.r.choice(STEPS))
        if self.c.victim.process.poll() is None:
            self.c.orders.after(1)
        self.c.wait_death()

    def burst(self):
        for s in self.c.others:
            s.pause(0)
        time.sleep(self.r.choice((0.01, 0.05, 0.3)))
        for s in self.c.others:
            s.pause(500)

    def flush(self):
        if self.m.traced_pid():
            self.m.command_begin("flush")

    def files(self):
        for _ in range(self.r.randint(1, 4)):
            what = self.r.choice(("write", "write", "write", "truncate", "rotate", "unlink"))
            self.told.append(what)
            getattr(self.names, what)()

    ACTS = {"files": 6, "victim": 3, "victim_starting": 2, "burst": 2, "flush": 2, "daemon_traced": 2,
            "daemon_start": 3, "daemon_end": 1, "daemon_stands": 1, "daemon_goes_on": 1}

    # ---- the whole

    def run(self):
        m, r = self.m, self.r
        m.traced_daemon()
        self.c.begin()
        self.names = Names(m, r)
        for _ in range(r.randint(3, 9)):
            act = r.choices(list(self.ACTS), list(self.ACTS.values()))[0]
            self.told.append(act)
            getattr(self, act)()
            for s in m.stamps:
                if s is not self.c.victim:
                    s.fine()
        wrong = self.names.wrong()
        require(not wrong, "while it runs: %s", wrong)
        self.c.check()
        m.cut()
        m.reboot()
        self.recover()
        for s in m.stamps:
            s.dead()
        acked = m.check()
        wrong = self.names.wrong()
        require(not wrong, "after recovery: %s", wrong)
        require(not m.left_over(), "left over: %s", m.left_over())
        return acked

    def recover(self):
        m, r = self.m, self.r
        for _ in range(r.choice((0, 1, 1, 2))):
            self.told.append("recovery_killed")
            if r.random() < 0.5:
                m.ctl(*m.gate_words(), at=r.randint(1, 1200), steps=r.choice(STEPS))
            else:
                self.start_killed()
            if r.random() < 0.4:
                m.lights_out()
        if r.random() < 0.5:
            m.product.start()
            status, words = m.product.gate()
            m.product.stop()
        else:
            status, words = m.ctl(*m.gate_words())
        require(status == 0, "gate: exit %d: %s", status, words)

    def clear(self):
        m = self.m
        m.end_daemon()
        for s in m.stamps:
            s.map.close()
            os.unlink(s.shared)
        m.stamps = []
        m.image.make()
        m.product.create()
        self.c.victim = None


def part_run(m, part, o, tell):
    m.begin(start=False, reconnect_timeout="200ms", destage_age="50ms", bypass_size="64KiB")
    c = Crowd(m, "mixed")
    done = 0
    for number in range(o.first, o.first + o.schedules):
        if number % PARTS != part and o.schedules > 1:
            continue
        s = Schedule(m, c, o.seed, number)
        done += 1
        try:
            s.run()
        except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
            tell("schedule %d of seed %d: %s\n        %s\n        alone: tests/kill/run --fs %s --seed %d "
                 "--first %d --schedules 1 schedules-%d" % (
                     number, o.seed, e, " ".join(s.told), m.fs, o.seed, number, part))
            return done, 1
        s.clear()
    return done, 0

