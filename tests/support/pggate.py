# SPDX-License-Identifier: LGPL-2.1-or-later
"""Modes of tests/db/postgres-modes: a start past the gate, with commits in the pool, in the two ways that it can go.

While the daemon does not answer, a new segment is in bypass: its commits are on the disk, those of the segment before
are in the pool. PostgreSQL finds the end of its log by reading. Where the disk lacks a byte of the segment
before, the end lies in that one, which bears our mark and is not opened for writing: no start. Where the file system has
written all of it back meanwhile, the end lies in the new segment: it starts, rightly, and what it commits then
must be there after the recovery, too.
"""
import signal
import time

import load
from pgmodes import SECONDS, Mode

WAIT_SECONDS = 30.0
ROUNDS = 10  # of segments: more than max_wal_size keeps


class PastTheGate(Mode):
    written_back = True

    def acks(self):
        return sum(len(load.acks(path)) for path, _ in self.clients.values())

    def commits(self, n):
        want, end = self.acks() + n, time.monotonic() + WAIT_SECONDS
        while self.acks() < want and time.monotonic() < end:
            time.sleep(0.02)
        if self.acks() < want:
            self.wrong.append("no %d commits within %d s" % (n, WAIT_SECONDS))

    def life(self):
        c = self.c
        c.extra, c.arrange, c.past_the_gate = [], None, None
        c.start_over(0)
        c.since = None
        self.clients = c.start_clients(0)
        c.check_accelerated()
        time.sleep(SECONDS)
        c.product.process.send_signal(signal.SIGSTOP)
        c.server.query("SELECT pg_switch_wal()")
        self.commits(10)
        if self.written_back:
            c.image.sync()
        c.power_cut(self.clients)
        rec = {"acked": 0, "lost": 0, "quarantined": 0, "unstarted": 0, "problems": []}
        acked = dict(c.ledger.have)
        sent = c.read_acks(rec, self.clients, acked)
        rec["live"] = rec["live_at_cut"] = c.product.live_bytes()
        c.past_the_gate = self.past
        try:
            c.restart(rec, "refuse", None, acked, sent)
        finally:
            c.past_the_gate = None
        self.wrong += rec["problems"]
        if rec["started_past_the_gate"] != self.written_back:
            self.wrong.append("started past the gate: %s" % rec["started_past_the_gate"])
        if self.written_back and not self.wrong and c.server.query("SELECT COUNT(*) FROM d.past")[0][0] != ROUNDS:
            self.wrong.append("what was committed past the gate is gone")
        return rec

    def past(self, server):
        """Commits, and has use for old segments, those of the pool as well: it opens each for writing before it
        gives it another name, cannot, and leaves it where it is."""
        server.query("CREATE TABLE d.past (n INT)")
        for n in range(ROUNDS):
            server.query("INSERT INTO d.past VALUES (%d)" % n)
            server.query("SELECT pg_switch_wal()")
            server.query("CHECKPOINT")


class RefusedWithout(PastTheGate):
    written_back = False
