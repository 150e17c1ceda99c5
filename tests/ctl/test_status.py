#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""status: what it notices by itself, with real processes."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

import base
from base import outer


class Notice(base.Shimmed):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder.path, "log")
        if self._testMethodName != "test_exit":
            self.daemon()

    def status(self):
        # an emulated pool: 1 in any case
        return json.loads(self.ctl("status", "--json", expect=1).stdout)

    def text(self):
        return self.ctl("status", expect=1).stdout

    def end(self, p):
        p.stdin.close()
        p.wait()

    def wait_for(self, what, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            o = self.status()
            if what(o):
                return o
            time.sleep(0.2)
        self.fail(o)

    def test_unattended(self):
        self.assertEqual(self.status()["unattended"], [])
        p = self.writer(self.path, shim=False)
        o = self.status()
        self.assertEqual([(u["pid"], u["path"], u["reason"]) for u in o["unattended"]],
                         [(p.pid, self.path, "runs without the library")])
        self.assertEqual(o["exit"], 1)
        self.assertIn("NOT ACCELERATED: %s" % self.path, self.text())
        self.assertIn("pid %d" % p.pid, self.text())
        self.end(p)
        self.assertEqual(self.status()["unattended"], [])

    def test_exit(self):
        """The exit code is its own: the daemon's would be 0."""
        self.start(program=outer.FAKE).ready()
        self.ctl("status", expect=0)
        p = self.writer(self.path, shim=False)
        r = self.ctl("status", "--json", expect=1)
        self.assertEqual(json.loads(r.stdout)["exit"], 1)
        self.ctl("status", expect=1)
        self.end(p)
        self.ctl("status", expect=0)

    def test_with_a_session(self):
        self.writer(self.path)
        self.in_lane(self.path)
        o = self.status()
        self.assertEqual((o["unattended"], o["old_library"]), ([], []))
        self.assertEqual([f["path"] for f in o["domains"][0]["files"]], [self.path])

    def test_of_another_daemon(self):
        self.writer(self.path, shim=False, PMEMLOGD_SOCKET="/run/another/pmemlogd.sock")
        self.assertEqual(self.status()["unattended"], [])

    def test_reader_and_other_files(self):
        self.writer(self.path, shim=False, rules=self.rules("/another/*"))
        self.assertEqual(self.status()["unattended"], [])

    def test_safe_to_move(self):
        self.assertTrue(self.status()["safe_to_move"])
        p = self.writer(self.path)
        self.in_lane(self.path)
        o = self.status()
        self.assertFalse(o["safe_to_move"])
        self.assertFalse(o["domains"][0]["safe_to_move"])
        self.assertIn("Not safe to move", self.text())
        self.end(p)
        o = self.wait_for(lambda o: o["safe_to_move"])
        self.assertEqual(os.listxattr(self.path), [])
        self.assertIn("Safe to move", self.text())

    def test_bypass_since(self):
        """Mapped shared and writable: bypass for good, and since when."""
        began = time.time_ns()
        script = """
import mmap, os, select, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 4096, 0)
print(1, flush=True)
while not select.select([0], [], [], 0.02)[0]:
    os.pwrite(fd, b"x" * 4096, 0)
os.read(0, 1)
m = mmap.mmap(fd, 4096)
print(2, flush=True)
os.read(0, 1)
"""
        p = subprocess.Popen(["python3", "-c", script, self.path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE,
                             env=dict(os.environ, PMEMLOGD_SOCKET=self.folder.socket,
                                      PMEMLOGD_PRELOAD_CONFIG=self.rules(self.path),
                                      PMEMLOGD_DOMAIN="toy", LD_PRELOAD=os.environ["PRELOAD"]))
        self.addCleanup(self.end_writer, p)
        p.stdout.readline()
        self.in_lane(self.path)
        p.stdin.write(b"\n")
        p.stdin.flush()
        p.stdout.readline()
        f, = self.status()["domains"][0]["files"]
        self.assertEqual(f["state"], "bypass")
        self.assertGreaterEqual(f["bypass_since_ns"], began)
        self.assertLessEqual(f["bypass_since_ns"], time.time_ns())
        self.assertRegex(self.text(), r"\(mapped shared and writable, for [0-9.]+ (ms|s|min)\)")

    def test_older_library(self):
        library = os.path.join(self.folder.path, "libpmemlogd-preload.so")
        shutil.copy(os.environ["PRELOAD"], library)
        p = self.writer(self.path, shim=False, LD_PRELOAD=library)
        self.in_lane(self.path)
        self.assertEqual(self.status()["old_library"], [])
        os.rename(library, library + ".old")
        os.unlink(library + ".old")
        self.assertEqual([u["pid"] for u in self.status()["old_library"]], [p.pid])
        self.assertIn("Older library: ", self.text())

    def test_watch(self):
        p = subprocess.Popen([outer.CTL, "-c", self.folder.config, "status", "--watch", "--interval=1",
                              "--json"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end_watch, p)
        for _ in range(3):
            self.assertIn("domains", json.loads(p.stdout.readline()))
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(30), -signal.SIGINT)
        for bad in ("0", "x", "", "3601", "-1"):
            self.ctl("status", "--watch", "--interval=" + bad, expect=64)

    def end_watch(self, p):
        if p.poll() is None:
            p.kill()
        p.wait()
        p.stdout.close()


if __name__ == "__main__":
    unittest.main()
