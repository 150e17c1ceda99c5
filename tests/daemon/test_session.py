#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The socket: what clients may do, and what hostile ones cannot."""
import os
import socket
import struct
import threading
import time
import unittest

import outer
import wire

EPROTO, EACCES, ENOENT, EBUSY, EINVAL, ENOSPC = -71, -13, -2, -16, -22, -28
OTHER_UID = 12345


def fds_of(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settles(function, wanted, timeout=outer.PATIENCE):
    """Waits until function() == wanted; the last value."""
    end = time.monotonic() + timeout
    value = function()
    while value != wanted and time.monotonic() < end:
        time.sleep(0.02)
        value = function()
    return value


def as_user(uid, function):
    """Runs function in a child of that user (group too); what it returned, 0..255."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            code = function()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Session(outer.OuterTest):
    env = {}

    def setUp(self):
        super().setUp()
        self.daemon = self.start(env=self.env).ready()
        self.idle_fds = fds_of(self.daemon.pid)

    def client(self):
        c = wire.Client(self.folder.socket, timeout=outer.PATIENCE)
        self.addCleanup(c.close)
        return c

    def file(self):
        fd = os.open(self.folder.path, os.O_TMPFILE | os.O_RDWR)
        self.addCleanup(os.close, fd)
        return fd

    def alive(self):
        """It still serves an honest client, and keeps nothing of those who are gone."""
        with wire.Client(self.folder.socket) as c:
            self.assertEqual(c.ask(wire.HELLO, wire.hello()).status, 0)
        # fewer: what the start needed is closed a little after READY=1
        self.assertTrue(settles(lambda: fds_of(self.daemon.pid) <= self.idle_fds, True),
                        os.listdir("/proc/%d/fd" % self.daemon.pid))


class Honest(Session):
    def test_hello(self):
        c = self.client()
        r = c.ask(wire.HELLO, wire.hello())
        self.assertEqual((r.status, r.words(2), len(r.fds)), (0, (1, 7), 2))
        self.assertEqual([os.readlink("/proc/self/fd/%d" % fd).split()[0] for fd in r.fds],
                         ["/memfd:control", "/memfd:lane"])
        r.close()
        # re-attach: the descriptors are not wanted
        r = c.ask(wire.HELLO, wire.hello(want=0))
        self.assertEqual((r.status, len(r.fds)), (0, 0))
        r = c.ask(wire.HELLO, wire.hello("other"))
        self.assertEqual(r.status, EINVAL)
        c.close()
        self.alive()

    def test_held(self):
        r = self.client().ask(wire.HELLO, wire.hello("held"))
        self.assertEqual((r.status, r.text, r.fds), (EBUSY, "held by the test", []))

    def test_register(self):
        c = self.client()
        c.ask(wire.HELLO, wire.hello()).close()
        fd = self.file()
        r = c.ask(wire.REGISTER, wire.register("/a/file"), fds=[fd])
        entry, state, low, high = r.words(4)
        self.assertEqual((r.status, entry, state, low | high << 32),
                         (0, 3, 1, os.fstat(fd).st_ino))
        c.close()
        self.alive()

    def test_status_flush_gate_recover(self):
        c = self.client()
        c.ask(wire.HELLO, wire.hello("mine")).close()
        r = c.ask(wire.STATUS, wire.domain())
        self.assertEqual(r.status, 0)
        self.assertIn("requests", r.document())
        with self.assertRaises(OSError):  # sealed
            os.write(r.fds[0], b"x")
        r.close()
        for kind in (wire.FLUSH, wire.GATE):
            r = c.ask(kind, wire.domain("0/mine"))
            self.assertEqual((r.status, r.words(1), r.text), (0, (0,), "done"))
        r = c.ask(wire.RECOVER, wire.recover("mine"))
        self.assertEqual((r.status, r.document()), (0, {"domain": "mine"}))

    def test_unknown_domain(self):
        c = self.client()
        self.assertEqual(c.ask(wire.GATE, wire.domain("nothing")).status, 0)
        self.assertEqual(c.ask(wire.FLUSH, wire.domain("nothing")).status, ENOENT)
        self.assertEqual(c.ask(wire.RECOVER, wire.recover("nothing")).status, ENOENT)
        for kind in (wire.GATE, wire.FLUSH):
            r = c.ask(kind, wire.domain("nobody-of-that-name/x"))
            self.assertEqual((r.status, r.words(1)), (EINVAL, (1,)))

    def test_a_socket_in_use_is_not_taken(self):
        second = self.start()
        self.assertEqual(second.end(), 1)
        self.assertLog(second, "in use")
        self.alive()

    def test_hangup_is_told(self):
        c = self.client()
        c.ask(wire.HELLO, wire.hello()).close()
        c.close()
        self.assertLog(self.daemon, "domain test: hangup, user 0")


class Several(Session):
    env = {"FAKE_DOMAINS": "0/a,%d/b,%d/a" % (OTHER_UID, OTHER_UID), "FAKE_WORK_MS": "100"}

    def requests(self, c):
        r = c.ask(wire.STATUS, wire.domain())
        n = r.document()["requests"]
        r.close()
        return n

    def test_one_reply_for_all(self):
        c = self.client()
        r = c.ask(wire.FLUSH, wire.domain())
        self.assertEqual((r.status, r.words(1)), (0, (0,)))
        self.assertEqual(r.text, "a: done\nb: done\na: done")
        self.assertEqual(self.requests(c), 3)
        r = c.ask(wire.GATE, wire.domain("a"))
        self.assertEqual(r.text, "a: done\na: done")
        r = c.ask(wire.GATE, wire.domain("%d/a" % OTHER_UID))
        self.assertEqual(r.text, "done")
        self.assertEqual(self.requests(c), 6)

    def test_recover_takes_one(self):
        r = self.client().ask(wire.RECOVER, wire.recover("a"))
        self.assertEqual((r.status, r.text), (EINVAL, "several users have a domain of that name; "
                                                      "say USER/NAME"))

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_others_only_their_own(self):
        def run():
            with wire.Client(self.folder.socket) as c:
                ok = c.ask(wire.FLUSH, wire.domain()).text == "b: done\na: done"
                ok &= c.ask(wire.FLUSH, wire.domain("0/a")).status == EACCES
                ok &= c.ask(wire.GATE, wire.domain("a")).status == EACCES
                ok &= c.ask(wire.RECOVER, wire.recover("b")).status == EACCES
                return 0 if ok else 1

        self.assertEqual(as_user(OTHER_UID, run), 0)


class Users(Session):
    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_allowed(self):
        def hello(groups=()):
            def run():
                with wire.Client(self.folder.socket) as c:
                    r = c.ask(wire.HELLO, wire.hello())
                    if r.status == EACCES:
                        return 1 if c.hung_up() else 2
                    return 0 if r.status == 0 else 3
            return run

        self.assertEqual(as_user(OTHER_UID, hello()), 0)
        for settings, expected in (
                ({"allow_users": "[ ]"}, 1),
                ({"allow_users": '[ "%d" ]' % OTHER_UID}, 0),
                ({"allow_users": '[ "root", "1" ]'}, 1),
                ({"allow_users": '[ "no-such-user-here" ]'}, 1),
                ({"allow_users": "[ ]", "allow_groups": '[ "%d" ]' % OTHER_UID}, 0),
                ({"allow_groups": '[ "root" ]'}, 1)):
            self.folder.write(**settings)
            self.daemon.signal(1)
            self.daemon.wait("RELOADING=1")
            self.daemon.wait("READY=1")
            self.assertEqual(as_user(OTHER_UID, hello()), expected, settings)
        self.alive()


class Domains(Session):
    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_no_user_takes_them_all(self):
        def run():
            for i in range(64):
                with wire.Client(self.folder.socket) as c:
                    if c.ask(wire.HELLO, wire.hello("d%d" % i)).status != 0:
                        return 1
            with wire.Client(self.folder.socket) as c:
                if c.ask(wire.HELLO, wire.hello("one-more")).status != ENOSPC:
                    return 2
                # those that are there go on
                return 0 if c.ask(wire.HELLO, wire.hello("d7")).status == 0 else 3

        self.assertEqual(as_user(OTHER_UID, run), 0)

        def other():
            with wire.Client(self.folder.socket) as c:
                return 0 if c.ask(wire.HELLO, wire.hello("one-more")).status == 0 else 1

        self.assertEqual(as_user(OTHER_UID + 1, other), 0)
        self.assertEqual(as_user(0, other), 0)


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


class Close(Session):
    """A descriptor that hangs in close() hangs nobody else up."""

    env = {"LD_PRELOAD": os.environ.get("SLOWCLOSE", ""), "SLOW_CLOSE_MS": "3000"}

    def setUp(self):
        if not os.environ.get("SLOWCLOSE"):
            self.skipTest("no SLOWCLOSE")
        if any(word in outer.FAKE for word in ("asan", "tsan")):
            self.skipTest("a sanitizer comes first in the list of preloads")
        super().setUp()

    def test_slow_close(self):
        path = os.path.join(self.folder.path, "slow-close")
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, fd)
        began = time.monotonic()
        for _ in range(24):  # far more than may hang at once
            with wire.Client(self.folder.socket) as c:
                c.send(wire.packet(wire.STATUS, wire.domain()), [fd])
                self.assertEqual(c.receive().status, EPROTO)
        with wire.Client(self.folder.socket) as c:
            self.assertEqual(c.ask(wire.HELLO, wire.hello()).status, 0)
        self.assertLess(time.monotonic() - began, 2.5)
        # at most 8 of one user hang; the others were dropped by the kernel (the last client's own
        # connection and descriptors may still be there)
        self.assertLessEqual(fds_of(self.daemon.pid), self.idle_fds + 8 + 3)
        self.alive()


if __name__ == "__main__":
    unittest.main()
