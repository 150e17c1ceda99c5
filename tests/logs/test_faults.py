#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Native logs while calls of the daemon are slow, fail or kill it (tests/support/callfault.c): nothing that was
acknowledged is lost, it heals without a restart, and a log that is damaged can be removed."""
import ctypes
import errno
import glob
import os
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
        kw.setdefault("env", {"LD_PRELOAD": os.environ["CALLFAULT"], "CALLFAULT_RULES": self.rules,
                              "MALLOC_PERTURB_": "165"})  # who uses what is freed is seen to
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


class Session:
    """A process with libpmemlogd, us: the domain lives on while there is no daemon. A with statement."""

    class Options(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint32), ("timeout_ms", ctypes.c_uint32), ("socket", ctypes.c_char_p),
                    ("domain", ctypes.c_char_p)]

    def __init__(self, socket, domain="test"):
        self.lib = ctypes.CDLL(os.environ["LIBRARY"])
        self.options = self.Options(ctypes.sizeof(self.Options), 30000, socket.encode(), domain.encode())
        self.c = ctypes.c_void_p()

    def __enter__(self):
        r = self.lib.pmemlogd_connect(ctypes.byref(self.c), ctypes.byref(self.options))
        if r:
            raise OSError(-r, os.strerror(-r))
        return self

    def open(self, name):
        log = ctypes.c_void_p()
        r = self.lib.pmemlogd_open(self.c, name.encode(), 1, 0o600, ctypes.c_uint64(0), ctypes.byref(log))
        return log if r == 0 else r

    def __exit__(self, *_):
        self.lib.pmemlogd_disconnect.restype = ctypes.c_void_p
        self.lib.pmemlogd_disconnect(self.c)


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

    def test_library_at_a_stop(self):
        """A daemon that stops is none for libpmemlogd: no call gets an error that pmemlogd.h does not know."""
        other = self.client()
        with Session(self.folder.socket) as s:
            log = s.open("a")
            self.assertEqual(s.lib.pmemlogd_append(log, b"x", ctypes.c_size_t(1), None), 0)
            self.faults(("fdatasync", "/logs/", 0, 600))
            self.daemon.signal(15)
            calls = {"sync": lambda: s.lib.pmemlogd_sync(log, ctypes.c_uint64(0), 0), "open": lambda: s.open("b"),
                     "remove": lambda: s.lib.pmemlogd_remove(s.c, b"none"),
                     "reconnect": lambda: s.lib.pmemlogd_reconnect(s.c),
                     "trim": lambda: s.lib.pmemlogd_trim(log, ctypes.c_uint64(0), None)}
            told = ctypes.create_string_buffer(512)
            self.assertEqual(settles(lambda: other.ask(pw.LOG_APPEND, append(b"y")).status, -errno.ESHUTDOWN),
                             -errno.ESHUTDOWN)
            for name, call in calls.items():
                with self.subTest(name):
                    self.assertEqual(call(), -errno.ETIMEDOUT)
                    s.lib.pmemlogd_message(s.c, told, ctypes.c_size_t(512))
                    self.assertIn(b"stop", told.value)
            self.faults()
            self.assertEqual(self.daemon.end(), 0)

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


class Disk(FaultTest):
    """Calls on segments fail; the records stay in the pool, and go to the disk when it is well again."""

    def status(self):
        return [x for x in self.connect("other").logs("test") if x["name"] == "a"][0]

    def fails(self, *rules, kill=False):
        """Records while the calls fail, and after they do not any more; all are there, also for the next daemon."""
        c = self.connect()
        log = c.open("a", create=True)
        wanted = [b"before;" * 100]
        log.append(wanted[0])
        log.sync(timeout=outer.PATIENCE)
        self.faults(*rules)
        for i in range(50):
            wanted.append(b"%d;" % i * 50)
            log.append(wanted[-1])
        self.assertTrue(settles(lambda: log.stat().failing, True))
        with self.assertRaises(pmemlogd.Error) as e:
            log.sync(timeout=outer.PATIENCE)
        self.assertEqual(e.exception.errno, errno.EBUSY)
        self.assertIn("pool", str(e.exception))
        self.assertEqual([r.data for r in log], wanted)
        if kill:
            self.daemon.kill()
        self.faults()
        if kill:
            self.daemon = self.start().ready()
        log.sync(timeout=outer.PATIENCE)
        self.assertFalse(log.stat().failing)
        self.assertEqual([r.data for r in log], wanted)
        c.close()
        self.restart()
        self.assertEqual(self.records(), wanted)
        self.ctl("log", "verify", expect=0)

    def test_full(self):
        self.fails(("pwrite", "/logs/", errno.ENOSPC, 0))

    def test_sync_fails(self):
        self.fails(("fdatasync", "/logs/", errno.EIO, 0))

    def test_sync_fails_and_killed(self):
        self.fails(("fdatasync", "/logs/", errno.EIO, 0), kill=True)

    def test_segment_cannot_be_made(self):
        c = self.connect()
        log = c.open("a", create=True)
        self.faults(("openat", ".log", errno.ENOSPC, 0))
        log.append(b"x" * 1000)
        self.assertTrue(settles(lambda: log.stat().failing, True))
        self.faults(("fsync", "/a", errno.EIO, 0))  # the folder of the new segment
        with self.assertRaises(pmemlogd.Error):
            log.sync(timeout=outer.PATIENCE)
        self.faults()
        log.sync(timeout=outer.PATIENCE)
        c.close()
        self.restart()
        self.assertEqual(self.records(), [b"x" * 1000])

    def test_next_segment(self):
        """The name of the segment that comes after a full one is on disk before anything in it counts."""
        c = self.connect()
        log = c.open("a", create=True, capacity=262144)  # segments of 64 KiB
        wanted = [bytes([i]) * 50000 for i in range(3)]
        log.append(wanted[0])
        log.sync(timeout=outer.PATIENCE)
        self.faults(("fsync", "/a", errno.EIO, 0))
        log.append(wanted[1])
        self.raises(errno.EBUSY, log.sync, timeout=outer.PATIENCE)
        self.assertEqual(log.stat().disk, 50000)
        self.faults()
        log.append(wanted[2])
        log.sync(timeout=outer.PATIENCE)
        self.assertEqual(len(self.segments("a")), 3)
        self.assertEqual([r.data for r in log], wanted)

    def test_pool_full(self):
        """Nothing is acknowledged that has no room, and what was acknowledged is there."""
        c = self.connect(timeout=60)
        log = c.open("a", create=True)
        self.faults(("pwrite", "/logs/", errno.ENOSPC, 0))
        wanted = []
        with self.assertRaises(pmemlogd.Error) as e:
            while len(wanted) < 100:
                wanted.append(b"%d" % len(wanted) + bytes(50000))
                log.append(wanted[-1])
        self.assertEqual(e.exception.errno, errno.ENOSPC)
        self.assertGreater(len(wanted), 10)
        wanted.pop()
        self.assertEqual([r.data for r in log], wanted)
        self.faults()
        log.sync(timeout=outer.PATIENCE)
        wanted.append(b"again")
        log.append(wanted[-1])
        self.assertEqual([r.data for r in log], wanted)

    def test_ended_on_a_full_disk(self):
        """The domain's end finds no room: held, tried again, and nothing to do for anybody."""
        self.daemon.stop()
        self.folder.write(destage_age='"20s"')
        self.daemon = self.start().ready()
        self.faults(("pwrite", "/logs/", errno.ENOSPC, 0))
        self.make(b"1", b"22", b"333")
        self.assertLog(self.daemon, "held: ")
        self.assertFalse([line for line in self.daemon.log if "quarantined: " in line])
        self.faults()
        self.assertLog(self.daemon, "recovered: nothing is left over")
        self.assertEqual(self.records(), [b"1", b"22", b"333"])


class Removed(FaultTest):
    def damage(self, name="a"):
        path = self.segments(name)[0]
        with open(path, "r+b") as f:
            f.seek(100)
            f.write(b"damage")
        return path

    def test_damaged(self):
        """Closed: its segment or its meta damaged, or half of it gone already."""
        for what in ("segment", "meta", "no meta", "no segment"):
            self.make(b"x" * 100)
            self.restart()
            if what == "segment":
                self.damage()
            elif what == "meta":
                with open(os.path.join(self.folder_of("a"), "meta"), "r+b") as f:
                    f.write(b"PMEM")
            elif what == "no meta":
                os.unlink(os.path.join(self.folder_of("a"), "meta"))
            else:
                os.unlink(self.segments("a")[0])
            c = self.connect()
            self.raises(errno.ENOENT if what == "no meta" else errno.EBADMSG, c.open, "a")
            c.remove("a")
            self.raises(errno.ENOENT, c.remove, "a")
            self.assertFalse(os.path.exists(self.folder_of("a")))
            self.assertEqual(c.logs("test"), [])
            c.close()
            self.make(b"another")
            self.assertEqual(self.records(), [b"another"])
            self.connect().remove("a")

    def test_damaged_while_open(self):
        """Its records cannot go to the disk and fill the lane, until it is removed."""
        c = self.connect()
        log, other = c.open("a", create=True), c.open("b", create=True)
        log.append(b"x" * 100)
        log.sync(timeout=outer.PATIENCE)
        self.faults(("pwrite", "/a/", errno.EIO, 0))
        log.append(b"y" * 100)
        self.assertTrue(settles(lambda: log.stat().failing, True))
        self.damage()
        self.faults()
        other.append(b"z")
        with self.assertRaises(pmemlogd.Error):
            log.sync(timeout=outer.PATIENCE)
        c.remove("a")
        self.raises(errno.ENOENT, c.open, "a")
        other.sync(timeout=outer.PATIENCE)
        self.assertEqual(c.open("a", create=True).append(b"new"), 0)
        c.close()
        self.restart()
        self.assertEqual((self.records("a"), self.records("b")), ([b"new"], [b"z"]))

    def test_killed_in_between(self):
        """The daemon is killed at each step, while a session lives, and with none; then the next one goes on."""
        steps = (("unlinkat", "/a/meta", -1), ("unlinkat", "/a/meta", -2), ("fsync", "/a", -1),
                 ("unlinkat", ".log", -1), ("unlinkat", ".log", -2))
        for session in (True, False):
            for call, where, how in steps:
                with self.subTest(session=session, call=call, where=where, how=how):
                    if session:
                        with Session(self.folder.socket):
                            self.killed(call, where, how)
                    else:
                        self.killed(call, where, how)

    def killed(self, call, where, how):
        c = self.connect()
        log = c.open("a", create=True)
        log.append(b"x" * 1000)
        log.sync(timeout=outer.PATIENCE)
        self.faults((call, where, how, 0), ("pwrite", "/logs/", errno.ENOSPC, 0))
        log.append(b"live" * 10)  # is in the lane all the time
        x = self.client()
        x.send(wire.packet(pw.LOG_REMOVE, pw.LOG.pack(name="a")))
        self.daemon.process.wait(outer.PATIENCE)
        x.close()
        c.close()
        self.faults()
        self.daemon = self.start().ready()
        self.assertFalse([line for line in self.daemon.log if "quarantined: " in line])
        c = self.connect()
        # Whole, or gone.
        try:
            self.assertEqual([r.data for r in c.open("a")], [b"x" * 1000, b"live" * 10])
            c.remove("a")
        except pmemlogd.Error as e:
            self.assertIn(e.errno, (errno.ENOENT, errno.EBUSY), e)
        self.assertFalse(settles(lambda: os.path.exists(self.folder_of("a")), False))
        self.assertTrue(settles(lambda: c.logs("test"), []) == [])
        self.assertTrue(settles(lambda: self.free(c), True))
        self.assertEqual(c.open("a", create=True).append(b"new"), 0)
        self.assertEqual(self.records(), [b"new"])
        c.remove("a")
        c.close()

    def free(self, c):
        """Nobody has the name any more."""
        try:
            c.open("a")
        except pmemlogd.Error as e:
            return e.errno == errno.ENOENT
        return False


if __name__ == "__main__":
    unittest.main()
