#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The messages of native logs from clients that mean no good: what they cannot, and what they may not cost others."""
import errno
import os
import random
import subprocess
import sys
import threading
import time
import unittest

from real import HERE, ROOT, RealTest, outer, pmemlogd
import wire  # these behind real, which says where they are
from pmemlogd import wire as pw
from session import EACCES, EINVAL, ENOENT, EPROTO, OTHER_UID, as_user, fds_of, settles

ENXIO, ERANGE, EMSGSIZE = -errno.ENXIO, -errno.ERANGE, -errno.EMSGSIZE
U64 = 2**64 - 1
LSN_KINDS = [pw.LOG_READ, pw.LOG_TRIM, pw.LOG_SYNC, pw.LOG_SEGMENT]
LOG_KINDS = [pw.LOG_OPEN, pw.LOG_STAT, pw.LOG_REMOVE, *LSN_KINDS]


def body(kind, **kw):
    """A request that is right but for what kw says."""
    values = dict(name="a")
    if kind == pw.LOG_READ:
        values["value"] = 100
    values.update(kw)
    return pw.LOG.pack(**values)


def append(data, name="a", domain="", length=None):
    return pw.APPEND.pack(name=name, domain=domain, length=len(data) if length is None else length) + data


class HostileTest(RealTest):
    def setUp(self):
        super().setUp()
        self.log = self.connect("test").open("a", create=True)
        self.log.append(b"mine")
        self.fds = fds_of(self.daemon.pid)

    def refused(self, data, fds=()):
        """The packet ends the connection with one reply, -EPROTO, without a descriptor."""
        c = self.client()
        c.send(data, fds)
        r = c.receive()
        self.assertIsNotNone(r)
        self.assertEqual((r.kind, r.status, r.fds), (wire.REPLY, EPROTO, []))
        self.assertTrue(c.hung_up())
        c.close()

    def alive(self, records=(b"mine",), more=4):
        """It serves the others, their records are what they were, and it keeps nothing of who is gone."""
        self.assertEqual([r.data for r in self.log], list(records))
        self.assertTrue(settles(lambda: fds_of(self.daemon.pid) <= self.fds + more, True),
                        os.listdir("/proc/%d/fd" % self.daemon.pid))


class Packets(HostileTest):
    def cases(self):
        for kind in LOG_KINDS:
            good = wire.packet(kind, body(kind))
            yield "%d cut" % kind, good[:-1]
            yield "%d longer" % kind, good + b"x"
            yield "%d header alone" % kind, good[:wire.HEADER.size]
            yield "%d length" % kind, wire.packet(kind, body(kind), length=0xFFFFFFFF)
            yield "%d reserved" % kind, wire.packet(kind, body(kind, reserved=1))
            yield "%d as a reply" % kind, wire.packet(kind, body(kind), what=wire.REPLY)
            for flags in (8, 32, 1 << 31, U64 >> 32):
                yield "%d flags %d" % (kind, flags), wire.packet(kind, body(kind, flags=flags))
            for name in ("", ".", "..", ".a", "a/b", "../a", "a b", "a\n", "ä"):
                yield "%d name %r" % (kind, name), wire.packet(kind, body(kind, name=name))
            raw = bytearray(body(kind))
            raw[32:96] = b"x" * 64
            yield "%d name without end" % kind, wire.packet(kind, bytes(raw))
            for domain in ("/", "a/", "/a", "a/b/c", "../a", "a/.."):
                yield "%d domain %r" % (kind, domain), wire.packet(kind, body(kind, domain=domain))
            raw = bytearray(body(kind))
            raw[96:] = b"x" * 128
            yield "%d domain without end" % kind, wire.packet(kind, bytes(raw))
            if kind not in LSN_KINDS:
                yield "%d lsn" % kind, wire.packet(kind, body(kind, lsn=1))
            if kind not in (pw.LOG_READ, pw.LOG_SYNC):
                yield "%d timeout" % kind, wire.packet(kind, body(kind, timeout_ms=1))
            yield "%d mode" % kind, wire.packet(kind, body(kind, mode=0o600))
            if kind != pw.LOG_READ:
                yield "%d value" % kind, wire.packet(kind, body(kind, value=1))
        for n in (0, pw.PAYLOAD_MAX + 1, U64):
            yield "read %d" % n, wire.packet(pw.LOG_READ, body(pw.LOG_READ, value=n))
        for mode in (0, 0o200, 0o666, 0o777, 0o4600, 0xFFFFFFFF):
            yield "create %o" % mode, wire.packet(pw.LOG_OPEN, body(pw.LOG_OPEN, flags=1, mode=mode))
        for capacity in (1, 65535, 2**63, U64):
            yield "capacity %d" % capacity, wire.packet(pw.LOG_OPEN, body(pw.LOG_OPEN, flags=1, mode=0o600,
                                                                          value=capacity))
        yield "append nothing", wire.packet(pw.LOG_APPEND, append(b""))
        yield "append less than told", wire.packet(pw.LOG_APPEND, append(b"abc", length=4))
        yield "append more than told", wire.packet(pw.LOG_APPEND, append(b"abc", length=2))
        yield "append huge", wire.packet(pw.LOG_APPEND, append(b"abc", length=0xFFFFFFFF))
        yield "append too much", wire.packet(pw.LOG_APPEND, append(bytes(pw.PAYLOAD_MAX + 1)))
        yield "append body cut", wire.packet(pw.LOG_APPEND, append(b"")[:-1])
        yield "append flags", wire.packet(pw.LOG_APPEND, b"\1" + append(b"x")[1:])
        yield "append name", wire.packet(pw.LOG_APPEND, append(b"x", name="../a"))
        yield "packet too long", wire.packet(pw.LOG_APPEND, append(bytes(66000)))
        yield "features version", wire.packet(pw.FEATURES, pw.FEATURES_REQUEST.pack(version=2))
        yield "features want", wire.packet(pw.FEATURES, pw.FEATURES_REQUEST.pack(version=1, want=1))
        yield "features longer", wire.packet(pw.FEATURES, pw.FEATURES_REQUEST.pack(version=1) + b"x")
        yield "list flags", wire.packet(pw.LOG_LIST, wire.domain("", flags=1))
        yield "unknown", wire.packet(17, b"")

    def test_wrong_in_themselves(self):
        n = 0
        for name, data in self.cases():
            n += 1
            with self.subTest(name):
                self.refused(data)
        self.assertGreater(n, 200)
        self.alive()

    def test_descriptors(self):
        fd = os.open(self.folder.path, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        for kind in LOG_KINDS:
            self.refused(wire.packet(kind, body(kind)), [fd])
        self.refused(wire.packet(pw.LOG_APPEND, append(b"x")), [fd])
        self.refused(wire.packet(pw.LOG_LIST, wire.domain()), [fd, fd])
        self.refused(wire.packet(pw.FEATURES, pw.FEATURES_REQUEST.pack(version=1)), [fd])
        self.alive()

    def test_before_hello(self):
        """Only the request is refused, and FEATURES is not."""
        c = self.client(hello=None)
        for kind in LOG_KINDS:
            self.assertEqual(c.ask(kind, body(kind)).status, EPROTO)
        self.assertEqual(c.ask(pw.LOG_APPEND, append(b"x")).status, EPROTO)
        r = c.ask(pw.FEATURES, pw.FEATURES_REQUEST.pack(version=1))
        self.assertEqual((r.status, pw.FEATURES_REPLY.unpack(r.body).features), (0, 1))
        self.alive()

    def test_noise(self):
        rng = random.Random(1)
        for _ in range(1500):
            kind = rng.choice([*LOG_KINDS, pw.LOG_APPEND, pw.LOG_LIST, pw.FEATURES])
            data = {pw.LOG_APPEND: append(b"n" * 20, name="noise"), pw.LOG_LIST: wire.domain("test"),
                    pw.FEATURES: pw.FEATURES_REQUEST.pack(version=1)}.get(kind, body(kind, name="noise"))
            packet = bytearray(wire.packet(kind, data))
            for _ in range(rng.randrange(1, 6)):
                packet[rng.randrange(6, len(packet))] = rng.randrange(256)
            if rng.random() < 0.3:
                packet = packet[:rng.randrange(1, len(packet))]
            with wire.Client(self.folder.socket, timeout=outer.PATIENCE) as c:
                if rng.random() < 0.5:
                    c.ask(wire.HELLO, wire.hello("test", want=0))
                c.send(bytes(packet))
                if rng.random() < 0.7:
                    r = c.receive()  # whatever it says, it says something or hangs up
                    if r:
                        r.close()
        self.alive()


class Values(HostileTest):
    def test_lsns_beyond_the_end(self):
        c = self.client()
        for lsn in (5, 2**31, 2**32 - 1, 2**63 - 1, 2**63, U64 - 1, U64):
            for kind in LSN_KINDS:
                r = c.ask(kind, body(kind, lsn=lsn))
                self.assertEqual((r.status, r.fds), (ENXIO, []), (kind, lsn))
            r = c.ask(pw.LOG_READ, body(pw.LOG_READ, lsn=lsn, flags=pw.LOG_RECORDS, timeout_ms=1000))
            self.assertEqual(r.status, ENXIO)
        r = c.ask(pw.LOG_SYNC, body(pw.LOG_SYNC, lsn=4))
        self.assertEqual(r.status, ENXIO)
        self.alive()

    def test_trimmed(self):
        self.log.append_many([b"x" * 100] * 10)
        self.log.trim(504)
        c = self.client()
        for lsn in (0, 3, 4, 503):
            for kind in (pw.LOG_READ, pw.LOG_SEGMENT):
                r = c.ask(kind, body(kind, lsn=lsn))
                self.assertEqual((r.status, r.fds), (ERANGE, []), (kind, lsn))
        # again, and below: nothing happens
        for lsn in (504, 3, 0):
            r = c.ask(pw.LOG_TRIM, body(pw.LOG_TRIM, lsn=lsn))
            self.assertEqual((r.status, pw.LOG_REPLY.unpack(r.body).lsn), (0, 504))
        self.alive([b"x" * 100] * 5)

    def test_nothing_is_told_of_memory(self):
        """Bytes that a body or a frame does not use are zero."""
        c = self.client()
        r = c.ask(pw.LOG_READ, body(pw.LOG_READ, flags=pw.LOG_RECORDS, value=1000))
        data = r.body[pw.LOG_DATA.size:]
        self.assertEqual((len(data), data[32:]), (40, b"mine\0\0\0\0"))
        self.assertEqual(r.body[32:pw.LOG_DATA.size], bytes(512))
        r = c.ask(pw.LOG_READ, body(pw.LOG_READ, flags=pw.LOG_RECORDS, value=10))
        self.assertEqual((r.status, len(r.body)), (EMSGSIZE, pw.LOG_DATA.size))
        answer = pw.LOG_DATA.unpack(r.body)
        self.assertEqual((answer.lsn, answer.next, answer.length), (0, 4, 0))
        self.alive()

    def test_names_of_others(self):
        """A log of another name or domain is not reached, and not made."""
        self.connect("other").open("theirs", create=True).append(b"x")
        c = self.client()
        for kind in LOG_KINDS:
            self.assertEqual(c.ask(kind, body(kind, name="theirs")).status, ENOENT, kind)
            self.assertEqual(c.ask(kind, body(kind, domain="nobody")).status, ENOENT, kind)
            self.assertLess(c.ask(kind, body(kind, domain="nosuchuser/test")).status, 0, kind)
        self.assertEqual(c.ask(pw.LOG_APPEND, append(b"x", name="theirs")).status, ENOENT)
        self.assertEqual(c.ask(pw.LOG_APPEND, append(b"x", domain="nobody")).status, ENOENT)
        self.assertEqual(sorted((x["domain"], x["name"]) for x in self.connect("test").logs()),
                         [("other", "theirs"), ("test", "a")])
        self.alive(more=20)  # another domain is open

    @unittest.skipUnless(ROOT, "root is needed to be somebody else")
    def test_other_user(self):
        """Everything of another user's domain is refused, whatever it is called."""
        def other():
            with wire.Client(self.folder.socket, timeout=outer.PATIENCE) as c:
                if c.ask(wire.HELLO, wire.hello("test", want=0)).status != 0:
                    return 1
                for kind in LOG_KINDS:
                    # his own domain of that name has no such log
                    if c.ask(kind, body(kind)).status != ENOENT:
                        return 2
                    for domain in ("root/test", "0/test"):
                        r = c.ask(kind, body(kind, domain=domain))
                        if r.status != EACCES or r.fds:
                            return 3
                if c.ask(pw.LOG_APPEND, append(b"x", domain="root/test")).status != EACCES:
                    return 4
                r = c.ask(pw.LOG_LIST, wire.domain(""))
                if r.status != 0 or any(x["uid"] != OTHER_UID for x in r.document()["logs"]):
                    return 5
                if c.ask(pw.LOG_LIST, wire.domain("root/test")).status != EACCES:
                    return 6
            return 0
        self.assertEqual(as_user(OTHER_UID, other), 0)
        # and the admin who names a name that two users have is asked which
        self.assertEqual(self.client().ask(pw.LOG_STAT, body(pw.LOG_STAT, domain="test")).status, EINVAL)
        self.assertEqual(self.client().ask(pw.LOG_STAT, body(pw.LOG_STAT, domain="root/test")).status, 0)
        self.alive(more=20)  # another domain is open

    def test_segment_is_read_only(self):
        self.log.sync(timeout=outer.PATIENCE)
        c = self.client()
        r = c.ask(pw.LOG_SEGMENT, body(pw.LOG_SEGMENT))
        self.assertEqual((r.status, len(r.fds)), (0, 1))
        for change in (lambda fd: os.write(fd, b"x"), lambda fd: os.ftruncate(fd, 0),
                       lambda fd: os.pwrite(fd, b"x", 600)):
            with self.assertRaises(OSError):
                change(r.fds[0])
        r.close()
        self.alive()


class Floods(HostileTest):
    def test_reads_that_wait(self):
        """Hundreds of connections whose reads wait for ever cost the others nothing, and go with their clients."""
        waiting = []
        for _ in range(200):
            c = self.client()
            for i in range(16):
                c.send(wire.packet(pw.LOG_READ, body(pw.LOG_READ, lsn=4, flags=pw.LOG_RECORDS,
                                                     timeout_ms=pw.FOREVER), i))
            waiting.append(c)
        began = time.monotonic()
        for i in range(20):
            self.log.append(b"%02d" % i)
        self.assertLess(time.monotonic() - began, outer.PATIENCE)
        for c in waiting[:100]:
            done = 0
            while done < 16:  # each gets its answer, once
                r = c.receive()
                done += r.kind == wire.REPLY
                self.assertEqual(r.status, 0)
        for c in waiting:
            c.close()
        self.alive([b"mine"] + [b"%02d" % i for i in range(20)])

    def test_gone_while_waiting(self):
        for _ in range(300):
            with wire.Client(self.folder.socket) as c:
                c.ask(wire.HELLO, wire.hello("test", want=0))
                c.send(wire.packet(pw.LOG_READ, body(pw.LOG_READ, lsn=4, timeout_ms=pw.FOREVER)))
                c.send(wire.packet(pw.LOG_APPEND, append(b"x", name="none")))
                c.send(wire.packet(pw.LOG_SYNC, body(pw.LOG_SYNC, lsn=3, timeout_ms=pw.FOREVER)))
        self.alive()

    def test_who_does_not_read_is_dropped(self):
        self.log.append_many([bytes(60000)] * 3)
        c = self.client()
        sent = 0
        try:
            while sent < 20000:
                c.send(wire.packet(pw.LOG_READ, body(pw.LOG_READ, value=pw.PAYLOAD_MAX), sent))
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.assertLess(sent, 20000)
        c.close()
        self.alive([b"mine"] + [bytes(60000)] * 3)

    def test_timeouts_are_kept(self):
        """Reads with a limit end at it, among others without."""
        c = self.client()
        c.send(wire.packet(pw.LOG_READ, body(pw.LOG_READ, lsn=4, timeout_ms=pw.FOREVER), 1))
        began, left = time.monotonic(), {}
        for i, ms in enumerate((0, 50, 300, 1000), 2):
            c.send(wire.packet(pw.LOG_READ, body(pw.LOG_READ, lsn=4, timeout_ms=ms), i))
            left[i] = ms
        while left:
            r = c.receive()
            if r.kind == wire.REPLY:
                self.assertEqual((r.status, pw.LOG_DATA.unpack(r.body).length), (0, 0))
                self.assertGreaterEqual(time.monotonic() - began, left.pop(r.id) / 1000 - 0.02)
        self.assertLess(time.monotonic() - began, outer.PATIENCE)
        self.log.append(b"x")
        self.assertEqual(c.receive().id, 1)
        self.alive([b"mine", b"x"])

    def test_full_by_another_domain(self):
        """Who fills his lane, and never trims, is in nobody's way."""
        program = ("import sys; sys.path.insert(0, %r); import pmemlogd\n"
                   "log = pmemlogd.Connection(%r, 'greedy', 30).open('g', create=True)\n"
                   "for i in range(200): log.append(bytes(60000))\n"
                   % (os.path.join(HERE, "..", "..", "client", "python"), self.folder.socket))
        p = subprocess.Popen([sys.executable, "-c", program])
        n = 0
        while p.poll() is None:
            self.log.append(b"%d" % n)
            n += 1
        self.assertEqual(p.returncode, 0)
        self.assertGreater(n, 0)
        self.alive([b"mine"] + [b"%d" % i for i in range(n)])

    def test_removed_under_users(self):
        """A log that is removed while others read, wait, append: an error for each, no other log's bytes."""
        c = self.client()
        c.send(wire.packet(pw.LOG_READ, body(pw.LOG_READ, lsn=4, timeout_ms=pw.FOREVER), 9))
        stop, seen = threading.Event(), []

        def user():
            log = self.connect("test").open("a")
            while not stop.is_set():
                try:
                    log.append(b"u")
                except pmemlogd.Error as e:
                    seen.append(e.errno)
                    return
        t = threading.Thread(target=user)
        t.start()
        time.sleep(0.2)
        self.connect("test").remove("a")
        t.join(outer.PATIENCE)
        stop.set()
        self.assertIn(seen[0], (errno.ENOENT, errno.ESTALE))
        answer = None
        while answer is None or answer.kind != wire.REPLY:
            answer = c.receive()
        self.assertTrue(answer.status in (-errno.ESTALE, ENOENT) or answer.status == 0)
        new = self.connect("test").open("a", create=True)
        self.assertEqual(new.append(b"new"), 0)
        self.assertEqual([r.data for r in new], [b"new"])


if __name__ == "__main__":
    unittest.main()
