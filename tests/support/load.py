# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the clients write, from a seed, so that a checker can compute what must be there.

Client c writes rows (c, 1), (c, 2), ... in transactions. How many rows transaction and payload have
follows from (seed, client, first row of the transaction) alone: a checker needs no list of what was sent, and a
client goes on after a power cut at the row after the last one found.
"""
import os
import random
import signal
import struct
import time

# One acknowledgement: last row of the transaction, monotonic ns before and after the commit.
ACK = struct.Struct("<qqq")


class Plan:
    """Transactions of one client. sizes: list of (weight, least, most) for payload bytes."""

    SIZES = [(800, 20, 400), (150, 400, 8 << 10), (47, 8 << 10, 60 << 10), (3, 200 << 10, 1500 << 10)]
    SMALL = [(1, 100, 200)]

    def __init__(self, seed, client, sizes=None):
        self.seed = seed
        self.client = client
        self.sizes = sizes or self.SIZES
        self.weights = [s[0] for s in self.sizes]

    def payload(self, seq):
        r = random.Random("%d/%d/%d" % (self.seed, self.client, seq))
        _, least, most = r.choices(self.sizes, self.weights)[0]
        n = r.randint(least, most)
        # hex text: mariadb-binlog prints it without escapes
        unit = "%016x" % r.getrandbits(64) + "%08x" % seq
        return (unit * (n // len(unit) + 1))[:n]

    def transaction(self, seq):
        """(rows, marks): rows seq..seq+rows-1 are one transaction; marks: it also sets progress."""
        r = random.Random("t%d/%d/%d" % (self.seed, self.client, seq))
        rows = r.choice((1, 1, 1, 2, 5))
        return rows, rows > 1 or r.random() < 0.3


def client(engine, plan, socket, first, ackfile, until=None):
    """Runs as a forked child: transactions from row `first` on until the connection breaks.

    engine: the module that knows how its database is spoken to (mariadb.py, postgres.py).

    Returns 0 after `until` (monotonic seconds), 2 when a commit failed. Each acknowledgement goes
    to ackfile by one write(2) to a tmpfs, after the server has answered the commit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd = os.open(ackfile, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    c = plan.client
    seq = first
    try:
        cur = engine.cursor(socket)
        while until is None or time.monotonic() < until:
            rows, marks = plan.transaction(seq)
            last = seq + rows - 1
            inserts = ["INSERT INTO t VALUES (%d,%d,'%s')" % (c, s, plan.payload(s))
                       for s in range(seq, last + 1)]
            if rows == 1 and not marks:
                start = time.monotonic_ns()
                cur.execute(inserts[0])
            else:
                cur.execute("BEGIN")
                for i in inserts:
                    cur.execute(i)
                if marks:
                    cur.execute(engine.SET_PROGRESS % (c, last))
                start = time.monotonic_ns()
                cur.execute("COMMIT")
            os.write(fd, ACK.pack(last, start, time.monotonic_ns()))
            seq = last + 1
    except engine.ERRORS as e:
        os.write(2, ("client %d at row %d: %r\n" % (c, seq, e)).encode()) if until else None
        return 2
    return 0


def acks(path):
    """List of (last row, start ns, end ns), in order; empty when the client had none."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return []
    return list(ACK.iter_unpack(data[:len(data) - len(data) % ACK.size]))
