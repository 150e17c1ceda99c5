# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the cases share: the real daemon with faults, real file systems that lose power, plain writers.

A case is a function that takes a Case and raises Failed. The command line of every program here:
PROGRAM [--fs ext4|xfs] [--seed N] [CASE...]; the last line says `N cases, N failed`.
"""
import argparse
import errno
import mmap
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import machine  # noqa: E402
from fsimage import Image  # noqa: E402
from product import Pmemlogd, default_builddir, find  # noqa: E402
from sandbox import Sandbox, need, run, wait_end  # noqa: E402

DOMAIN = "cases"
RULES = """[cases]
program = stamp, python3*
path = */log.*
"""


class Failed(Exception):
    pass


def require(good, text, *args):
    if not good:
        raise Failed(text % args if args else text)


class Fault:
    """tests/cases/fault.c from outside."""

    ORDERS = {"sync_fail": 0, "write_fail": 4, "sync_fail_every": 8, "sync_sleep_ms": 12,
              "write_sleep_us": 16, "write_odd": 20, "kill_at": 24, "stop_at": 28, "seed": 32,
              "steps": 36, "syncs": 40, "writes": 44, "failed": 48, "odd": 52}

    def __init__(self, path, below, seed):
        with open(path, "wb") as f:
            f.truncate(4096)
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        self.path = path
        self.below = below
        self.set(seed=seed)
        self.on()

    def on(self, only=""):
        self.map[64:320] = self.below.encode().ljust(256, b"\0")
        self.map[320:384] = only.encode().ljust(64, b"\0")

    def set(self, **orders):
        for name, value in orders.items():
            struct.pack_into("=I", self.map, self.ORDERS[name], value)

    def __getitem__(self, name):
        return struct.unpack_from("=I", self.map, self.ORDERS[name])[0]

    def clear(self):
        self.set(**{n: 0 for n in list(self.ORDERS)[:8]})
        self.on()


class Agent:
    """tests/cases/agent.py: call("pwrite", fd, data, offset) and so on; raises OSError."""

    def __init__(self, case, shimmed=True):
        env = case.environment() if shimmed else dict(os.environ)
        self.process = subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "agent.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        case.box.children.append(self.process)
        case.agents.append(self)

    def send(self, name, *args):
        pickle.dump((name, args), self.process.stdin)
        self.process.stdin.flush()

    def answer(self):
        try:
            kind, value = pickle.load(self.process.stdout)
        except EOFError:
            raise Failed("the program died: exit %s" % self.process.wait())
        if kind == "error":
            raise OSError(value, os.strerror(value))
        return value

    def call(self, name, *args):
        self.send(name, *args)
        return self.answer()

    def __getattr__(self, name):
        return lambda *args: self.call(name, *args)

    def write_synced(self, fd, data, offset):
        n = self.call("pwrite", fd, data, offset)
        require(n == len(data), "short write: %d of %d", n, len(data))
        self.call("fdatasync", fd)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


class Stamp:
    """tests/cases/stamp.c, running."""

    number = 0

    def __init__(self, case, first=0, threads=4, files=2, plan="mixed", sync="fdatasync", count=0,
                 folder="", shimmed=True, env=None, pause_us=0, again=None, wrap=()):
        """again: a killed one, whose work goes on. wrap: a program that runs it, with arguments."""
        Stamp.number += 1
        self.case = case
        self.dir = os.path.join(case.image.path, folder)
        os.makedirs(self.dir, exist_ok=True)
        self.first, self.threads = first, threads
        self.shared = os.path.join(case.product.memory, "stamp.%d" % Stamp.number)
        if again:
            self.shared = again.shared
            case.stamps.remove(again)
            again.map.close()
        with open(self.shared, "ab") as f:
            f.truncate(8192)
        with open(self.shared, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096 if 128 + 64 * 16 <= 4096 else 8192)
        struct.pack_into("=III", self.map, 36, 0, 0, 0)  # stop, error, ready
        self.dead(False)
        self.program = find(default_builddir(), "stamp")
        env = dict(case.environment() if shimmed else os.environ, **(env or {}))
        if wrap:
            env["KILLAT_PRELOAD"] = env.pop("LD_PRELOAD")
        self.process = case.box.spawn(
            [*wrap, self.program, "run", self.dir, self.shared, str(case.seed), str(first),
             str(threads), str(files), plan, sync, str(count), str(pause_us)], log="stamp.log", env=env)
        case.stamps.append(self)
        wait_for("stamp opens its files",
                 lambda: self._u32(44) or self._u32(40) or self.process.poll() is not None)
        self.fine()

    def _u32(self, at):
        return struct.unpack_from("=I", self.map, at)[0]

    def acked(self):
        return sum(struct.unpack_from("=QQ", self.map, 128 + 16 * (self.first + t))[1]
                   for t in range(self.threads))

    def pause(self, us):
        struct.pack_into("=I", self.map, 1680, us)

    def dead(self, dead=True):
        """Nobody writes any more: the last write must be whole in each page."""
        struct.pack_into("=I", self.map, 1688, dead)

    def issued(self, t):
        return struct.unpack_from("=Q", self.map, 128 + 16 * t)[0]

    def acked_by(self, t):
        return struct.unpack_from("=Q", self.map, 136 + 16 * t)[0]

    def signals(self):
        return struct.unpack_from("=Q", self.map, 1672)[0]

    def slow_us(self, reset=False):
        n = struct.unpack_from("=Q", self.map, 48)[0]
        if reset:
            struct.pack_into("=Q", self.map, 48, 0)
        return n

    def fine(self):
        """No call of the program has failed."""
        require(not self.error(), "an error reached the program: %s", self.error())
        require(self.process.poll() in (None, 0), "stamp: exit %s", self.process.returncode)

    def error(self):
        """The first error that a call of the program gave; "" for none."""
        return bytes(self.map[56:128]).split(b"\0")[0].decode() if self._u32(40) else ""

    def forgive(self):
        """The same, and check() does not count it."""
        words = self.error()
        struct.pack_into("=I", self.map, 40, 0)
        return words

    def moves(self, seconds=10, by=1):
        """Waits until writes get on."""
        goal = self.acked() + by
        wait_for("writes get on", lambda: self.fine() or self.acked() >= goal, seconds)

    def stopping(self):
        struct.pack_into("=I", self.map, 36, 1)

    def note_floor(self):
        """What is acknowledged now must be there after the power cut that comes next."""
        for t in range(64):
            struct.pack_into("=Q", self.map, 1160 + 8 * t, self.acked_by(t))
        struct.pack_into("=Q", self.map, 1152, 1)

    def stop(self):
        self.stopping()
        wait_end(self.process, 30)
        self.fine()

    def done(self, seconds=60):
        wait_end(self.process, seconds)
        self.fine()

    def check(self):
        r = subprocess.run([self.program, "check", self.dir, self.shared], capture_output=True,
                           text=True)
        require(r.returncode == 0, "%s", (r.stdout + r.stderr).strip())
        return self.acked()


def wait_for(what, condition, seconds=15):
    end = time.monotonic() + seconds
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed("not within %g s: %s" % (seconds, what))
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


class Case:
    """One file system, one pool, one daemon. `settings`: of the daemon's configuration."""

    def __init__(self, box, fs, seed, name):
        self.box, self.fs, self.seed, self.name = box, fs, seed, name
        self.agents, self.stamps = [], []
        self.image = None
        self.product = None
        self.fault = None
        self.folders = 0

    def begin(self, image=None, start=True, memory="256m", **settings):
        """A fresh file system and pool; the daemon runs, with the fault library in it."""
        self.image = image or Image(self.box, self.fs, name=self.name, size=512 << 20)
        self.image.make()
        settings.setdefault("lane_size", "4MiB")
        lane = settings.pop("lane_size")
        self.product = Pmemlogd(self.box, default_builddir(), DOMAIN, lane_size=lane, user="root",
                                settings=settings, memory=memory)
        with open(os.path.join(self.product.rules, "cases.ini"), "w", encoding="ascii") as f:
            f.write(RULES)
        self.fault = Fault(os.path.join(self.product.memory, "fault"), self.image.path, self.seed)
        self.product.preload = find(default_builddir(), "libpmemlogd-fault.so")
        self.product.preload_env = {"FAULT_FILE": self.fault.path}
        self.product.create()
        if start:
            self.product.start()
        return self

    def environment(self):
        return dict(os.environ, **self.product.env())

    def path(self, name):
        return os.path.join(self.image.path, name)

    def status(self, name=None):
        """The domain, or one file of it by the end of the name that it had when it was registered
        (the newest, of several)."""
        d = self.product.status().domain(DOMAIN)
        if name is None or d is None:
            return d
        return max((f for f in d["files"] if f["path"].endswith(name)), key=lambda f: f["id"],
                   default=None)

    def accelerated(self, name="log.0"):
        """The file must be in the lane, or the case shows nothing."""
        f = self.status(name)
        require(f and f["state"] == "lane" and f["records"] > 0, "not accelerated: %s: %s", name, f)

    def in_lane(self, name="log.0", seconds=20):
        def back():
            f = self.status(name)
            return f and f["state"] == "lane"
        wait_for("%s is accelerated again" % name, back, seconds)

    def flush(self):
        """Exit status and text."""
        r = self.product.command("flush")
        return r.returncode, (r.stdout + r.stderr).strip()

    def must_flush(self):
        status, text = self.flush()
        require(status == 0, "flush: exit %d: %s", status, text)

    def live(self):
        return self.product.live_bytes()

    def end_daemon(self):
        """SIGKILL, whether it runs or stands."""
        if self.product.process:
            self.product.process.send_signal(signal.SIGCONT)
        self.product.kill()

    def cut(self, daemon=True):
        """Power goes: file system first, then all processes."""
        for s in self.stamps:
            s.stopping()
            s.note_floor()
        self.image.cut()
        for s in self.stamps:
            if s.process.poll() is None:
                s.process.kill()
        for a in self.agents:
            a.process.kill()
        self.end_daemon()
        for p in [s.process for s in self.stamps] + [a.process for a in self.agents]:
            p.wait()
        self.agents = []
        self.image.umount()
        self.image.mount()

    def reboot(self):
        """What the memory of a machine loses: the run folder; and the kernel has another boot id."""
        shutil.rmtree(self.product.rundir)
        os.mkdir(self.product.rundir, 0o755)
        machine.new_boot(self.box, self.product.memory)

    def recover(self, expect=0):
        """Daemon and gate; returns the gate's words. expect: its exit status."""
        self.fault.clear()
        if not self.product.process:
            self.product.start()
        status, words = self.product.gate()
        require(status == expect, "gate: exit %d, expected %d: %s", status, expect, words)
        return words

    def check(self):
        return sum(s.check() for s in self.stamps)

    def end(self):
        for s in self.stamps:
            s.stopping()
        for p in [s.process for s in self.stamps] + [a.process for a in self.agents]:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.kill()
            p.wait()
        if self.product and self.product.process:
            self.product.process.send_signal(signal.SIGCONT)
            self.product.kill()
        if self.image and self.image.fd >= 0:
            self.image.umount()
        for shared in self.stamps + [self.fault]:  # mapped, they keep their tmpfs busy
            if shared:
                shared.map.close()
        for m in list(self.box.mounts):
            if subprocess.run(["umount", m], stderr=subprocess.DEVNULL).returncode:
                subprocess.run(["umount", "-l", m], stderr=subprocess.DEVNULL)
            self.box.mounts.remove(m)
        self.fault = None
        if self.image and os.path.exists(self.image.file):
            os.unlink(self.image.file)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def block(n, size=4096):
    return (b"%015d\n" % n) * (size // 16)


def errno_of(function, *args):
    """0, or the errno that the call failed with."""
    try:
        function(*args)
    except OSError as e:
        return e.errno
    return 0


def main(cases):
    """cases: list of functions named after what they show."""
    p = argparse.ArgumentParser()
    p.add_argument("--fs", choices=["ext4", "xfs"], default="ext4")
    p.add_argument("--seed", type=int, default=int(os.environ.get("CASES_SEED", "1")))
    p.add_argument("--keep", action="store_true")
    p.add_argument("case", nargs="*", help=", ".join(f.__name__ for f in cases))
    o = p.parse_args()
    need(["mkfs." + o.fs, "losetup", "fallocate"], "e2fsprogs xfsprogs util-linux")
    wanted = [f for f in cases if not o.case or f.__name__ in o.case]
    failed = 0
    with Sandbox("cases") as box:
        box.keep = o.keep
        for f in wanted:
            case = Case(box, o.fs, o.seed, f.__name__)
            begin = time.monotonic()
            try:
                told = f(case)
                print("ok      %s on %s, seed %d, %.1f s%s" % (
                    f.__name__, o.fs, o.seed, time.monotonic() - begin, ": " + told if told else ""),
                    flush=True)
            except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
                failed += 1
                print("FAILED  %s on %s, seed %d, %.1f s: %s" % (
                    f.__name__, o.fs, o.seed, time.monotonic() - begin, e), flush=True)
                if not isinstance(e, Failed):
                    traceback.print_exc(file=sys.stdout)
                box.tails()
            finally:
                case.end()
    print("%d cases, %d failed" % (len(wanted), failed), flush=True)
    return 1 if failed or not wanted else 0


__all__ = ["Agent", "Case", "DOMAIN", "Failed", "Fault", "Image", "Stamp", "block", "errno",
           "errno_of", "main", "os", "read", "require", "run", "signal", "struct", "subprocess",
           "time", "wait_for"]
