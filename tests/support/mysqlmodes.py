# SPDX-License-Identifier: LGPL-2.1-or-later
"""The modes of tests/db/mysql-modes: each is a function that disturbs a loaded server."""
import fcntl
import os
import re
import struct
import subprocess
import time

import load
import mysql
import mysql80
import mysqltwo
import powercut
import sandbox

REDO = re.compile(r"/#ib_redo(\d+)(_tmp)?$")
WAIT_SECONDS = 30.0  # a busy machine


class Modes:
    def __init__(self, box, builddir, fs, seed, template):
        self.box, self.builddir, self.fs, self.seed, self.template = box, builddir, fs, seed, template
        self.number = 0

    def run(self, name):
        """One mode with a power cut at its end: (what is wrong, a few words on what was seen)."""
        engine, args, function = MODES[name]
        self.number += 1
        # a folder of its own: names in the box are the campaign's
        inner = sandbox.Inner(self.box, "m%d" % self.number)
        c = powercut.Campaign(inner, self.builddir, self.fs, self.seed, engine=engine,
                              template=self.template)
        c.LANES = ("16MiB",)
        c.image.size = getattr(function, "size", 2 << 30)
        if self.fs == "ext4":  # inodes enough for a data directory, whatever the size
            c.image.mkfs = [*c.image.mkfs, "-N", "65536"]
        c.extra = list(args)
        one = Mode(inner, c)
        try:
            said = one.go(function)
        finally:
            for s in one.others:
                s.kill()
            c.abandon()
            inner.leave()
        return one.wrong, said


class Mode:
    """A loaded server; wrong collects what must not be."""

    def __init__(self, box, campaign):
        self.box, self.c = box, campaign
        self.wrong = []
        self.clients = {}
        self.others = []  # servers beside the first
        self.after = []  # functions to be called after the recovery

    def require(self, good, words, *args):
        if not good:
            self.wrong.append(words % args if args else words)
        return good

    @property
    def server(self):
        return self.c.server

    def go(self, function):
        c = self.c
        c.start_over(0)
        getattr(function, "before", lambda m: None)(self)
        c.since = c.engine.mark(c.datadir)
        self.clients = c.start_clients(0)
        c.check_accelerated(WAIT_SECONDS)
        said = function(self)
        ended = [n for n, (_, child) in self.clients.items() if child.poll() is not None]
        self.require(not ended, "clients ended under load: %s", ended)
        self.require(c.server.alive(), "the server ended under load")
        words = c.server.complaint()
        self.require(not words, "the server logged: %s", words)
        self.in_lane()
        every = [pid for s in self.others for pid in s.pids()] + c.server.pids()
        c.server.pids = lambda: every  # they lose power at one moment
        c.power_cut(self.clients)
        for s in self.others:
            s.kill()
        rec = {"acked": 0, "lost": 0, "quarantined": 0, "unstarted": 0, "problems": []}
        acked = dict(c.ledger.have)
        sent = c.read_acks(rec, self.clients, acked)
        live = c.product.live_bytes()
        c.restart(rec, "plain", None, acked, sent)
        self.wrong += rec["problems"]
        self.require(not rec["lost"], "lost %d", rec["lost"])
        for function in self.after if c.server.alive() else ():
            function()
        return "%sacked %d lost %d live_at_cut %d" % (said + ", " if said else "", rec["acked"], rec["lost"], live)

    def in_lane(self):
        """Redo log and binlog get records, and none of them is in bypass, within a while: a switch
        may be under way at any moment."""
        end = time.monotonic() + WAIT_SECONDS
        words = before = None
        while time.monotonic() < end:
            d = self.c.product.status().domain(mysql.NAME)
            words = ["%s %s" % (f["path"], f.get("reason")) for f in d["files"] if f["state"] != "lane"]
            current = {f["path"]: f["records"] for f in d["files"]}
            if before and not words and all(
                    any(p.search(path) and n > before.get(path, 0) for path, n in current.items())
                    for p in self.c.engine.LOGS):
                return
            before = before or current
            time.sleep(0.05)
        self.wrong.append("not in the lane: %s" % (words or "no new records in redo log or binlog"))

    def acks(self):
        return sum(len(load.acks(path)) for path, _ in self.clients.values())

    def commits(self, n):
        """Waits for n more commits."""
        want = self.acks() + n
        end = time.monotonic() + WAIT_SECONDS
        while self.acks() < want and time.monotonic() < end:
            time.sleep(0.02)
        self.require(self.acks() >= want, "no %d commits within %d s", n, WAIT_SECONDS)

    def until(self, seconds, question, words):
        """Asks until the answer is true."""
        end = time.monotonic() + seconds
        while not question():
            if time.monotonic() > end:
                return self.require(False, words)
            time.sleep(0.05)
        return True

    def redo_numbers(self):
        folder = os.path.join(self.c.datadir, "#innodb_redo")
        return sorted(int(m.group(1)) for n in os.listdir(folder) if (m := REDO.search("/" + n)) and not m.group(2))

    def redo_descriptors(self):
        """(path, descriptor) of each redo file that the server has open."""
        out = []
        folder = "/proc/%d/fd" % self.server.pid
        for fd in os.listdir(folder):
            try:
                path = os.readlink(os.path.join(folder, fd))
            except FileNotFoundError:
                continue
            if REDO.search(path):
                out.append((path, int(fd)))
        return out


def resize_to(m, mib):
    m.server.query("SET GLOBAL innodb_redo_log_capacity=%d" % (mib << 20))
    m.commits(30)
    m.until(WAIT_SECONDS, lambda: dict(m.server.query(
        "SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_resize_status'")).get(
            "Innodb_redo_log_resize_status") == "OK", "the resize to %d MiB does not end" % mib)


def resize(m):
    sizes = (16, 8, 64, 8)
    for size in sizes:
        resize_to(m, size)
    return "capacity %s MiB" % " ".join(map(str, sizes))


# Of GreatSQL's sample configuration for 8.0.32 what makes calls to the logs differ, by the words of its public
# documentation. Not its buffer pool of 128 GiB.
GREATSQL = [
    "--innodb-redo-log-capacity=16G", "--innodb-flush-method=O_DIRECT", "--innodb-log-buffer-size=32M",
    "--innodb-doublewrite-files=2", "--innodb-max-undo-log-size=4G", "--max-binlog-size=1G", "--binlog-cache-size=4M",
    "--binlog-rows-query-log-events=ON", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--relay-log=relaylog",
    "--relay-log-recovery=ON", "--replica-parallel-workers=16", "--replica-preserve-commit-order=ON"]


def greatsql(m):
    """Redo files of 512 MiB, made by FALLOC_FL_ZERO_RANGE, on a disk that is a sparse file."""
    m.commits(100)
    folder = os.path.join(m.c.datadir, "#innodb_redo")
    largest = max(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder))
    m.require(largest == 512 << 20, "the largest redo file has %d bytes", largest)
    said = direct(m)
    for gib in (1, 16):
        resize_to(m, gib << 10)
    return said + ", capacity 16, 1, 16 GiB"


greatsql.size = 24 << 30


def recycle(m):
    first = m.redo_numbers()[-1]
    m.until(2 * WAIT_SECONDS, lambda: m.redo_numbers()[-1] > first + 40,
            "the redo log did not go round in %d s" % (2 * WAIT_SECONDS))
    return "redo files %d to %d, %d binlogs" % (first, m.redo_numbers()[-1], len(mysql.binlogs(m.c.datadir)))


def threads(m):
    for state in ("OFF", "ON", "OFF", "ON"):
        m.server.query("SET GLOBAL innodb_log_writer_threads=" + state)
        m.commits(30)
    return "switched 4 times"


def direct(m):
    """The flag of the data files is the evidence that F_SETFL got through."""
    flags = {}
    folder = "/proc/%d/fd" % m.server.pid
    for fd in os.listdir(folder):
        try:
            path = os.readlink(os.path.join(folder, fd))
            with open("/proc/%d/fdinfo/%s" % (m.server.pid, fd)) as f:
                flags[path] = int(re.search(r"flags:\s+(\d+)", f.read()).group(1), 8)
        except FileNotFoundError:
            continue
    data = [p for p in flags if p.endswith((".ibd", "/ibdata1"))]
    m.require(data, "no data file is open")
    for path in data:
        m.require(flags[path] & os.O_DIRECT, "%s is not O_DIRECT", path)
    m.commits(50)
    return "%d data files direct" % len(data)


def locks(m):
    """MySQL gives up a redo file's lock itself: its checkpoint opens and closes the file a second time, which ends
    all locks of the process on it. So not each moment counts, but some must show the lock."""
    m.commits(20)
    for env in (m.c.env(), {}):  # with the library, and without
        second_refused(m, env)
    first = m.redo_numbers()[-1]
    held = seen = 0
    end = time.monotonic() + 2 * WAIT_SECONDS
    while (held < 5 or m.redo_numbers()[-1] < first + 2) and time.monotonic() < end:
        for path, _ in m.redo_descriptors():
            held += lock_holder(path) == m.server.pid
            seen += 1
        time.sleep(0.02)
    m.require(held >= 5, "looked %d times, and the open redo file was locked %d times", seen, held)
    return "looked %d times, locked %d times" % (seen, held)


def second_refused(m, env):
    second = mysql.Server(m.box, m.c.datadir, name="second", env=env)
    try:
        second.start(wait=False)
        # it tries again for 100 s
        m.until(2 * WAIT_SECONDS, lambda: "Unable to lock" in (second.complaint() or "") or not second.alive(),
                "a second server is not refused")
        m.require("Unable to lock" in (second.complaint() or ""), "a second server ended, and not for the lock: %s",
                  second.complaint())
    finally:
        second.kill()


def lock_holder(path):
    """Process that holds a POSIX lock on the whole file; None when nobody does."""
    # struct flock: type, whence, start, length, pid
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        r = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        kind, _, _, _, pid = struct.unpack("hhqqi4x", r)
        return pid if kind != fcntl.F_UNLCK else None
    finally:
        os.close(fd)


def large(m):
    """Binlogs worth purging, before the load: what the load writes is checked against the binlogs later."""
    m.server.query("CREATE TABLE d.big (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)")
    for _ in range(12):
        m.server.query("INSERT INTO d.big (v) VALUES (REPEAT('x', 6000000))")
    m.server.query("FLUSH BINARY LOGS")


def purge(m):
    files = mysql.binlogs(m.c.datadir)
    files = files[:files.index(m.c.since)]
    size = sum(os.path.getsize(f) for f in files)
    free, best = room(m.c.image.path), 0
    m.server.query("PURGE BINARY LOGS TO '%s'" % os.path.basename(m.c.since))

    def freed():
        nonlocal best
        best = max(best, room(m.c.image.path) - free)
        return best > size * 0.7  # the load takes some meanwhile

    m.until(WAIT_SECONDS, freed, "purged %d bytes of binlogs, and the space does not come back" % size)
    m.require(not any(os.path.exists(f) for f in files), "purged binlogs are there")
    m.commits(20)
    return "purged %d MB, %d MB free again" % (size / 1e6, best / 1e6)


purge.before = large


def room(path):
    st = os.statvfs(path)
    return st.f_bfree * st.f_frsize


def reader(m):
    """Each acknowledged row is in what a reader from outside finds, whatever is being written."""
    read = 0
    for _ in range(8):
        before = {n: load.acks(path)[-1:] for n, (path, _) in m.clients.items()}
        files = mysql.binlogs(m.c.datadir)
        found = {n: 0 for n in m.clients}
        try:
            for verb, table, value in mysql.decode(files, files[-1:]):
                if table == "d.t" and verb == "INSERT" and int(value[1]) in found:
                    found[int(value[1])] = int(value[2])
        except ValueError as e:
            m.wrong.append(str(e))
        for n, ack in before.items():
            m.require(not ack or found[n] >= ack[0][0], "client %d: row %s is acknowledged, mysqlbinlog finds %d",
                      n, ack and ack[0][0], found[n])
        read += len(files)
        m.commits(5)
    return "%d files read" % read


# engine, arguments of the server, what is done
MODES = {
    "resize": (mysql, [], resize),
    "recycle": (mysql80, ["--max-binlog-size=64K"], recycle),
    "threads": (mysql80, [], threads),
    "direct": (mysql, ["--innodb-flush-method=O_DIRECT"], direct),
    "greatsql": (mysql80, GREATSQL, greatsql),
    "locks": (mysql, [], locks),
    "purge": (mysql, [], purge),
    "reader": (mysql, [], reader),
    "clone": (mysql, mysqltwo.ARGS, mysqltwo.clone),
    "replica": (mysql, mysqltwo.ARGS, mysqltwo.replica),
}
