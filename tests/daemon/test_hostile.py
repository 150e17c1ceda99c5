#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The socket: what hostile clients cannot, and slow ones may not cost the others."""
import os
import socket
import threading
import time
import unittest

import outer
import wire
from session import EBUSY, EPROTO, OTHER_UID, Session, as_user


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Hostile(Session):
    def refused(self, data, fds=(), before=(), status=EPROTO):
        """The packet ends the connection with one reply of that status."""
        c = self.client()
        for kind, body in before:
            c.ask(kind, body).close()
        c.send(data, fds)
        r = c.receive()
        self.assertIsNotNone(r)
        self.assertEqual((r.kind, r.status, r.fds), (wire.REPLY, status, []))
        self.assertTrue(c.hung_up())
        c.close()

    def test_packets(self):
        good = wire.packet(wire.HELLO, wire.hello())
        cases = {
            "short": good[:10],
            "one byte": b"x",
            "header alone": good[:wire.HEADER.size],
            "body cut": good[:-1],
            "body longer": good + b"x",
            "length too small": wire.packet(wire.HELLO, wire.hello(), length=10),
            "length too large": wire.packet(wire.HELLO, wire.hello(), length=0xFFFFFFFF),
            "magic": wire.packet(wire.HELLO, wire.hello(), magic=1),
            "type 0": wire.packet(0, wire.hello()),
            "type 7": wire.packet(7, wire.hello()),
            "type 65535": wire.packet(65535, b""),
            "a reply": wire.packet(wire.HELLO, wire.hello(), what=wire.REPLY),
            "pending": wire.packet(wire.HELLO, wire.hello(), what=wire.PENDING),
            "kind": wire.packet(wire.HELLO, wire.hello(), what=77),
            "status": wire.packet(wire.HELLO, wire.hello(), status=-5),
            "too long": good + b"\0" * 4000,
            "far too long": good + b"\0" * 60000,
            "want": wire.packet(wire.HELLO, wire.hello(want=2)),
            "version 0": wire.packet(wire.HELLO, wire.hello(version=0)),
            "version 2": wire.packet(wire.HELLO, wire.hello(version=2)),
        }
        for name in ("", ".", "..", "a/b", "../x", "a b", "a\nb", "\x7f", "ä", "a\\b", "%s", "a:b",
                     "x" * 64):
            cases["domain %r" % name] = wire.packet(wire.HELLO, wire.hello(name))
        cases["program without end"] = wire.packet(wire.HELLO, wire.hello(program="p" * 64))
        for kind in (wire.STATUS, wire.FLUSH, wire.GATE):
            cases["%d flags" % kind] = wire.packet(kind, wire.domain("", flags=1))
            cases["%d without end" % kind] = wire.packet(kind, wire.domain("x" * 128))
            for name in ("/", "a/", "/a", "a/b/c", "../a", "a/..", "x/" + "y" * 64):
                cases["%d %r" % (kind, name)] = wire.packet(kind, wire.domain(name))
        cases["recover mode"] = wire.packet(wire.RECOVER, wire.recover("a", 4))
        cases["recover all"] = wire.packet(wire.RECOVER, wire.recover(""))
        cases["adopt without file"] = wire.packet(wire.RECOVER, wire.recover("a", 3))
        for name, data in cases.items():
            with self.subTest(name):
                self.refused(data)
        self.alive()

    def test_version_is_told(self):
        r = self.client().ask(wire.HELLO, wire.hello(version=9))
        self.assertEqual((r.status, r.words(1)), (EPROTO, (1,)))
        self.assertIn("the client has 9", r.text)

    def test_longest_names_are_good(self):
        for name in ("x" * 63, "A.b_c-d@0", "...", "-"):
            r = self.client().ask(wire.HELLO, wire.hello(name))
            self.assertEqual(r.status, 0, name)
            r.close()

    def test_descriptors(self):
        fd = self.file()
        hello = [(wire.HELLO, wire.hello())]
        register = wire.packet(wire.REGISTER, wire.register())
        self.refused(wire.packet(wire.HELLO, wire.hello()), [fd])
        self.refused(wire.packet(wire.STATUS, wire.domain()), [fd])
        self.refused(wire.packet(wire.RECOVER, wire.recover("a")), [fd])
        self.refused(register, [], hello)
        self.refused(register, [fd, fd], hello)
        self.refused(register, [fd] * 5, hello)  # more than are taken
        self.refused(register, [fd] * 253, hello)
        self.refused(wire.packet(wire.REGISTER, wire.register(flags=1)), [fd], hello)
        self.refused(wire.packet(wire.REGISTER, wire.register("x" * 512)), [fd], hello)
        self.refused(b"x", [fd] * 4)
        self.refused(register, [fd])  # before HELLO
        self.alive()

    def test_register_after_a_hello_that_failed(self):
        c = self.client()
        self.assertEqual(c.ask(wire.HELLO, wire.hello("held")).status, EBUSY)
        r = c.ask(wire.REGISTER, wire.register(), fds=[self.file()])
        self.assertEqual(r.status, EPROTO)
        self.assertTrue(c.hung_up())
        c.close()
        self.alive()

    def test_log_is_one_line(self):
        self.client().ask(wire.HELLO, wire.hello(program="a\n<0>forged\x1b[31m")).close()
        self.assertLog(self.daemon, "a?<0>forged?[31m")
        self.assertFalse([line for line in self.daemon.log if line.startswith("<0>")])

    def test_noise(self):
        import random
        rng = random.Random(1)
        for _ in range(2000):
            body = bytearray(wire.packet(rng.randrange(8), rng.choice(
                [wire.hello(), wire.register(), wire.domain("a"), wire.recover("a")])))
            for _ in range(rng.randrange(1, 6)):
                body[rng.randrange(len(body))] = rng.randrange(256)
            with wire.Client(self.folder.socket) as c:
                c.send(bytes(body[:rng.randrange(1, len(body) + 1)] if rng.random() < 0.3 else body))
                c.s.settimeout(outer.PATIENCE)
                c.receive()  # whatever it says, it says something or hangs up
        self.alive()

    def test_half_dead_clients(self):
        for _ in range(100):
            c = wire.Client(self.folder.socket)
            c.send(wire.packet(wire.HELLO, wire.hello()))
            c.close()  # with the reply, and its descriptors, on the way
        self.alive()

    def test_connections_are_capped(self):
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 3000:
            self.skipTest("needs 3000 descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3000, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        clients = []
        for _ in range(2048):
            clients.append(wire.Client(self.folder.socket))
        self.assertEqual(clients[-1].ask(wire.GATE, wire.domain("a")).status, 0)
        with wire.Client(self.folder.socket) as one_more:
            self.assertTrue(one_more.hung_up())
        self.assertLog(self.daemon, "more are refused")

        def other_user():
            with wire.Client(self.folder.socket) as c:
                return 0 if c.ask(wire.HELLO, wire.hello()).status == 0 else 1

        if os.geteuid() == 0:
            self.assertEqual(as_user(OTHER_UID, other_user), 0)
        for c in clients:
            c.close()
        self.alive()


class Slow(Session):
    env = {"FAKE_WORK_MS": "50"}

    def test_requests_are_bounded(self):
        """At most 16 under way: the rest waits in the socket, and all are answered in the end."""
        c = self.client()
        c.ask(wire.HELLO, wire.hello()).close()
        for i in range(40):
            c.send(wire.packet(wire.FLUSH, wire.domain("test"), 100 + i))
        pending, done, most = 0, [], 0
        while len(done) < 40:
            r = c.receive()
            if r.kind == wire.PENDING:
                pending += 1
            else:
                self.assertEqual(r.status, 0)
                done.append(r.id)
                pending -= 1
            most = max(most, pending)
        self.assertEqual(done, list(range(100, 140)))
        self.assertEqual(most, 16)

    def test_gone_while_bounded(self):
        c = self.client()
        c.ask(wire.HELLO, wire.hello()).close()
        for i in range(20):
            c.send(wire.packet(wire.FLUSH, wire.domain("test"), i))
        c.receive()
        c.close()
        self.assertLog(self.daemon, "domain test: hangup")
        self.alive()

    def test_who_does_not_read_is_dropped(self):
        c = self.client()
        # replies pile up until the socket is full; others are served all the time
        sent = 0
        try:
            while sent < 100000:
                c.send(wire.packet(wire.GATE, wire.domain("nothing"), sent))
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.assertLess(sent, 100000)
        self.assertLog(self.daemon, "does not read its replies")
        c.close()
        self.alive()

    def test_bounded_client_costs_nothing(self):
        """While nothing is read from a client, his waiting packets do not keep the loop busy."""
        c = self.client()
        c.ask(wire.HELLO, wire.hello()).close()
        for i in range(60):
            c.send(wire.packet(wire.FLUSH, wire.domain("test"), i))
        before, began = cpu_seconds(self.daemon.pid), time.monotonic()
        for _ in range(60):
            c.receive()
        spent = time.monotonic() - began
        self.assertGreater(spent, 1)
        self.assertLess(cpu_seconds(self.daemon.pid) - before, spent / 2)

    def test_flood_does_not_starve_others(self):
        end = time.monotonic() + 2
        stop = threading.Event()

        def flood():
            with wire.Client(self.folder.socket) as c:
                def read():
                    while not c.hung_up():
                        pass
                t = threading.Thread(target=read, daemon=True)
                t.start()
                while not stop.is_set():
                    try:
                        c.send(wire.packet(wire.GATE, wire.domain("nothing")))
                    except OSError:
                        break
                try:
                    c.s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                t.join(outer.PATIENCE)

        threads = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
        for t in threads:
            t.start()
        served = 0
        while time.monotonic() < end:
            with wire.Client(self.folder.socket) as c:
                self.assertEqual(c.ask(wire.GATE, wire.domain("nothing")).status, 0)
                served += 1
        stop.set()
        for t in threads:
            t.join(outer.PATIENCE)
        self.assertGreater(served, 20)
        self.alive()


if __name__ == "__main__":
    unittest.main()
