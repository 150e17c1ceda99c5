#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The programs of examples/, built as a user builds them (installed header, pkg-config, no more), and what becomes of
their data when they, or the daemon, are killed."""
import os
import random
import re
import shlex
import subprocess
import time
import unittest

from real import RealTest, outer

EXAMPLES = os.path.join(outer.TOP, "examples")
BUILD = os.path.dirname(os.path.dirname(outer.REAL))
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 30)))


class Installed:
    """Below a root of its own: header, library, pkg-config file. Once for all tests."""

    root = None

    @classmethod
    def make(cls):
        if cls.root:
            return
        cls.root = outer.tempfile.mkdtemp(prefix="pmemlogd-installed.")
        unittest.addModuleCleanup(outer.shutil.rmtree, cls.root)
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--tags", "devel,runtime"],
                       env=dict(os.environ, DESTDIR=cls.root), check=True, stdout=subprocess.DEVNULL)
        for folder, _, files in os.walk(cls.root):
            if "pmemlogd.pc" in files:
                cls.pc = folder
            if "libpmemlogd.so.0" in files:
                cls.lib = folder

    @classmethod
    def pkg_config(cls, *words):
        env = dict(os.environ, PKG_CONFIG_LIBDIR=cls.pc, PKG_CONFIG_SYSROOT_DIR=cls.root)
        return subprocess.run(["pkg-config", *words, "pmemlogd"], env=env, check=True, capture_output=True,
                              text=True).stdout.strip()

    @classmethod
    def compile(cls, source, out):
        """By the command in the source's head, that is, with the compiler's standard and options there."""
        with open(os.path.join(EXAMPLES, source), encoding="ascii") as f:
            command = re.search(r"^ \*\t(c\S+ .*) -o \S+ \S+ \$\(pkg-config (.*) pmemlogd\)$", f.read(), re.M)
        flags = shlex.split(cls.pkg_config(*command.group(2).split()))
        subprocess.run([*command.group(1).split(), *STRICT, os.path.join(EXAMPLES, source), "-o", out, *flags],
                       check=True)


class ExampleTest(RealTest):
    def setUp(self):
        print("seed %d" % SEED, flush=True)
        self.random = random.Random(SEED)
        Installed.make()
        super().setUp()
        self.env = dict(os.environ, LD_LIBRARY_PATH=Installed.lib, PMEMLOGD_SOCKET=self.folder.socket,
                        PMEMLOGD_DOMAIN="test")
        source = self.source
        self.example = os.path.join(self.folder.path, source.split(".")[0])
        Installed.compile(source, self.example)

    def spawn(self, *words, program=None, **kw):
        p = subprocess.Popen([program or self.example, *words], env=self.env, text=True, **kw)
        self.addCleanup(self.end, p)
        return p

    @staticmethod
    def end(p):
        p.kill()
        p.wait()
        for f in (p.stdin, p.stdout):
            if f:
                f.close()


class Package(unittest.TestCase):
    def test_pkg_config(self):
        """Header and library where it says, by the project's version."""
        Installed.make()
        self.assertRegex(Installed.pkg_config("--modversion"), r"^\d+\.\d+\.\d+$")
        include = [f[2:] for f in Installed.pkg_config("--cflags").split() if f.startswith("-I")]
        self.assertTrue(all(f.startswith(Installed.root) for f in include), include)
        header = os.path.join((include or [Installed.root + "/usr/include"])[0], "pmemlogd.h")
        self.assertTrue(os.path.exists(header))
        libs = Installed.pkg_config("--libs").split()
        self.assertIn("-lpmemlogd", libs)
        self.assertIn("-L" + Installed.lib, libs)


class Store(ExampleTest):
    source = "kv.c"

    def open(self):
        return self.spawn(os.path.join(self.folder.path, "data"), "kv", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, p, line):
        p.stdin.write(line + "\n")
        p.stdin.flush()
        return p.stdout.readline().rstrip("\n")

    def dump(self, p):
        found, line = {}, self.ask(p, "dump")
        while line != ".":
            key, found_value = line.split(" ", 1)
            self.assertNotIn(key, found)
            found[key] = found_value
            line = p.stdout.readline().rstrip("\n")
        return found

    def command(self):
        key = "key%d" % self.random.randrange(60)
        what = self.random.random()
        if what < 0.01:
            return "checkpoint", None, None
        if what < 0.2:
            return "del " + key, key, None
        # The one that writes: values differ, so that an old one is not taken for a new one.
        self.number += 1
        value = "%d-%s" % (self.number, "v" * self.random.randrange(300))
        return "set %s %s" % (key, value), key, value

    def flood(self, p, model, seconds):
        """Commands without waiting for the answers, until it is killed. The model gets what was acknowledged; returned
        is what was sent behind that, in order."""
        sent = [self.command() for _ in range(400)]
        lines = "".join(line + "\n" for line, _, _ in sent)
        timer = outer.threading.Timer(seconds, p.kill)
        timer.start()
        try:
            out, _ = p.communicate(lines)  # where its end comes first, all was acknowledged
        finally:
            timer.join()
        answers = out.split("\n")[:-1]
        for answer, (_, key, value) in zip(answers, sent):
            self.assertRegex(answer, "^ok [0-9]+$")
            self.apply(model, key, value)
        self.acknowledged += len(answers)
        return sent[len(answers):]

    @staticmethod
    def apply(model, key, value):
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value

    def test_killed(self):
        """Whatever was acknowledged is there after any kill; of the rest the first few, in order, or none."""
        os.mkdir(os.path.join(self.folder.path, "data"))
        model = {}
        self.number = self.acknowledged = rest = 0
        for turn in range(8):
            unanswered = self.flood(self.open(), model, self.random.uniform(0.002, 0.05))
            rest += len(unanswered) > 0
            if turn % 3 == 2:
                self.restart(kill=True)
            p = self.open()
            found = self.dump(p)
            while found != model and unanswered:
                _, key, value = unanswered.pop(0)
                self.apply(model, key, value)
            self.assertEqual(found, model)
            self.assertEqual(self.ask(p, "get nothing"), "-")
            if turn == 4:
                self.assertRegex(self.ask(p, "checkpoint"), "^ok ")
                self.assertGreater(self.connect().open("kv").stat().first, 0)
            p.stdin.close()
            self.assertEqual(p.wait(outer.PATIENCE), 0)
        self.assertGreater(self.acknowledged, 100)
        self.assertGreater(rest, 0, "never killed in the middle")

    def test_wrong_use(self):
        data = os.path.join(self.folder.path, "data")
        os.mkdir(data)
        p = self.open()
        self.assertEqual(self.ask(p, "set a 1"), "ok 10")
        self.assertEqual(self.ask(p, "get a"), "1")
        for line in ("", "set a", "del", "what is", "set a " + "x" * 4097, "set a " + "x" * 10000):
            self.assertRegex(self.ask(p, line), "^error: ", line[:20])
        self.assertEqual(self.dump(p), {"a": "1"})
        second = self.spawn(data, "kv", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertEqual(second.wait(outer.PATIENCE), 1)
        self.assertRegex(self.ask(p, "checkpoint"), "^ok 10")
        self.end(p)
        # Another log than the checkpoint's: refused, not taken for an empty one.
        self.connect().remove("kv")
        other = self.spawn(data, "kv", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.assertIn("does not continue", other.communicate()[1])
        self.assertEqual(other.returncode, 1)


class Group(ExampleTest):
    source = "grouplog.c"

    def test_eight_threads(self):
        """LSNs dense, each thread's messages in order, each where its thread was told."""
        p = self.spawn("group", "8", "500", stdout=subprocess.PIPE)
        out, _ = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)
        told = [tuple(map(int, line.split())) for line in out.splitlines()]
        self.assertEqual(len(told), 4000)
        at, last = 0, [-1] * 8
        records = list(self.connect().open("group"))
        self.assertEqual(len(records), len(told))
        for (lsn, thread, number), record in zip(told, records):
            self.assertEqual((lsn, record.lsn), (at, at))
            self.assertEqual(record.data, b"thread %d message %d\n" % (thread, number))
            self.assertEqual(number, last[thread] + 1)
            last[thread] = number
            at += len(record.data)


class Ship(ExampleTest):
    source = "ship.cc"

    def ship(self, to):
        return self.spawn("shipped", to, stdout=subprocess.DEVNULL)

    def caught_up(self, ship, path, end):
        until = time.monotonic() + outer.PATIENCE
        while (os.path.getsize(path) if os.path.exists(path) else 0) < end:
            self.assertIsNone(ship.poll(), "ship ended by itself")
            self.assertLess(time.monotonic(), until, "the copy does not grow")
            time.sleep(0.01)

    def test_across_restarts(self):
        """The file equals the log: ship killed, daemon stopped, both killed, while eight threads write. They write three
        times what a lane holds, so that none is done while the daemon is away."""
        to, writer = (os.path.join(self.folder.path, name) for name in ("copy", "grouplog"))
        Installed.compile("grouplog.c", writer)
        self.connect().open("shipped", create=True)
        ship = self.ship(to)
        turns = ["ship", "stop", "both"]
        for turn in turns:
            was = self.connect().open("shipped").stat().durable
            w = self.spawn("shipped", "8", "3000", program=writer, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.assertTrue(self.begun(was))
            if turn in ("ship", "both"):
                ship.kill()
                ship.wait()
            if turn != "ship":
                self.restart(kill=turn == "both")
            if turn in ("ship", "both"):
                ship = self.ship(to)
            out, _ = w.communicate(timeout=60)
            self.assertEqual((w.returncode, out.count("\n")), (0, 24000))
            self.caught_up(ship, to, self.connect().open("shipped").stat().durable)
        ship.terminate()
        self.assertEqual(ship.wait(outer.PATIENCE), 0)
        with open(to, "rb") as f:
            copied = f.read()
        self.assertEqual(copied, self.connect().open("shipped").read(0, 1 << 30))
        said = [b"thread %d message %d" % (t, n) for t in range(8) for n in range(3000)]
        self.assertEqual(sorted(copied.splitlines()), sorted(said * len(turns)))

    def begun(self, was):
        """Waits until the log is longer than it was."""
        log = self.connect().open("shipped")
        until = time.monotonic() + outer.PATIENCE
        while time.monotonic() < until:
            if log.stat().durable > was:
                return True
        return False


if __name__ == "__main__":
    unittest.main()
