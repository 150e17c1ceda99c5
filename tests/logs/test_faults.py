#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Native logs while calls of the daemon are slow, fail or kill it (tests/support/callfault.c): nothing that was
acknowledged is lost, it heals without a restart, and a log that is damaged can be removed."""
import errno
import glob
import os
import signal
import threading
import time
import unittest

from real import RealTest, USER, outer, pmemlogd
import wire  # behind real, which says where it is
from pmemlogd import wire as pw
from session import settles

SLICE = 0.01  # seconds between two looks


class FaultTest(RealTest):
    """The daemon has the faults that `faults` was told last."""

    def setUp(self):
        outer.OuterTest.setUp(self)
        self.rules = os.path.join(self.folder.path, "rules")
        self.ctl("pool", "create", expect=0)
        self.folder.write(destage_age='"50ms"')
        self.daemon = self.start().ready()

    def start(self, **kw):
        kw.setdefault("env", {"LD_PRELOAD": os.environ["CALLFAULT"], "CALLFAULT_RULES": self.rules})
        return super().start(**kw)

    def faults(self, *rules):
        """Each (call, part of the path, errno, milliseconds); none: all is well."""
        with open(self.rules + ".new", "w", encoding="ascii") as f:
            f.writelines("%s %s %d %d\n" % r for r in rules)
        os.rename(self.rules + ".new", self.rules)

    def folder_of(self, name, domain="test"):
        return os.path.join(self.folder.state_dir, "logs", "%d-%s" % (os.geteuid(), domain), name)

    def segments(self, name, domain="test"):
        return sorted(glob.glob(os.path.join(self.folder_of(name, domain), "*.log")))

    def make(self, *records, name="a"):
        """A log with these records, by a client that is gone again."""
        with pmemlogd.Connection(self.folder.socket, "test", outer.PATIENCE) as c:
            c.open(name, create=True).append_many(list(records))

    def records(self, name="a", domain="test"):
        return [r.data for r in self.connect(domain).open(name, read_only=True)]

    def client(self, hello="test"):
        c = wire.Client(self.folder.socket, timeout=outer.PATIENCE)
        self.addCleanup(c.close)
        if hello:
            self.assertEqual(c.ask(wire.HELLO, wire.hello(hello, want=0)).status, 0)
        return c


def append(data, name="a", domain=""):
    return pw.APPEND.pack(name=name, domain=domain, length=len(data)) + data


class Ends(FaultTest):
    """A domain whose last session ends while messages about its logs come."""

    def test_named_domain(self):
        """A connection that names the domain is a session of it, too."""
        self.make(b"0")
        c = self.client(hello=None)
        for i in range(1, 4):
            self.assertEqual(c.ask(pw.LOG_APPEND, append(b"%d" % i, domain=USER + "/test")).status, 0)
            time.sleep(1.2)  # longer than the domain is given to be used
        self.assertFalse([line for line in self.daemon.log if "last session ended" in line])
        c.close()
        self.assertLog(self.daemon, "last session ended")
        self.assertEqual(self.records(), [b"%d" % i for i in range(4)])

    def test_while_it_ends(self):
        """What is appended while the domain's last step is under way belongs to its next life."""
        self.daemon.stop()
        self.folder.write(destage_age='"20s"')
        self.daemon = self.start().ready()
        self.faults(("fdatasync", "/logs/", 0, 400))
        wanted = []
        for i, pause in enumerate((0.05, 0.2, 0.35)):
            # By its domain's name, and one that has said hello.
            c, name = (self.client(hello=None), USER + "/test") if i % 2 else (self.client(), "")
            with pmemlogd.Connection(self.folder.socket, "test", outer.PATIENCE) as first:
                first.open("a", create=True).append(b"first")
                time.sleep(1.2)  # what is attached is given a second to be used
            time.sleep(pause)
            self.assertEqual(c.ask(pw.LOG_APPEND, append(b"%d" % i, domain=name)).status, 0)
            wanted += [b"first", b"%d" % i]
            c.close()
            self.assertTrue(settles(lambda n=i: self.ends() > 2 * n + 1, True))
        self.faults()
        self.assertEqual(self.records(), wanted)

    def ends(self):
        return len([line for line in self.daemon.log if "last session ended" in line])

    def test_stopped_with_clients(self):
        """Who is there at a stop costs nothing: exit code 0, and what waits hears that it stops."""
        c, other = self.client(), self.client(hello=None)
        self.connect().open("a", create=True).append(b"x")
        self.assertEqual(other.ask(pw.LOG_APPEND, append(b"y", domain=USER + "/test")).status, 0)
        c.send(wire.packet(pw.LOG_READ, pw.LOG.pack(name="a", lsn=2, value=100, timeout_ms=60000)))
        time.sleep(0.3)
        self.assertEqual(self.daemon.stop(), 0)
        r = c.receive()
        while r is not None and r.kind != wire.REPLY:
            r = c.receive()
        self.assertIsNotNone(r)
        self.assertEqual(r.status, -errno.ESHUTDOWN)

    def test_waits_end_with_their_client(self):
        """A read that waits for ever ends with its connection: it keeps neither memory nor the domain."""
        keep = self.connect()
        keep.open("a", create=True).append(b"x")
        for _ in range(5):
            c = self.client(hello=None)
            for i in range(10):
                c.send(wire.packet(pw.LOG_READ, pw.LOG.pack(name="a", domain=USER + "/test", lsn=1, value=100,
                                                            timeout_ms=0xFFFFFFFF), request_id=i + 1))
            time.sleep(0.05)
            c.close()
        keep.close()
        self.assertLog(self.daemon, "last session ended")
        self.ctl("gate", "test", expect=0)


if __name__ == "__main__":
    unittest.main()
