#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon itself on an emulated pool: start, lock, sockets, idle, stop. No shim, no database."""
import os
import signal
import subprocess
import time
import unittest

import outer
import wire

IDLE_SECONDS = 30


def switches(pid):
    """How often any thread of it went to sleep."""
    n = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as f:
            for line in f:
                if line.startswith("voluntary_ctxt_switches:"):
                    n += int(line.split()[1])
    return n


class Real(outer.OuterTest):
    program = outer.REAL

    def setUp(self):
        super().setUp()
        self.ctl("pool", "create", expect=0)

    def ctl(self, *words, expect=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        r = subprocess.run([outer.CTL, "-c", self.folder.config, *words], capture_output=True,
                           text=True, timeout=120, **kw)
        if expect is not None:
            self.assertEqual(r.returncode, expect, r.stdout + r.stderr)
        return r

    def client(self):
        c = wire.Client(self.folder.socket, timeout=outer.PATIENCE)
        self.addCleanup(c.close)
        return c


class Life(Real):
    def test_no_pool(self):
        self.folder.write(pool='"%s/nothing"' % self.folder.path)
        d = self.start()
        self.assertEqual(d.end(), 1)
        self.assertLog(d, "nothing")

    def test_emulated_must_be_asked_for(self):
        self.folder.write(emulate="false")
        d = self.start()
        self.assertEqual(d.end(), 1)
        self.assertLog(d, "emulate = true")

    def test_start_stop_again(self):
        for _ in range(3):
            d = self.start().ready()
            self.assertLog(d, "NOT DURABLE")
            self.assertEqual(d.stop(), 0)

    def test_second_is_refused(self):
        first = self.start().ready()
        second = self.start()
        self.assertEqual(second.end(), 1)
        self.assertLog(second, "in use by process %d" % first.pid)
        self.assertTrue(outer.connectable(self.folder.socket))
        self.assertEqual(first.stop(), 0)

    def test_killed_and_back(self):
        d = self.start().ready()
        os.kill(d.pid, signal.SIGKILL)
        d.end()
        d = self.start().ready()
        self.assertTrue(outer.connectable(self.folder.socket))
        self.assertEqual(d.stop(), 0)

    def test_activation(self):
        os.makedirs(self.folder.run_dir)
        d = self.start(listen=["seqpacket:" + self.folder.socket], watchdog=5)
        # 3: a daemon that a busy machine starts slowly has not answered within ctl's patience
        for _ in range(5):
            status = self.ctl("status").returncode
            if status != 3:
                break
        self.assertEqual(status, 1)
        d.ready()
        self.assertEqual(d.stop(), 0)

    def test_hello_register_release(self):
        d = self.start().ready()
        c = self.client()
        r = c.ask(wire.HELLO, wire.hello("toy"))
        self.assertEqual((r.status, len(r.fds)), (0, 2), r.text)
        path = os.path.join(self.folder.path, "file")
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        a = c.ask(wire.REGISTER, wire.register(path), fds=[fd])
        self.assertEqual(a.status, 0, a.text)
        again = c.ask(wire.REGISTER, wire.register(path), fds=[fd])
        self.assertEqual(again.words(4), a.words(4))
        readonly = os.open(path, os.O_RDONLY)
        self.assertEqual(c.ask(wire.REGISTER, wire.register(path), fds=[readonly]).status, -22)
        pipe = os.pipe()
        self.assertEqual(c.ask(wire.REGISTER, wire.register(path), fds=[pipe[1]]).status, -22)
        self.assertIn("user.pmemlogd.owner", os.listxattr(path))
        for x in (fd, readonly, *pipe):
            os.close(x)
        r.close()
        c.close()
        # nobody took a slot: the file is let go, its mark is gone
        end = time.monotonic() + outer.PATIENCE
        while os.listxattr(path) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(os.listxattr(path), [])
        self.assertEqual(d.stop(), 0)
        self.ctl("gate", "toy", expect=0)

    def test_reload_while_used(self):
        d = self.start().ready()
        with wire.Client(self.folder.socket) as c:
            for i in range(5):
                c.ask(wire.HELLO, wire.hello("d%d" % i, want=0))
                self.folder.write(destage_age='"%dms"' % (100 + i), trust_fs='[ "fs%d" ]' % i)
                d.signal(signal.SIGHUP)
                d.wait("RELOADING=1")
                d.wait("READY=1")
                with wire.Client(self.folder.socket) as other:
                    self.assertEqual(other.ask(wire.HELLO, wire.hello("e%d" % i, want=0)).status, 0)
        self.assertEqual(d.stop(), 0)


def has_thread_sanitizer():
    with open(outer.REAL, "rb") as f:
        return b"libtsan" in f.read()


class Idle(Real):
    def setUp(self):
        if has_thread_sanitizer():
            self.skipTest("ThreadSanitizer has a thread of its own that wakes up")
        super().setUp()

    def idle(self, d):
        """Sleeps counted over IDLE_SECONDS, and the watchdog's feeds in that time."""
        with wire.Client(self.folder.socket) as c:  # it has a domain, with a lane and a worker
            c.ask(wire.HELLO, wire.hello("quiet")).close()
        time.sleep(5)  # the session's end is looked at
        before = switches(d.pid)
        time.sleep(IDLE_SECONDS)
        return switches(d.pid) - before

    def test_idle(self):
        d = self.start().ready()
        self.assertEqual(self.idle(d), 0)
        self.assertEqual(d.stop(), 0)

    def test_idle_with_watchdog(self):
        d = self.start(watchdog=20).ready()
        slept = self.idle(d)
        self.assertEqual(d.stop(), 0)
        fed = sum(text == "WATCHDOG=1" for _, text in d.lines)
        self.assertGreaterEqual(fed, 2)
        # one sleep after each feed, and one at most that fell to the lot of the timer itself
        self.assertLessEqual(slept, 2 * fed)


if __name__ == "__main__":
    unittest.main()
