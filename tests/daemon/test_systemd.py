#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Activation, readiness, watchdog, reload and stop, against the stand-in for PID 1."""
import os
import signal
import socket
import struct
import time
import unittest

import outer
import wire


class Readiness(outer.OuterTest):
    def test_ready_means_decided(self):
        d = self.start(env={"FAKE_DECIDE_MS": "700"})
        d.wait("STATUS=deciding")
        # clients are served meanwhile: their request waits at its domain
        with wire.Client(self.folder.socket) as c:
            c.send(wire.packet(wire.HELLO, wire.hello()))
            self.assertEqual(c.receive().kind, wire.PENDING)
            before = time.monotonic()
            at, _ = d.wait("READY=1")
            self.assertGreaterEqual(at, before)
            self.assertGreaterEqual(at - d.began, 0.6)
            self.assertEqual(c.receive().status, 0)
        d.wait("STATUS=all decided")
        self.assertEqual(d.stop(), 0)
        self.assertEqual([n for n in d.names() if n != "STATUS"], ["READY", "STOPPING"])

    def test_start_is_extended(self):
        d = self.start(env={"FAKE_DECIDE_MS": "6000"})
        at, text = d.wait("EXTEND_TIMEOUT_USEC=")
        self.assertGreater(int(text.split("=")[1]), 5000000)
        d.ready()
        time.sleep(6)  # longer than from one extension to the next
        self.assertEqual(d.stop(), 0)
        self.assertNotIn("EXTEND_TIMEOUT_USEC", d.names()[d.names().index("READY"):])

    def test_folders(self):
        self.start().ready()
        for path, mode in (("run", 0o755), ("run/control", 0o755), ("run/bypass", 0o1777),
                           ("state", 0o700)):
            st = os.stat(os.path.join(self.folder.path, path))
            self.assertEqual(st.st_mode & 0o7777, mode, path)
        self.assertEqual(os.stat(self.folder.socket).st_mode & 0o777, 0o666)

    def test_folder_of_others(self):
        os.makedirs(os.path.join(self.folder.run_dir, "control"))
        os.chmod(os.path.join(self.folder.run_dir, "control"), 0o777)
        d = self.start()
        self.assertEqual(d.end(), 1)
        self.assertLog(d, "mode 0777 lets others write there")

    def test_not_durable_is_said(self):
        d = self.start().ready()
        self.assertLog(d, "NOT DURABLE")


class Watchdog(outer.OuterTest):
    def test_fed(self):
        d = self.start(watchdog=1.0).ready()
        times = [d.wait("WATCHDOG=1")[0] for _ in range(4)]
        self.assertTrue(all(b - a < 1.0 for a, b in zip(times, times[1:])), times)
        self.assertEqual(d.stop(), 0)

    def test_fed_while_stopping(self):
        d = self.start(watchdog=1.0, env={"FAKE_STOP_MS": "2500"}).ready()
        self.assertEqual(d.stop(), 0)
        self.assertNotIn("watchdog", [text for _, text in d.lines])

    def test_hang_is_noticed(self):
        """The stand-in itself: without this the two above could not fail."""
        d = self.start(watchdog=0.5).ready()
        os.kill(d.pid, signal.SIGSTOP)
        self.assertIsNotNone(d.wait("watchdog"))
        os.kill(d.pid, signal.SIGCONT)
        self.assertEqual(d.end(), 128 + signal.SIGABRT)


class Activation(outer.OuterTest):
    def listen(self, what="seqpacket", name="run/pmemlogd.sock"):
        os.makedirs(self.folder.run_dir, exist_ok=True)
        return "%s:%s" % (what, os.path.join(self.folder.path, name))

    def test_handed_over(self):
        d = self.start(listen=[self.listen()]).ready()
        with wire.Client(self.folder.socket) as c:
            self.assertEqual(c.ask(wire.HELLO, wire.hello()).status, 0)
        self.assertEqual(d.stop(), 0)
        # systemd's, not ours to remove
        self.assertTrue(os.path.exists(self.folder.socket))

    def test_client_before_start(self):
        listen = self.listen()
        d = self.start(listen=[listen], env={"FAKE_DECIDE_MS": "300"})
        d.wait("pid ")
        with wire.Client(self.folder.socket) as c:
            self.assertEqual(c.ask(wire.HELLO, wire.hello()).status, 0)

    def test_wrong_kind(self):
        for what in ("stream", "dgram"):
            d = self.start(listen=[self.listen(what)])
            self.assertEqual(d.end(), 78)
            self.assertLog(d, "ListenSequentialPacket=")

    def test_two(self):
        d = self.start(listen=[self.listen(), self.listen(name="run/second.sock")])
        self.assertEqual(d.end(), 78)
        self.assertLog(d, "exactly one")

    def test_elsewhere_is_told(self):
        d = self.start(listen=[self.listen(name="elsewhere.sock")]).ready()
        self.assertLog(d, "does not lie in run_dir")


class OwnSocket(outer.OuterTest):
    def test_removed_at_stop(self):
        d = self.start().ready()
        self.assertTrue(outer.connectable(self.folder.socket))
        self.assertEqual(d.stop(), 0)
        self.assertFalse(os.path.exists(self.folder.socket))

    def test_stale(self):
        d = self.start().ready()
        os.kill(d.pid, signal.SIGKILL)
        self.assertEqual(d.end(), 128 + signal.SIGKILL)
        self.assertTrue(os.path.exists(self.folder.socket))
        self.assertFalse(outer.connectable(self.folder.socket))
        d = self.start().ready()
        self.assertTrue(outer.connectable(self.folder.socket))
        self.assertEqual(d.stop(), 0)

    def test_in_the_way(self):
        os.makedirs(self.folder.run_dir)
        with open(self.folder.socket, "w") as f:
            f.write("precious")
        d = self.start()
        self.assertEqual(d.end(), 1)
        self.assertLog(d, "no socket is in the way")
        with open(self.folder.socket) as f:
            self.assertEqual(f.read(), "precious")

    def test_second_daemon_takes_nothing(self):
        first = self.start().ready()
        second = self.start(env={"FAKE_POOL_BUSY": "1"})
        self.assertEqual(second.end(), 1)
        self.assertLog(second, "in use by another pmemlogd")
        # the first one's socket is still its own
        with wire.Client(self.folder.socket) as c:
            self.assertEqual(c.ask(wire.HELLO, wire.hello()).status, 0)
        self.assertEqual(first.stop(), 0)


class Reload(outer.OuterTest):
    def destage_age(self):
        with wire.Client(self.folder.socket) as c:
            return c.ask(wire.STATUS, wire.domain()).document()["destage_age_ns"]

    def reload(self, d):
        d.signal(signal.SIGHUP)
        d.wait("RELOADING=1")
        at, text = d.wait("MONOTONIC_USEC=")
        self.assertLess(abs(int(text.split("=")[1]) / 1e6 - at), 5)
        self.assertIsNotNone(d.wait("READY=1"))

    def test_taken_over(self):
        d = self.start().ready()
        self.assertEqual(self.destage_age(), 10**9)
        self.folder.write(destage_age='"250ms"', pool='"/elsewhere"')
        self.reload(d)
        self.assertEqual(self.destage_age(), 250 * 10**6)
        self.assertLog(d, "destage_age is taken over")
        self.assertLog(d, "pool has changed, but needs a restart")
        self.assertEqual(d.stop(), 0)

    def test_bad_one_changes_nothing(self):
        d = self.start().ready()
        self.folder.write(destage_age='"250ms"', lane_size='"7"')
        self.reload(d)
        self.assertEqual(self.destage_age(), 10**9)
        self.assertLog(d, "reload refused, nothing has changed: %s:" % self.folder.config)

    def test_users(self):
        d = self.start().ready()
        self.folder.write(allow_users="[ ]", log_level='"warning"')
        self.reload(d)
        d.log.clear()
        with wire.Client(self.folder.socket) as c:  # root always may
            self.assertEqual(c.ask(wire.HELLO, wire.hello()).status, 0)
        self.assertFalse([line for line in d.log if "HELLO" in line], "still logs at debug")

    def test_before_ready(self):
        d = self.start(env={"FAKE_DECIDE_MS": "1000"})
        d.wait("STATUS=")
        d.signal(signal.SIGHUP)
        d.wait("RELOADING=1")
        at, _ = d.wait("READY=1")
        self.assertGreaterEqual(at - d.began, 0.9)

    def test_often(self):
        d = self.start().ready()
        for i in range(20):
            self.folder.write(trust_fs='[ "fs%d" ]' % i, allow_users='[ "%d" ]' % i)
            self.reload(d)
        self.assertEqual(d.stop(), 0)


class Stop(outer.OuterTest):
    def test_clean(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            d = self.start().ready()
            d.signal(number)
            self.assertEqual(d.end(), 0)
            self.assertIn("STOPPING", d.names())

    def test_long_stop_is_extended(self):
        d = self.start(env={"FAKE_STOP_MS": "6000"}).ready()
        d.signal(signal.SIGTERM)
        d.wait("STOPPING=1")
        self.assertIsNotNone(d.wait("EXTEND_TIMEOUT_USEC="))
        self.assertEqual(d.end(), 0)

    def test_last_replies_go_out(self):
        d = self.start(env={"FAKE_WORK_MS": "600"}).ready()
        with wire.Client(self.folder.socket) as c:
            c.send(wire.packet(wire.HELLO, wire.hello()))
            self.assertEqual(c.receive().kind, wire.PENDING)
            d.signal(signal.SIGTERM)
            d.wait("STOPPING=1")
            # nothing new is begun, and the one under way is answered
            c.send(wire.packet(wire.FLUSH, wire.domain(), 2))
            answers = {r.id: r.status for r in (c.receive(), c.receive())}
            self.assertEqual(answers, {1: 0, 2: -108})  # ESHUTDOWN
            self.assertIsNone(c.receive())
        self.assertEqual(d.end(), 0)

    def test_impatient(self):
        d = self.start(env={"FAKE_STOP_MS": "60000"}).ready()
        d.signal(signal.SIGTERM)
        d.wait("STOPPING=1")
        d.signal(signal.SIGTERM)
        self.assertEqual(d.end(), 1)
        self.assertLog(d, "ending without waiting")


class Journal(outer.OuterTest):
    """journald's socket, where there is none: fields as sd_journal_sendv writes them."""

    def private_run(self, journal):
        """What runs a command with a /run of its own, where the journal's folder is that one."""
        if os.geteuid() != 0:
            self.skipTest("needs root for a mount namespace")
        return ["unshare", "--mount", "sh", "-ec",
                "mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; "
                "mount --bind '%s' /run/systemd/journal; exec \"$@\"" % journal, "sh"]

    def test_fields(self):
        folder = os.path.join(self.folder.path, "journal")
        os.mkdir(folder)
        prefix = self.private_run(folder)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(s.close)
        s.bind(os.path.join(folder, "socket"))
        s.settimeout(outer.PATIENCE)
        d = self.start(journal=True, prefix=prefix).ready()
        entries = []
        while not any(e.get(b"MESSAGE", b"").startswith(b"ready: ") for e in entries):
            entries.append(parse_journal(s.recv(65536)))
        self.assertEqual(d.log, [])
        ready = entries[-1]
        self.assertEqual(ready[b"PRIORITY"], b"6")
        self.assertRegex(ready[b"MESSAGE_ID"], b"^[0-9a-f]{32}$")
        with wire.Client(self.folder.socket) as c:
            c.ask(wire.HELLO, wire.hello("some-domain"))
        while b"PMEMLOGD_DOMAIN" not in entries[-1]:
            entries.append(parse_journal(s.recv(65536)))
        self.assertEqual(entries[-1][b"PMEMLOGD_DOMAIN"], b"some-domain")

    def test_stderr_of_another_stream(self):
        d = self.start(env={"JOURNAL_STREAM": "1:2"}).ready()
        self.assertLog(d, "<6>ready")


def parse_journal(data):
    fields = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equal, value = line.partition(b"=")
        if not equal:  # a value with a newline in it: its length first
            n = struct.unpack_from("<Q", data)[0]
            value, data = data[8 : 8 + n], data[9 + n :]
        fields[name] = value
    return fields


if __name__ == "__main__":
    unittest.main()
