# SPDX-License-Identifier: LGPL-2.1-or-later
"""After a power cut: is every acknowledged row there, and do table and log agree?

The ledger knows how far each client had got at the last check. A check looks at every row of the
table (older ones by a checksum over them), at the rows decoded from the binlogs (where there are some), at
what the database itself says of its tables.
"""
from load import Plan


class Finding:
    """Outcome of one check: lost counts acknowledged rows, wrong lists everything else."""

    def __init__(self):
        self.lost = 0
        self.wrong = []
        self.rows = 0


class Ledger:
    """Per client: rows verified so far, running checksum, value of the progress row."""

    def __init__(self, engine, seed, clients, sizes=None):
        self.engine = engine
        self.plans = {c: Plan(seed, c, sizes) for c in range(1, clients + 1)}
        self.have = {c: 0 for c in self.plans}
        self.sum = {c: 0 for c in self.plans}
        self.mark = {c: None for c in self.plans}

    def first(self, c):
        return self.have[c] + 1

    def digest(self, c, seq):
        """Of the row that the client was to write."""
        return self.engine.digest(self.plans[c].payload(seq))

    def check(self, server, acked, sent, since, cut=()):
        """acked: client -> last acknowledged row; sent: the same or later, what an answer may have
        been given to (one more transaction can have been under way). since: the engine's mark() of the log
        before the first row after the last check; cut: marks of the last logs before a kill or a power cut. Moves the ledger on to what is there, whatever that is."""
        f = Finding()
        logged = self.engine.logged(server, since, cut, self.plans, self.mark)
        if logged:
            f.wrong += logged[2]
        for c, plan in self.plans.items():
            self._client(server, c, plan, acked[c], sent[c], logged, f)
        stray = server.query("SELECT COUNT(*) FROM d.t WHERE client NOT IN (%s)"
                             % ",".join(map(str, self.plans)))[0][0]
        if stray:
            f.wrong.append("%d rows of no client" % stray)
        f.wrong += self.engine.check_tables(server)
        return f

    def lacks(self, server, acked):
        """Words for each client of whose acknowledged rows, from the first on, some are missing or wrong.
        Changes nothing here."""
        out = []
        for c, last in acked.items():
            n, mix = server.query("SELECT COUNT(*), COALESCE(BIT_XOR(%s),0) FROM d.t WHERE client=%d AND seq<=%d"
                                  % (self.engine.MIX, c, last))[0]
            want = self.sum[c]
            for seq in range(self.have[c] + 1, last + 1):
                want ^= self.engine.mix(self.digest(c, seq), seq)
            if (n, mix) != (last, want):
                out.append("client %d: %d of %d acknowledged rows%s" % (c, n, last, "" if n != last else ", some wrong"))
        return out

    def _client(self, server, c, plan, acked, sent, logged, f):
        old = self.have[c]
        n, mix = server.query(
            "SELECT COUNT(*), COALESCE(BIT_XOR(%s),0) FROM d.t"
            " WHERE client=%d AND seq<=%d" % (self.engine.MIX, c, old))[0]
        if n != old or mix != self.sum[c]:
            f.lost += max(1, old - n)
            f.wrong.append("client %d: rows 1..%d had been verified and changed" % (c, old))
        table = server.query("SELECT seq, %s FROM d.t WHERE client=%d AND seq>%d ORDER BY seq"
                             % (self.engine.DIGEST, c, old))
        have = {seq for seq, _ in table}
        gone = [s for s in range(old + 1, acked + 1) if s not in have]
        if gone:
            f.lost += len(gone)
            f.wrong.append("client %d: %d acknowledged rows missing, first %d, last acknowledged %d"
                           % (c, len(gone), gone[0], acked))
        # No hole, nothing beyond the one transaction that was under way, every byte right.
        last = max(have, default=old)
        if len(have) != last - old:
            f.wrong.append("client %d: %d rows in %d..%d" % (c, len(have), old + 1, last))
        bad = [seq for seq, crc in table if crc != self.digest(c, seq)]
        if bad:
            f.lost += sum(1 for s in bad if s <= acked)
            f.wrong.append("client %d: %d rows with wrong content, first %d" % (c, len(bad), bad[0]))
        if logged and logged[0][c] != list(table):
            f.wrong.append("client %d: binlogs hold %d rows up to %d, the table %d up to %d"
                           % (c, len(logged[0][c]), max((s for s, _ in logged[0][c]), default=old),
                              len(table), last))
        # Transactions are whole, and the progress row is the one of the last that set it.
        seq, mark = old + 1, self.mark[c]
        while seq <= last:
            rows, marks = plan.transaction(seq)
            if seq <= acked < seq + rows - 1:
                f.wrong.append("client %d: row %d acknowledged within a transaction" % (c, acked))
            if seq > sent + 1:
                f.wrong.append("client %d: row %d was never sent" % (c, seq))
                break
            if marks:
                mark = seq + rows - 1
            seq += rows
        if seq != last + 1:
            f.wrong.append("client %d: transaction torn at row %d" % (c, last))
        found = server.query("SELECT MAX(seq) FROM d.progress WHERE client=%d" % c)[0][0]
        if found != mark or (logged and logged[1][c] != mark):
            f.wrong.append("client %d: progress %s, in the binlogs %s, should be %s"
                           % (c, found, logged and logged[1][c], mark))
        for s, crc in table:
            self.sum[c] ^= self.engine.mix(crc, s)
        self.have[c], self.mark[c] = last, mark
        f.rows += len(table)
