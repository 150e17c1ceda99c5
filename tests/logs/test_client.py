#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Python client against a stand-in (peer.py): what a real daemon seldom or never does."""
import errno
import os
import shutil
import sys
import tempfile
import threading
import time
import unittest
from itertools import islice

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "client", "python"))
sys.path.insert(0, HERE)

import pmemlogd  # noqa: E402
from pmemlogd import wire  # noqa: E402
from peer import Peer, frame  # noqa: E402

PATIENCE = 30


def documents():
    """Descriptors of documents that came and were not closed."""
    n = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            n += os.readlink("/proc/self/fd/" + fd).startswith("/memfd:")
        except FileNotFoundError:
            pass
    return n


class PeerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmemlogd-client.")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.path = os.path.join(self.folder, "sock")
        self.peer = Peer(self.path).start()

    def connect(self, **kw):
        kw.setdefault("timeout", PATIENCE)
        c = pmemlogd.Connection(self.path, "test", **kw)
        self.addCleanup(c.close)
        return c

    def raises(self, number, function, *args, kind=pmemlogd.Error, **kw):
        with self.assertRaises(kind) as e:
            function(*args, **kw)
        self.assertEqual(e.exception.errno, number, e.exception)
        return e.exception


class Codec(unittest.TestCase):
    def test_crc(self):
        self.assertEqual(wire.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(wire.crc32c(b"6789", wire.crc32c(b"12345")), 0xE3069283)

    def test_round(self):
        data = wire.LOG.pack(flags=16, lsn=2**63, value=5, timeout_ms=7, name="wal", domain="u/d")
        self.assertEqual(len(data), wire.LOG.size)
        got = wire.LOG.unpack(b"xx" + data, 2)
        self.assertEqual((got.flags, got.lsn, got.value, got.timeout_ms, got.name, got.domain, got.reserved),
                         (16, 2**63, 5, 7, "wal", "u/d", 0))

    def test_names_are_not_cut_off(self):
        wire.LOG.pack(name="x" * 63)
        for bad in ("x" * 64, "a\0b", "ä" * 32):
            with self.assertRaises(ValueError):
                wire.LOG.pack(name=bad)
        with self.assertRaises(TypeError):
            wire.LOG.pack(nam="x")

    def test_short_answer(self):
        self.assertEqual(wire.LOG_REPLY.unpack(b"\1").id, 1)
        self.assertEqual(wire.LOG_REPLY.unpack(b"\1").text, "")


class Calls(PeerTest):
    def test_append_read(self):
        log = self.connect().open("wal", create=True)
        lsns = [log.append(bytes([i]) * (i + 1)) for i in range(50)]
        self.assertEqual(lsns, [i * (i + 1) // 2 for i in range(50)])
        records = list(log)
        self.assertEqual([(r.lsn, r.data) for r in records],
                         [(lsn, bytes([i]) * (i + 1)) for i, lsn in enumerate(lsns)])
        stream = b"".join(r.data for r in records)
        self.assertEqual(log.read(0, 10**6), stream)
        self.assertEqual(log.read(17, 100), stream[17:117])
        self.assertEqual(log.read(len(stream), 5), b"")
        self.raises(errno.ENXIO, log.read, len(stream) + 1, 5)
        self.assertEqual(log.trim(40), 36)
        self.raises(errno.ERANGE, log.read, 3, 5, kind=pmemlogd.Trimmed)
        self.assertEqual(next(iter(log)).lsn, 36)
        self.assertEqual(next(log.records(40)).lsn, 36)

    def test_long(self):
        """Longer than one answer, and records longer than one answer."""
        log = self.connect().open("wal", create=True)
        big = os.urandom(wire.PAYLOAD_MAX)
        self.assertEqual(log.append_many([b"a", big, b"b"]), [0, 1, 1 + len(big)])
        self.assertEqual([r.data for r in log], [b"a", big, b"b"])
        self.assertEqual(log.read(0, 10**6), b"a" + big + b"b")
        self.raises(errno.EMSGSIZE, log.append, big + b"x")
        self.raises(errno.EINVAL, log.append, b"")

    def test_refusals(self):
        c = self.connect()
        self.raises(errno.ENOENT, c.open, "none")
        log = c.open("a", create=True, exclusive=True, capacity=65536)
        self.raises(errno.EEXIST, c.open, "a", create=True, exclusive=True)
        log.append(bytes(60000))
        e = self.raises(errno.ENOSPC, log.append, bytes(6000))
        self.assertEqual(e.strerror, "the capacity is reached")
        e = self.raises(errno.ENOSPC, log.append_many, [bytes(5000), bytes(5000), b"x"],
                        kind=pmemlogd.AppendManyError)
        self.assertEqual(e.lsns[:2], [60000, None])
        self.assertEqual(e.in_doubt, [])
        r = c.open("a", read_only=True)
        self.raises(errno.EBADF, r.append, b"x")
        self.raises(errno.EBADF, r.trim, 0)
        self.assertEqual([x["name"] for x in c.logs()], ["a"])
        c.remove("a")
        self.raises(errno.ENOENT, c.remove, "a")
        self.assertEqual(c.logs(), [])
        c.close()
        self.raises(errno.EBADF, c.logs)

    def test_fork(self):
        c = self.connect()
        log = c.open("a", create=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                log.append(b"x")
            except pmemlogd.Error as e:
                code = 0 if e.errno == errno.ECHILD else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(log.append(b"y"), 0)

    def test_environment(self):
        os.environ["PMEMLOGD_SOCKET"], os.environ["PMEMLOGD_DOMAIN"] = self.path, "orders"
        self.addCleanup(os.environ.pop, "PMEMLOGD_SOCKET")
        self.addCleanup(os.environ.pop, "PMEMLOGD_DOMAIN")
        with pmemlogd.connect():
            self.assertEqual(self.peer.hellos[-1].domain, "orders")
            self.assertEqual(self.peer.hellos[-1].want, 0)

    def test_nothing_is_left_open(self):
        with pmemlogd.Connection(self.path, "test") as c:
            for _ in range(10):
                c.logs()
                c.send(c.need(), wire.LOG_LIST, wire.DOMAIN.pack())  # nobody waits for that answer
        end = time.monotonic() + PATIENCE
        while documents() and time.monotonic() < end:
            time.sleep(0.01)  # the stand-in is in this process, too
        self.assertEqual(documents(), 0)


class Threads(PeerTest):
    def test_many_threads(self):
        """Each record once, whoever appended it, with followers beside them on the same connection."""
        log = self.connect().open("wal", create=True)
        n, each, got = 8, 50, []

        def follow():
            for record in log.follow(0, timeout=PATIENCE):
                got.append(record)
                if len(got) == n * each:
                    return

        def append(k):
            for i in range(each):
                log.append(b"%d %d\n" % (k, i))

        threads = [threading.Thread(target=append, args=[k]) for k in range(n)]
        threads.append(threading.Thread(target=follow))
        for t in threads:
            t.start()
        for t in threads:
            t.join(2 * PATIENCE)
            self.assertFalse(t.is_alive())
        self.assertEqual(b"".join(r.data for r in got), log.read(0, 10**7))
        lines = [tuple(map(int, r.data.split())) for r in got]
        self.assertEqual(sorted(lines), [(k, i) for k in range(n) for i in range(each)])
        for k in range(n):
            self.assertEqual([i for who, i in lines if who == k], list(range(each)))

    def test_more_followers_than_the_daemon_takes(self):
        """Readers that wait leave room for an append."""
        log = self.connect().open("wal", create=True)
        got = []
        threads = [threading.Thread(target=lambda: got.append(next(log.follow(0, timeout=PATIENCE))))
                   for _ in range(20)]
        for t in threads:
            t.start()
        time.sleep(0.2)
        began = time.monotonic()
        log.append(b"x")
        self.assertLess(time.monotonic() - began, PATIENCE / 2)
        for t in threads:
            t.join(PATIENCE)
        self.assertEqual([r.data for r in got], [b"x"] * 20)

    def test_follow_times(self):
        log = self.connect().open("wal", create=True)
        began = time.monotonic()
        self.assertEqual(list(log.follow(0, timeout=0.3)), [])
        self.assertGreaterEqual(time.monotonic() - began, 0.3)
        log.append(b"a")
        self.assertEqual([r.data for r in islice(log.follow(timeout=0), 5)], [b"a"])
        self.assertEqual(list(log.follow(from_end=True, timeout=0)), [])


class Broken(PeerTest):
    def test_nobody(self):
        self.peer.stop()
        began = time.monotonic()
        self.raises(errno.ETIMEDOUT, self.connect, timeout=0.3, kind=pmemlogd.Unreachable)
        self.assertLess(time.monotonic() - began, 5)

    def test_old_daemon(self):
        def old(peer, c, h, body, payload):
            return [peer.answer(h, -errno.EPROTO, b"")] if h.type > 6 else None
        self.peer.hook = old
        self.raises(errno.EOPNOTSUPP, self.connect)

    def test_hangs_up(self):
        self.peer.hook = lambda *a: "hangup"
        self.raises(errno.ETIMEDOUT, self.connect, timeout=0.3, kind=pmemlogd.Unreachable)

    def test_silent(self):
        log = self.connect(timeout=0.3).open("wal", create=True)
        late = []

        def silent(peer, c, h, body, payload):
            if h.type != wire.LOG_STAT:
                return None
            late.append((c, h))
            return "silent"
        self.peer.hook = silent
        self.raises(errno.ETIMEDOUT, log.stat, kind=pmemlogd.Unreachable)
        # its answer comes after all, and is not taken for the next one's
        c, h = late[0]
        c.sendall(self.peer.answer(h, 0, wire.LOG_REPLY.pack(durable=777)))
        self.peer.hook = None
        self.assertEqual(log.stat().durable, 0)

    def test_no_answer_of_ours(self):
        good = wire.LOG_REPLY.pack()
        cases = {
            "magic": lambda p, h: b"x" * 24,
            "short": lambda p, h: p.answer(h, 0, good)[:10],
            "length": lambda p, h: p.answer(h, 0, good) + b"x",
            "cut": lambda p, h: p.answer(h, 0, good[:8]),
            "kind": lambda p, h: p.answer(h, 0, good, kind=7),
            "status": lambda p, h: p.answer(h, 5, good),
            "long": lambda p, h: p.answer(h, 0, good + bytes(70000)),
        }
        for name, make in cases.items():
            with self.subTest(name):
                c = self.connect()
                log = c.open("wal", create=True)
                self.peer.hook = lambda p, _, h, *a: [make(p, h)] if h.type == wire.LOG_STAT else None
                self.raises(errno.EPROTO, log.stat, kind=pmemlogd.ProtocolError)
                self.peer.hook = None
                self.assertEqual(log.stat().durable, 0)  # on a new connection
                c.close()

    def test_records_that_are_none(self):
        log = self.connect().open("wal", create=True)
        log.append(b"abc")
        f = frame(0, b"abc", 1)
        cases = {"crc": (f[:-1] + b"x" if len(f) % 8 else f[:33] + b"x" + f[34:], errno.EBADMSG),
                 "cut": (f[:-6], errno.EPROTO), "empty": (frame(0, b"", 1), errno.EPROTO),
                 "gap": (f + frame(4, b"abc", 1), errno.EPROTO)}
        for name, (data, number) in cases.items():
            with self.subTest(name):
                body = wire.LOG_DATA.pack(lsn=0, next=3, durable=3, length=len(data)) + data
                self.peer.hook = lambda p, _, h, *a: [p.answer(h, 0, body)] if h.type == wire.LOG_READ else None
                self.raises(number, list, log.records())
        body = wire.LOG_DATA.pack(length=5) + b"abc"
        self.raises(errno.EPROTO, log.read, 0, 10)
        self.peer.hook = None
        self.assertEqual([r.data for r in log], [b"abc"])


class Restarted(PeerTest):
    def restart(self):
        self.peer.stop()
        self.peer.start()

    def lose(self, when, appended):
        """The `when`-th append is done (appended) or not, and the connection ends without an answer."""
        seen = [0]

        def hook(peer, c, h, body, payload):
            if h.type != wire.LOG_APPEND:
                return None
            seen[0] += 1
            if seen[0] != when:
                return None
            if appended:
                peer.logs[body.name].append(payload)
            return "hangup"
        self.peer.hook = hook

    def test_goes_on(self):
        log = self.connect().open("wal", create=True)
        log.append(b"a")
        self.restart()
        self.assertEqual(log.stat().durable, 1)
        self.restart()
        self.assertEqual([r.data for r in log], [b"a"])
        self.restart()
        log.connection.reconnect()
        self.assertEqual(log.append(b"b"), 1)

    def test_follow_goes_on(self):
        log = self.connect().open("wal", create=True)
        got = []

        def follow():
            for record in log.follow(timeout=PATIENCE):
                got.append(record.data)
                if len(got) == 30:
                    return
        t = threading.Thread(target=follow)
        t.start()
        with pmemlogd.Connection(self.path, "test") as other:
            writer = other.open("wal", sole_writer=True)
            for i in range(30):
                writer.append(b"%d" % i)
                if i % 7 == 3:
                    self.restart()
        t.join(2 * PATIENCE)
        self.assertEqual(got, [b"%d" % i for i in range(30)])

    def test_follow_outlasts_a_held_domain(self):
        log = self.connect().open("wal", create=True)
        log.append(b"a")
        left = [3]

        def hook(peer, c, h, body, payload):
            if h.type != wire.LOG_READ or left[0] == 0:
                return None
            left[0] -= 1
            return [peer.answer(h, -errno.EBUSY, wire.LOG_DATA.pack(text="held"))]
        self.peer.hook = hook
        self.assertEqual(next(log.follow(0, timeout=PATIENCE)).data, b"a")
        left[0] = 1000
        self.raises(errno.EBUSY, next, log.follow(0, timeout=0.2))

    def test_in_doubt(self):
        for appended in (True, False):
            self.peer.logs.clear()
            log = self.connect().open("wal", create=True)
            log.append(b"one")
            self.lose(1, appended)
            with self.assertRaises(pmemlogd.InDoubt) as e:
                log.append(b"two")
            self.assertEqual(e.exception.at_least, 3)
            self.assertEqual(log.read(3, 9), b"two" if appended else b"")

    def test_sole_writer(self):
        """None lost, none doubled, whichever answer is lost and whether it was done."""
        for appended in (True, False):
            for when in (1, 2, 8, 9, 19, 20):
                with self.subTest(appended=appended, when=when):
                    self.peer.logs.clear()
                    log = self.connect().open("wal", create=True, sole_writer=True)
                    self.lose(when, appended)
                    wanted = [b"%d," % (i % 3) for i in range(20)]  # equal ones, too
                    lsns = log.append_many(wanted)
                    self.assertEqual([r.data for r in log], wanted)
                    self.assertEqual(lsns, [r.lsn for r in log])
                    self.peer.hook = None
                    log.connection.close()

    def test_many_in_doubt(self):
        log = self.connect().open("wal", create=True)
        self.lose(3, True)
        with self.assertRaises(pmemlogd.AppendManyError) as e:
            log.append_many([b"a", b"b", b"c", b"d"])
        self.assertEqual(e.exception.lsns[:2], [0, 1])
        self.assertIn(2, e.exception.in_doubt)
        self.assertEqual(e.exception.lsns[2], None)

    def test_somebody_else_writes(self):
        log = self.connect().open("wal", create=True, sole_writer=True)
        log.append(b"a")
        left = [3]

        def hook(peer, c, h, body, payload):
            if h.type != wire.LOG_APPEND or left[0] == 0:
                return None
            left[0] -= 1
            peer.logs[body.name].append(b"foreign")
            return "hangup"
        self.peer.hook = hook
        self.raises(errno.EBUSY, log.append, b"mine")

    def test_stopping(self):
        """-ESHUTDOWN: not done; the next daemon does it."""
        log = self.connect().open("wal", create=True)
        left = [3]

        def hook(peer, c, h, body, payload):
            if h.type not in (wire.LOG_APPEND, wire.LOG_STAT) or left[0] == 0:
                return None
            left[0] -= 1
            return [peer.answer(h, -errno.ESHUTDOWN, wire.LOG_REPLY.pack(text="stopping"))]
        self.peer.hook = hook
        self.assertEqual(log.append(b"x"), 0)
        left[0] = 2
        self.assertEqual(log.stat().durable, 1)


if __name__ == "__main__":
    unittest.main()
