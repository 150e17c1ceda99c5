#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The socket: what clients may do."""
import os
import socket
import time
import unittest

import outer
import wire
from session import EACCES, EBUSY, EINVAL, ENOENT, ENOSPC, EPROTO, OTHER_UID, Session, as_user, fds_of


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
