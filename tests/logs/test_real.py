#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Python client against the real daemon: each call, threads, restarts, kills; its command line."""
import errno
import os
import subprocess
import sys
import threading
import time
import unittest

from real import HERE, RealTest, outer, pmemlogd
from pmemlogd import wire  # behind real, which says where it is


class Calls(RealTest):
    def test_each(self):
        c = self.connect()
        self.raises(errno.ENOENT, c.open, "a")
        log = c.open("a", create=True, exclusive=True)
        self.raises(errno.EEXIST, c.open, "a", create=True, exclusive=True)
        self.assertEqual([r for r in log], [])
        wanted = [os.urandom(1 + i * 7 % 1000) for i in range(300)]
        lsns = [log.append(r) for r in wanted[:100]] + log.append_many(wanted[100:])
        at = 0
        for lsn, record in zip(lsns, wanted):
            self.assertEqual(lsn, at)
            at += len(record)
        stream = b"".join(wanted)
        stat = log.stat()
        self.assertEqual((stat.first, stat.durable, stat.capacity, stat.failing), (0, len(stream), 0, False))
        for synced in (False, True):
            if synced:
                self.assertEqual(log.sync(timeout=outer.PATIENCE).disk, len(stream))
            self.assertEqual([(r.lsn, r.data) for r in log], list(zip(lsns, wanted)))
            self.assertEqual(log.read(0, 10**7), stream)
            self.assertEqual(log.read(777, 1234), stream[777:777 + 1234])
            self.assertEqual(log.read(len(stream), 1), b"")
            self.raises(errno.ENXIO, log.read, len(stream) + 1, 1)
            inside = next(log.records(lsns[50] + 1))
            self.assertEqual((inside.lsn, inside.data), (lsns[50], wanted[50]))
        self.raises(errno.ENXIO, log.sync, len(stream))
        fd, first = log.segment(5)
        with os.fdopen(fd, "rb") as f:
            self.assertEqual((first, f.read(8)), (0, b"PMLSEG01"))
        self.assertEqual(log.trim(lsns[100] + 1), lsns[100])
        self.raises(errno.ERANGE, log.read, 0, 1)
        self.assertEqual([r.data for r in log], wanted[100:])
        reader = c.open("a", read_only=True)
        self.raises(errno.EBADF, reader.append, b"x")
        self.assertEqual([x["name"] for x in c.logs("test")], ["a"])
        c.remove("a")
        self.assertEqual(c.logs("test"), [])
        self.raises(errno.ENOENT, c.remove, "a")

    def test_long_records(self):
        log = self.connect().open("a", create=True)
        wanted = [os.urandom(n) for n in (1, wire.PAYLOAD_MAX, 2, wire.PAYLOAD_MAX - 31, wire.PAYLOAD_MAX - 32, 3)]
        log.append_many(wanted)
        self.assertEqual([r.data for r in log], wanted)
        self.assertEqual([r.data for r in log.follow(0, timeout=0)], wanted)

    def test_capacity(self):
        log = self.connect().open("a", create=True, capacity=65536)
        log.append(bytes(40000))
        self.raises(errno.ENOSPC, log.append, bytes(40000))
        log.trim(40000)
        self.assertEqual(log.append(bytes(40000)), 40000)

    def test_names(self):
        c = self.connect()
        for name in ("x" * 63, "A.b_c-d@0", "-", "a."):
            c.open(name, create=True).append(b"x")
        self.assertEqual(len(c.logs("test")), 4)
        with self.assertRaises(ValueError):
            c.open("x" * 64, create=True)

    def test_many_logs(self):
        """As many as the daemon says, and a clear refusal of one more."""
        c = self.connect()
        logs = [c.open("l%d" % i, create=True) for i in range(c.features.logs_max)]
        for i, log in enumerate(logs):
            log.append(b"%d" % i)
        self.raises(errno.EMFILE, c.open, "more", create=True)
        for i, log in enumerate(logs):
            self.assertEqual([r.data for r in log], [b"%d" % i])

    def test_order_of_one_connection(self):
        """What is sent first gets the lower LSN, also where the lane is full and some have to wait."""
        log = self.connect().open("a", create=True)
        n = 150
        records = [b"%06d" % i + bytes(30000 if i % 3 else 10) for i in range(n)]  # 3 MiB through 1 MiB
        lsns = log.append_many(records)
        self.assertEqual(lsns, sorted(lsns))
        self.assertEqual([int(r.data[:6]) for r in log], list(range(n)))


class Together(RealTest):
    def test_threads_and_processes(self):
        """Threads of several processes write one log; followers of both see one order."""
        n, each = 3, 60
        program = ("import sys; sys.path.insert(0, %r); import pmemlogd, threading\n"
                   "c = pmemlogd.Connection(%r, 'test', 30)\nlog = c.open('a', create=True)\n"
                   "def go(k):\n    for i in range(%d): log.append(b'%%s %%d %%d\\n' %% (sys.argv[1].encode(), k, i))\n"
                   "ts = [threading.Thread(target=go, args=[k]) for k in range(%d)]\n"
                   "[t.start() for t in ts]; [t.join() for t in ts]\n"
                   % (os.path.join(HERE, "..", "..", "client", "python"), self.folder.socket, each, n))
        log = self.connect().open("a", create=True)
        seen = []

        def follow():
            for r in self.connect().open("a").follow(0, timeout=outer.PATIENCE):
                seen.append(r)
                if len(seen) == 2 * n * each:
                    return
        t = threading.Thread(target=follow)
        t.start()
        ps = [subprocess.Popen([sys.executable, "-c", program, who]) for who in ("p", "q")]
        for p in ps:
            self.assertEqual(p.wait(3 * outer.PATIENCE), 0)
        t.join(2 * outer.PATIENCE)
        self.assertEqual([(r.lsn, r.data) for r in log], [(r.lsn, r.data) for r in seen])
        lines = [r.data.split() for r in seen]
        for who in (b"p", b"q"):
            for k in range(n):
                self.assertEqual([int(x[2]) for x in lines if x[0] == who and int(x[1]) == k],
                                 list(range(each)))

    def test_follow_wakes_up(self):
        log = self.connect().open("a", create=True)
        it = self.connect().open("a").follow(timeout=outer.PATIENCE)
        times = []
        for i in range(30):
            t = threading.Timer(0.02, lambda i=i: (times.append(time.monotonic()), log.append(b"%d" % i)))
            t.start()
            self.assertEqual(next(it).data, b"%d" % i)
            times[-1] = time.monotonic() - times[-1]
            t.join()
        self.assertLess(sorted(times)[15], 5)  # no number of the machine: it does not sleep until its slice ends


class Restarts(RealTest):
    def test_restarted_under_load(self):
        """Clean stops and kills under a writer and a follower: each record once, none in doubt for the only
        writer."""
        c = self.connect()
        log = c.open("a", create=True, sole_writer=True)
        n, seen, done = 400, [], []

        def follow():
            for r in self.connect().open("a").follow(0, timeout=outer.PATIENCE):
                seen.append(r.data)
                if len(seen) == n:
                    return

        def write():
            for i in range(n):
                done.append(log.append(b"%d\n" % i))
                time.sleep(0.002)
        threads = [threading.Thread(target=follow), threading.Thread(target=write)]
        for t in threads:
            t.start()
        for kill in (False, True, False, True):
            before = len(done)
            end = time.monotonic() + outer.PATIENCE
            while len(done) < before + 20 and len(done) < n and time.monotonic() < end:
                time.sleep(0.01)
            self.restart(kill)
        for t in threads:
            t.join(3 * outer.PATIENCE)
            self.assertFalse(t.is_alive())
        self.assertEqual(seen, [b"%d\n" % i for i in range(n)])
        self.assertEqual([r.lsn for r in log], done)

    def test_all_ended(self):
        """Everybody goes, the daemon too: what was acknowledged is there."""
        for life in range(3):
            with pmemlogd.Connection(self.folder.socket, "test", outer.PATIENCE) as c:
                log = c.open("a", create=True)
                self.assertEqual([r.data for r in log], [b"%d" % i for i in range(3 * life)])
                log.append_many([b"%d" % (3 * life + i) for i in range(3)])
            self.restart(kill=life == 1)


class CommandLine(RealTest):
    def python(self, *words, data=b"", expect=0):
        env = dict(os.environ, PYTHONPATH=os.path.join(HERE, "..", "..", "client", "python"))
        r = subprocess.run([sys.executable, "-m", "pmemlogd", "--socket", self.folder.socket, "--domain", "test",
                            *words], input=data, capture_output=True, env=env, timeout=60, check=False)
        self.assertEqual(r.returncode, expect, r.stderr)
        return r.stdout

    def test_verbs(self):
        self.assertEqual(self.python("append", "--create", "--lines", "a", data=b"x\n\0\nz"), b"0\n2\n4\n")
        self.assertEqual(self.python("append", "a", data=b"end"), b"5\n")
        self.assertEqual(self.python("cat", "a"), b"x\n\0\nzend")
        self.assertEqual(self.python("cat", "--from", "4", "a"), b"zend")
        self.assertEqual(self.python("list"), b"a 0 8\n")
        self.assertRegex(self.python("stat", "a"), rb"^first 0 disk \d durable 8 capacity 0\n$")
        self.python("cat", "none", expect=1)
        self.python("append", "a", expect=1)
        self.python("dance", expect=2)
        self.daemon.stop()
        self.python("cat", "a", expect=3)


if __name__ == "__main__":
    unittest.main()
