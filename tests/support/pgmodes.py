# SPDX-License-Identifier: LGPL-2.1-or-later
"""The modes of tests/db/postgres-modes: each is a life of a cluster, from a fresh copy to the check after the cut."""
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import postgres

SEGMENT = re.compile(r"[0-9A-F]{24}$")
SECONDS = 0.7  # under load before the cut


class Mode:
    """One life: fresh cluster, load, cut, recovery, check. Subclasses change what they name."""

    settings = {}

    def __init__(self, campaign):
        self.c = campaign
        self.wrong = []

    def arrange(self):
        """Before the first start."""

    def under_load(self):
        """In the middle of it."""
        time.sleep(SECONDS)

    def before_the_cut(self):
        """Clients still write."""

    def after(self, sent):
        """The server runs again and all rows are checked; sent: client -> last row that may be there."""

    def go(self):
        """From the start to the end of one life: the campaign's record."""
        try:
            return self.life()
        finally:
            self.end()
            self.c.abandon()

    def life(self):
        c = self.c
        c.extra = [w for k, v in self.settings.items() for w in ("-c", "%s=%s" % (k, v))]
        c.arrange = self.arrange
        c.start_over(0)
        c.since = None
        self.clients = c.start_clients(0)
        c.check_accelerated(timeout=20)
        self.under_load()
        self.in_the_lane()
        self.before_the_cut()
        c.power_cut(self.clients)
        rec = {"acked": 0, "lost": 0, "quarantined": 0, "unstarted": 0, "problems": []}
        acked = dict(c.ledger.have)
        sent = c.read_acks(rec, self.clients, acked)
        self.acked = acked
        rec["live"] = c.product.live_bytes()
        c.restart(rec, "plain", None, acked, sent)
        self.wrong += rec["problems"]
        if rec["lost"] or rec["quarantined"] or rec["unstarted"]:
            self.wrong.append("lost %(lost)d quarantined %(quarantined)d unstarted %(unstarted)d" % rec)
        else:
            self.after(sent)
        return rec

    def end(self):
        """Ends what of its own still runs, however far it got."""

    def in_the_lane(self, domain=None):
        """None of the files may have gone to bypass; a busy machine gets time to take them back."""
        end = time.monotonic() + 10
        while True:
            files = self.c.product.status().files(domain or self.c.engine.NAME)
            words = ["%s: %s (%s)" % (f["path"], f["state"], f.get("reason"))
                     for f in files if f["state"] != "lane"]
            if not words:
                break
            if time.monotonic() > end:
                self.wrong += words
                break
            time.sleep(0.1)
        if not any(f["records"] for f in files):
            self.wrong.append("no records in domain %s" % (domain or self.c.engine.NAME))

    def segments(self):
        return sorted(p for p in glob.glob(os.path.join(self.c.datadir, "pg_wal", "*")) if SEGMENT.search(p))

    def switch(self, times=2):
        for _ in range(times):
            self.c.engine.switch_logs(self.c.server, None)


def sync_method(method, **more):
    return type("SyncMethod", (Mode,), {"settings": dict(wal_sync_method=method, **more)})


class Linked(Mode):
    """pg_wal is a link to a folder of another name."""

    def arrange(self):
        wal, away = os.path.join(self.c.datadir, "pg_wal"), os.path.join(self.c.image.path, "log")
        shutil.move(wal, away)
        os.symlink(away, wal)


class NeverAgain(Mode):
    """Segments are made with one byte at their end, and removed."""

    settings = {"wal_recycle": "off", "wal_init_zero": "off"}

    def under_load(self):
        super().under_load()
        self.switch()


class Archived(Mode):
    """/bin/sh and cp run with the library in them; what they copy is what recovery reads."""

    def arrange(self):
        self.archive = self.c.box.folder("archive", owner=self.c.engine.USER)
        for name in os.listdir(self.archive):
            os.unlink(os.path.join(self.archive, name))
        self.c.extra += ["-c", "archive_mode=on", "-c", "archive_command=cp %%p %s/%%f" % self.archive]

    def under_load(self):
        super().under_load()
        self.switch(3)

    def before_the_cut(self):
        server = self.c.server
        last = server.query("SELECT pg_walfile_name(pg_switch_wal())")[0][0]
        end = time.monotonic() + 30
        while not os.path.exists(os.path.join(self.archive, last)) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.1)
        names = sorted(os.listdir(self.archive))
        if last not in names:
            self.wrong.append("segment %s was not archived" % last)
        for name in names:
            self.readable(os.path.join(self.archive, name), name)

    def readable(self, path, name):
        """A whole segment ends where the next one begins, not earlier."""
        r = waldump(path)
        if os.path.getsize(path) != 1 << 20:
            self.wrong.append("%s: %d bytes" % (name, os.path.getsize(path)))
        if "error in WAL record" in r.stderr and not re.search(r"desc: SWITCH|contrecord", r.stdout + r.stderr):
            self.wrong.append("archived %s ends early: %s" % (name, r.stderr.strip()[-200:]))


class Received(Mode):
    """pg_receivewal --synchronous, with the library in it, writes segments of the same names elsewhere."""

    def arrange(self):
        self.target = self.c.box.folder("received", mode=0o700, owner=self.c.engine.USER)
        for name in os.listdir(self.target):
            os.unlink(os.path.join(self.target, name))

    def under_load(self):
        c = self.c
        self.receiver = c.box.spawn(
            [os.path.join(c.engine.BIN, "pg_receivewal"), "-h", c.server.socket, "-U", "postgres", "-D", self.target,
             "--synchronous"], log="receivewal.log", user=c.engine.USER, group=c.engine.USER, extra_groups=[],
            env=dict(LC_ALL="C", PATH=os.environ["PATH"], **c.env()))
        super().under_load()
        self.switch(1)

    def before_the_cut(self):
        taken = [f["path"] for f in self.c.product.status().files(self.c.engine.NAME)
                 if f["path"].startswith(self.target)]
        if taken:
            self.wrong.append("taken over: " + ", ".join(taken))
        end = time.monotonic() + 20
        while not self.whole() and time.monotonic() < end:
            time.sleep(0.1)
        if not self.whole():
            self.wrong.append("nothing received: %s" % os.listdir(self.target))
        self.receiver.kill()
        self.receiver.wait()
        self.c.box.forget(self.receiver)
        for name in self.whole():
            mine = os.path.join(self.c.datadir, "pg_wal", name)
            if os.path.exists(mine) and not same(mine, os.path.join(self.target, name)):
                self.wrong.append("%s was received otherwise than it was written" % name)

    def whole(self):
        return [n for n in os.listdir(self.target) if SEGMENT.search(n)]


class Read(Mode):
    """pg_waldump without the library follows the writers: it finds no record damaged before the end."""

    def under_load(self):
        end = time.monotonic() + SECONDS
        read = 0
        while time.monotonic() < end or read < 3:
            flushed = self.c.server.query("SELECT pg_walfile_name(pg_current_wal_flush_lsn()), "
                                          "pg_current_wal_flush_lsn()")[0]
            path = os.path.join(self.c.datadir, "pg_wal", flushed[0])
            if flushed[1].endswith("000000"):
                continue
            r = waldump(path)
            last = re.findall(r"lsn: ([0-9A-F]+/[0-9A-F]+)", r.stdout)
            if not os.path.exists(path) or not last:
                continue  # it begins in the middle of a long record
            read += 1
            stopped = re.search(r"error in WAL record at ([0-9A-F]+/[0-9A-F]+)", r.stderr)
            if stopped and lsn(stopped.group(1)) < lsn(last[-1]):
                self.wrong.append(r.stderr.strip())
            if lsn(last[-1]) + (64 << 10) < lsn(flushed[1]) and "contrecord" not in r.stderr:
                self.wrong.append("%s: read up to %s, flushed up to %s: %s" % (
                    flushed[0], last[-1], flushed[1], r.stderr.strip()))


class Crowd(Mode):
    """300 backends that all have committed, each by descriptors of its own."""

    settings = {"max_connections": 330, "shared_buffers": "64MB"}
    BACKENDS = 300

    def under_load(self):
        c = self.c
        c.server.query("CREATE TABLE d.crowd (n INT, turn INT)")
        self.open = [c.server.connect() for _ in range(self.BACKENDS)]
        self.turns = 2
        for turn in range(self.turns):
            for n, one in enumerate(self.open):
                one.execute("INSERT INTO d.crowd VALUES (%d,%d)" % (n, turn))

    def after(self, sent):
        for one in self.open:
            one.close()
        found = self.c.server.query("SELECT COUNT(DISTINCT (n,turn)) FROM d.crowd")[0][0]
        if found != self.BACKENDS * self.turns:
            self.wrong.append("%d rows of 300 backends, %d acknowledged" % (found, self.BACKENDS * self.turns))


class Again(Mode):
    """The server goes down without its consent, recovers while the daemon lives, and takes new writers."""

    def down(self):
        raise NotImplementedError

    def under_load(self):
        c = self.c
        super().under_load()
        self.down()
        for _, child in self.clients.values():
            child.kill()
            child.wait()
            c.box.forget(child)
        rec = {"acked": 0}
        c.cut_at = time.monotonic_ns()
        acked = dict(c.ledger.have)
        sent = c.read_acks(rec, self.clients, acked)
        f = c.ledger.check(c.server, acked, sent, None)
        self.wrong += f.wrong
        self.clients = c.start_clients(1)
        super().under_load()


class BackendKilled(Again):
    def down(self):
        server = self.c.server
        rows = []
        for _ in range(500):  # for a moment all of them may be at BEGIN or COMMIT
            rows = server.query("SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO t%' LIMIT 1")
            if rows:
                break
            time.sleep(0.01)
        os.kill(rows[0][0], signal.SIGKILL)
        time.sleep(0.2)
        server.wait_ready()


class Immediate(Again):
    def down(self):
        self.c.server.stop(how=signal.SIGQUIT)
        self.c.server.start()


def waldump(path):
    return subprocess.run([os.path.join(postgres.BIN, "pg_waldump"), path], capture_output=True, text=True)


def lsn(text):
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def same(a, b):
    with open(a, "rb") as f, open(b, "rb") as g:
        return f.read() == g.read()
