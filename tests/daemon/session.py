# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the tests of the socket share: a daemon for each, clients, and a look at what it keeps of them."""
import os
import time

import outer
import wire

EPROTO, EACCES, ENOENT, EBUSY, EINVAL, ENOSPC = -71, -13, -2, -16, -22, -28
OTHER_UID = 12345


def fds_of(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


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
