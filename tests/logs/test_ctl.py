#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""pmemlogctl log: each verb's help, wrong use, success; binary-safe; what it does when nobody is there."""
import base64
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from real import USER, RealTest, outer

VERBS = ["list", "create", "append", "cat", "tail", "dump", "trim", "rm", "verify"]
WITH_LOG = ["create", "append", "cat", "tail", "dump", "rm"]
BYTES = bytes(range(256)) * 3 + b"\n\0\r\n"


class Words(RealTest):
    def test_help(self):
        for verb in VERBS:
            r = self.ctl("log", verb, "--help", expect=0)
            self.assertIn(("] log %s" % verb).encode(), r.stdout)
            self.assertGreater(len(r.stdout.splitlines()), 4)
        self.assertIn(b"\n  log verify", self.ctl("--help", expect=0).stdout)

    def test_wrong_use(self):
        self.assertIn(b"list, create", self.ctl("log", expect=64).stderr)
        self.assertIn(b"list, create", self.ctl("log", "dance", expect=64).stderr)
        for verb in VERBS:
            self.assertIn(b"unknown option", self.ctl("log", verb, "--dance", expect=64).stderr)
            self.assertIn(b"unexpected", self.ctl("log", verb, "a", "1", "c", expect=64).stderr)
        for verb in WITH_LOG:
            self.assertIn(b"missing", self.ctl("log", verb, expect=64).stderr)
            for name in ("", ".a", "a/b", "a b", "x" * 64, "ä"):
                self.ctl("log", verb, "--", name, expect=64)
        self.assertIn(b"missing", self.ctl("log", "trim", "a", expect=64).stderr)
        for words in (["trim", "a", "x"], ["trim", "a", "-1"], ["trim", "a", "9" * 30], ["trim", "a", ""],
                      ["cat", "--from", "1x", "a"], ["cat", "--to", "last", "a"], ["tail", "-n", "x", "a"],
                      ["tail", "-n", "-1", "a"], ["create", "--capacity", "5", "a"],
                      ["create", "--capacity", "1KiB", "a"], ["verify", "--folder", "/x", "a"],
                      ["cat", "--domain", "x" * 300, "a"], ["cat", "--domain", "", "a"]):
            with self.subTest(words):
                self.ctl("log", *words, expect=64)
        self.ctl("log", "list", "x" * 300, expect=64)

    def test_nobody(self):
        self.daemon.stop()
        for verb in VERBS:
            words = [verb] + (["a"] if verb in WITH_LOG else []) + (["a", "1"] if verb == "trim" else [])
            with self.subTest(verb):
                self.assertIn(b"cannot be reached", self.ctl("log", *words, data=b"x", expect=3).stderr)

    def test_configuration(self):
        self.folder.write(lane_size='"7"')
        for verb in VERBS:
            words = [verb] + (["a"] if verb in WITH_LOG else []) + (["a", "1"] if verb == "trim" else [])
            self.ctl("log", *words, data=b"x", expect=78)

    def test_no_such_log(self):
        self.ctl("log", "create", "there", expect=0)
        for verb in ("append", "cat", "tail", "dump", "rm", "verify"):
            self.assertIn(b"no such log", self.ctl("log", verb, "none", data=b"x", expect=1).stderr)
            self.assertIn(b"no such log", self.ctl("log", verb, "--domain", "nope", "there", data=b"x",
                                                   expect=1).stderr)
        self.ctl("log", "trim", "none", "end", expect=1)
        # and none of that made a domain
        status = json.loads(self.ctl("status", "--json").stdout)
        self.assertEqual([d["name"] for d in status["domains"]], ["default"])
        self.assertIn(b"no such", self.ctl("log", "list", "nope", expect=1).stderr)


class Verbs(RealTest):
    def logs(self):
        return json.loads(self.ctl("log", "list", "--json", expect=0).stdout)["logs"]

    def test_list_of_nothing(self):
        self.assertEqual(self.logs(), [])
        self.assertEqual(self.ctl("log", "list", expect=0).stdout, b"")

    def test_create(self):
        self.ctl("log", "create", "a", expect=0)
        self.assertIn(b"exists", self.ctl("log", "create", "a", expect=1).stderr)
        self.ctl("log", "create", "--if-missing", "--capacity", "64KiB", "a", expect=0)
        self.ctl("log", "create", "--domain", "d2", "--capacity", "64KiB", "a", expect=0)
        found = [(x["domain"], x["name"], x["capacity"]) for x in self.logs()]
        self.assertEqual(sorted(found), [("d2", "a", 65536), ("default", "a", 0)])
        self.assertIn(b"capacity 64 KiB", self.ctl("log", "list", USER + "/d2", expect=0).stdout)

    def test_round(self):
        """What went in comes out, byte for byte, across processes and daemons."""
        r = self.ctl("log", "append", "--create", "a", data=BYTES, expect=0)
        self.assertEqual(r.stdout, b"0\n")
        text = b"one\n\n\0two\r\nlast without end"
        r = self.ctl("log", "append", "--lines", "--json", "a", data=text, expect=0)
        lines = [b"one\n", b"\n", b"\0two\r\n", b"last without end"]
        lsns, at = [], len(BYTES)
        for line in lines:
            lsns.append({"lsn": at, "length": len(line)})
            at += len(line)
        self.assertEqual([json.loads(x) for x in r.stdout.splitlines()], lsns)
        for restart in (False, True):
            if restart:
                self.restart()
            self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, BYTES + text)
            self.assertEqual(self.ctl("log", "cat", "--from", "3", "--to", "300", "a", expect=0).stdout,
                             (BYTES + text)[3:300])
            self.assertEqual(self.ctl("log", "tail", "-n", "2", "a", expect=0).stdout, b"".join(lines[2:]))
            self.assertEqual(self.ctl("log", "tail", "-n", "0", "a", expect=0).stdout, b"")
            self.assertEqual(self.ctl("log", "tail", "a", expect=0).stdout, BYTES + text)
            r = self.ctl("log", "dump", "--json", "a", expect=0)
            records = [json.loads(x) for x in r.stdout.splitlines()]
            self.assertEqual([base64.b64decode(x["data"]) for x in records], [BYTES, *lines])
            self.assertEqual([x["lsn"] for x in records], [0] + [x["lsn"] for x in lsns])
            for x in records:
                self.assertLess(abs(x["time_ns"] / 1e9 - time.time()), 300)
            r = self.ctl("log", "dump", "--from", str(len(BYTES) + 1), "--to", str(len(BYTES) + 4), "a", expect=0)
            self.assertIn(b"lsn %d " % len(BYTES), r.stdout)
            self.assertIn(b" 6f 6e 65 0a ", r.stdout)
            self.assertEqual(r.stdout.count(b"lsn "), 1)

    def test_what_is_acknowledged_stays(self):
        """Each append by a process of its own, some with a new daemon between: none is lost, none comes twice."""
        wanted = b""
        for i in range(12):
            r = self.ctl("log", "append", "--create", "a", data=b"%d," % i, expect=0)
            self.assertEqual(r.stdout, b"%d\n" % len(wanted))
            wanted += b"%d," % i
            if i % 4 == 3:
                self.restart(kill=i == 7)
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, wanted)

    def test_records_that_are_none(self):
        self.ctl("log", "create", "a", expect=0)
        self.assertIn(b"empty", self.ctl("log", "append", "a", expect=1).stderr)
        self.assertIn(b"longer", self.ctl("log", "append", "a", data=b"x" * 61441, expect=1).stderr)
        r = self.ctl("log", "append", "--lines", "a", data=b"ok\n" + b"x" * 61441, expect=1)
        self.assertEqual((r.stdout, b"line 2" in r.stderr), (b"0\n", True))
        self.ctl("log", "append", "a", data=b"x" * 61440, expect=0)
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, b"ok\n" + b"x" * 61440)
        # longer than an answer of records: bytes and dump all the same
        r = self.ctl("log", "dump", "--json", "a", expect=0)
        self.assertEqual([json.loads(x)["length"] for x in r.stdout.splitlines()], [3, 61440])
        self.assertEqual(len(self.ctl("log", "tail", "-n", "1", "a", expect=0).stdout), 61440)

    def test_capacity(self):
        self.ctl("log", "create", "--capacity", "64KiB", "a", expect=0)
        self.ctl("log", "append", "a", data=bytes(60000), expect=0)
        r = self.ctl("log", "append", "a", data=bytes(6000), expect=1)
        self.assertEqual(r.stdout, b"")
        self.assertEqual(self.ctl("log", "trim", "a", "end", expect=0).stdout, b"first LSN 60000\n")
        self.assertEqual(self.ctl("log", "append", "a", data=bytes(6000), expect=0).stdout, b"60000\n")

    def test_trim(self):
        self.ctl("log", "append", "--create", "--lines", "a", data=b"11\n22\n33\n", expect=0)
        self.assertEqual(self.ctl("log", "trim", "--json", "a", "4", expect=0).stdout, b'{"first":3}\n')
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, b"22\n33\n")
        self.assertIn(b"trimmed", self.ctl("log", "cat", "--from", "0", "a", expect=1).stderr)
        self.assertEqual(self.ctl("log", "tail", "a", expect=0).stdout, b"22\n33\n")
        self.ctl("log", "trim", "a", "10", expect=1)
        self.ctl("log", "verify", "a", expect=0)
        self.ctl("log", "trim", "a", "end", expect=0)
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, b"")
        self.assertEqual(self.ctl("log", "append", "a", data=b"x", expect=0).stdout, b"9\n")

    def test_rm(self):
        self.ctl("log", "append", "--create", "a", data=b"x", expect=0)
        self.ctl("log", "rm", "a", expect=1)
        self.ctl("log", "rm", "a", data=b"b\n", expect=1)
        self.ctl("log", "rm", "--yes=b", "a", expect=1)
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, b"x")
        self.ctl("log", "rm", "a", data=b"a\n", expect=0)
        self.assertEqual(self.logs(), [])
        self.ctl("log", "rm", "--yes=a", "a", expect=1)
        # another of the same name begins anew
        self.assertEqual(self.ctl("log", "append", "--create", "a", data=b"y", expect=0).stdout, b"0\n")
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, b"y")

    def test_output_that_is_lost(self):
        self.ctl("log", "append", "--create", "a", data=b"x", expect=0)
        with open("/dev/full", "wb") as full:
            for words in (["cat", "a"], ["dump", "a"], ["tail", "a"], ["list"], ["verify"]):
                r = subprocess.run([outer.CTL, "-c", self.folder.config, "log", *words], stdout=full,
                                   stderr=subprocess.PIPE, timeout=60, check=False)
                self.assertEqual(r.returncode, 1, words)
            r = subprocess.run([outer.CTL, "-c", self.folder.config, "log", "append", "--lines", "a"], stdout=full,
                               stderr=subprocess.PIPE, timeout=60, check=False, input=b"1\n2\n3\n")
            self.assertEqual(r.returncode, 1)
        # it stopped at the first acknowledgement that nobody got
        self.assertEqual(self.ctl("log", "cat", "a", expect=0).stdout, b"x1\n")


class Follow(RealTest):
    @staticmethod
    def until(what):
        end = time.monotonic() + outer.PATIENCE
        while not what() and time.monotonic() < end:
            time.sleep(0.02)

    def test_follow(self):
        """Each record once, in order, also across a restart and a kill of the daemon."""
        self.ctl("log", "append", "--create", "--lines", "a", data=b"".join(b"old %d\n" % i for i in range(20)),
                 expect=0)
        p = subprocess.Popen([outer.CTL, "-c", self.folder.config, "log", "tail", "-f", "-n", "3", "a"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.stderr.close)
        self.addCleanup(p.kill)
        got = []

        def read():
            for line in p.stdout:
                got.append(line)
        t = threading.Thread(target=read)
        t.start()
        wanted = [b"old 17\n", b"old 18\n", b"old 19\n"]
        # At once, not with the first new one; which may be among the last three, if it comes before.
        self.until(lambda: len(got) == 3)
        self.assertEqual(got, wanted)
        for i in range(30):
            self.ctl("log", "append", "a", data=b"new %d\n" % i, expect=0)
            wanted.append(b"new %d\n" % i)
            if i in (10, 20):
                self.restart(kill=i == 20)
        self.until(lambda: len(got) >= len(wanted))
        self.assertIsNone(p.poll(), p.poll() and p.stderr.read())
        p.send_signal(signal.SIGINT)
        p.wait(outer.PATIENCE)
        t.join(outer.PATIENCE)
        self.assertEqual(got, wanted)
        self.assertIn(b"waiting for it", p.stderr.read())


class Verify(RealTest):
    def segments(self, name="a"):
        folder = os.path.join(self.folder.state_dir, "logs", "%d-default" % os.geteuid(), name)
        return [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".log")]

    def fill(self, n=300):
        data = b"".join(b"record %d %s\n" % (i, b"x" * (i % 200)) for i in range(n))
        self.ctl("log", "append", "--create", "--lines", "a", data=data, expect=0)
        self.ctl("flush", expect=0)
        return data

    def test_good(self):
        self.fill()
        self.ctl("log", "append", "a", data=b"in the pool", expect=0)
        r = self.ctl("log", "verify", expect=0)
        self.assertIn(b"good; 301 records", r.stdout)
        self.assertEqual(r.stderr, b"")  # no progress where no terminal is
        r = json.loads(self.ctl("log", "verify", "--json", "a", expect=0).stdout)
        self.assertEqual((r["good"], r["records"], r["checked"], r["error"]), (True, 301, r["end"], ""))
        r = self.ctl("log", "verify", "--folder", os.path.dirname(self.segments()[0]), expect=0)
        self.assertIn(b"good", r.stdout)

    def test_each_byte(self):
        """A byte changed anywhere in a segment is found, with the LSN, by the daemon or without it."""
        self.fill(40)
        self.assertEqual(self.daemon.stop(), 0)
        path = self.segments()[0]
        folder = os.path.dirname(path)
        with open(path, "rb") as f:
            whole = f.read()
        self.ctl("log", "verify", "--folder", folder, expect=0)
        for at in [*range(0, 200, 17), 511, *range(512, 560, 5), *range(600, len(whole), len(whole) // 15)]:
            with open(path, "r+b") as f:
                f.seek(at)
                f.write(bytes([whole[at] ^ 0x20]))
            r = self.ctl("log", "verify", "--folder", folder, expect=1)
            self.assertRegex(r.stdout, rb"LSN \d+: ", at)
            with open(path, "r+b") as f:
                f.write(whole)
        for cut in (0, 100, 511, 513, 600):
            with open(path, "r+b") as f:
                f.truncate(cut)
            self.ctl("log", "verify", "--folder", folder, expect=1)
            with open(path, "wb") as f:
                f.write(whole)
        self.ctl("log", "verify", "--folder", folder, expect=0)
        self.ctl("log", "verify", "--folder", self.folder.path, expect=1)
        self.ctl("log", "verify", "--folder", "/not/there", expect=1)

    def test_damaged_under_the_daemon(self):
        self.fill()
        self.restart()
        path = self.segments()[0]
        with open(path, "r+b") as f:
            f.seek(3000)
            byte = f.read(1)
            f.seek(3000)
            f.write(bytes([byte[0] ^ 1]))
        r = self.ctl("log", "verify", "--json", "a", expect=1)
        found = json.loads(r.stdout)
        self.assertFalse(found["good"])
        self.assertTrue(found["error"])
        self.ctl("log", "verify", expect=1)
        self.ctl("log", "cat", "a", expect=1)
        self.ctl("log", "rm", "--yes=a", "a", expect=0)


if __name__ == "__main__":
    unittest.main()
