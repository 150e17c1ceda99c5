# SPDX-License-Identifier: LGPL-2.1-or-later
"""A private MariaDB: own data directory, own socket, no network, never the system's instance."""
import os
import re
import signal
import struct
import subprocess
import time
import zlib

import pymysql

from sandbox import run

PROGRAMS = ["mariadbd", "mariadb-install-db", "mariadb-binlog"]
PACKAGES = "mariadb-server python3-pymysql"
USER = "mysql"
NAME = "mariadb"  # of the engine, its domain
RULES = "mariadb"  # file in etc/preload.d
LOGS = (re.compile(r"/ib_logfile\d+$"), re.compile(r"/mysql-bin\.\d+$"))
# As etc/preload.d/mariadb.ini: the redo log and the binlogs.
NOSYNC_PATHS = "*/ib_logfile[0-9]*:ib_logfile[0-9]*:*-bin.[0-9]*"

TABLES = [
    "CREATE DATABASE d",
    "CREATE TABLE d.t (client INT, seq INT, v LONGBLOB, PRIMARY KEY (client, seq)) ENGINE=InnoDB",
    "CREATE TABLE d.progress (client INT PRIMARY KEY, seq INT) ENGINE=InnoDB",
]
SET_PROGRESS = "REPLACE INTO progress VALUES (%d,%d)"
ERRORS = (pymysql.err.MySQLError, OSError)
# What a row's payload is checked by, and what all rows of a client are checked by, XORed.
DIGEST = "CRC32(v)"
MIX = "CRC32(CONCAT(CRC32(v),':',seq))"

# Small binlogs rotate under load; ROTATE: one after the other.
BUSY = ["--max-binlog-size=1M"]
ROTATE = ["--max-binlog-size=64K"]
STILL = ["--max-binlog-size=1G"]  # none is made

# As durable as MariaDB gets, and small, so that a restart takes a fraction of a second.
SETTINGS = [
    "--skip-networking", "--skip-name-resolve",
    "--server-id=1", "--binlog-format=ROW", "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-log-buffer-size=2M",
    "--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0",
    "--max-allowed-packet=16M", "--performance-schema=0",
]

# For bench/db: the size of a small real one; what its logs are called, and how they are put elsewhere.
BENCH = ["--innodb-buffer-pool-size=128M", "--innodb-log-file-size=128M", "--innodb-log-buffer-size=16M",
         "--max-connections=50"]
LOG_NAMES = ("ib_logfile", "mysql-bin")
RESET_LOGS = "RESET MASTER"
BENCH_INSTALL = ()


def logs_in(folder, _):
    return ["--innodb-log-group-home-dir=" + folder, "--log-bin=" + os.path.join(folder, "mysql-bin")]


class StartFailed(RuntimeError):
    pass


def digest(payload):
    """As the server computes DIGEST."""
    return zlib.crc32(payload.encode())


def mix(d, seq):
    """As the server computes MIX, of a row whose digest is d."""
    return zlib.crc32(b"%d:%d" % (d, seq))


def cursor(socket):
    """For a client of the load: execute(statement)."""
    return pymysql.connect(unix_socket=socket, user="root", database="d", autocommit=True).cursor()


class Server:
    """start() returns when it answers; kill() is SIGKILL; stop() is a clean shutdown."""

    def __init__(self, box, datadir, name="mariadb", env=None, args=()):
        self.box = box
        self.datadir = datadir
        self.name = name
        self.socket = os.path.join(box.folder("run-" + name, mode=0o755, owner=USER), "s")
        self.log = os.path.join(box.path, name + ".log")
        self.env = dict(env or {})
        self.args = list(args)
        self.process = None

    def argv(self):
        # later options win, so self.args may change what SETTINGS says
        return (["mariadbd", "--no-defaults", "--datadir=" + self.datadir, "--socket=" + self.socket,
                 "--pid-file=%s.pid" % self.socket,
                 "--log-bin=mysql-bin"]
                + SETTINGS + self.args)

    def identity(self):
        """How the process becomes the database's user."""
        return {"user": USER, "group": USER, "extra_groups": []}

    def start(self, timeout=60, wait=True):
        self.log_from = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PMEMLOGD_"))}
        env["TMPDIR"] = self.box.folder("tmp", mode=0o1777)
        env.update(self.env)
        self.process = self.box.spawn(self.argv(), log=self.name + ".log", env=env, cwd="/",
                                      **self.identity())
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=60):
        end = time.monotonic() + timeout
        while True:
            try:
                self.connect().close()
                return
            except (pymysql.err.OperationalError, OSError):
                pass
            if self.process.poll() is not None:
                raise StartFailed("%s: exit %s: %s" % (self.name, self.process.returncode,
                                                       self.complaint()))
            if time.monotonic() > end:
                self.kill()
                raise StartFailed("%s: no answer after %d s" % (self.name, timeout))
            time.sleep(0.01)

    def complaint(self):
        """The first error that this run wrote to its log; None: it wrote none."""
        with open(self.log, errors="replace") as f:
            f.seek(self.log_from)
            for line in f:
                if "[ERROR]" in line:
                    return line.split("[ERROR]", 1)[1].strip()
        return None

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def pids(self):
        """All processes that work on its files."""
        return [self.process.pid] if self.alive() else []

    def connect(self, **kw):
        kw.setdefault("autocommit", True)
        return pymysql.connect(unix_socket=self.socket, user="root", **kw)

    def sysbench(self):
        return ["--db-driver=mysql", "--mysql-socket=" + self.socket, "--mysql-user=root"]

    def query(self, sql, db=None):
        """Rows of one statement, on a connection of its own."""
        c = self.connect(database=db)
        try:
            with c.cursor() as cur:
                cur.execute(sql)
                return cur.fetchall()
        finally:
            c.close()

    def _reap(self):
        self.process.wait()
        self.box.forget(self.process)
        self.process = None

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self._reap()

    def stop(self, timeout=60):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=timeout)
        status = self.process.returncode
        self._reap()
        if status:
            raise RuntimeError("%s: exit %d at a clean stop" % (self.name, status))

    def preloaded(self, library):
        """Is the library mapped in the running server? ld.so only warns when it is missing."""
        with open("/proc/%d/maps" % self.pid) as f:
            return os.path.basename(library) in f.read()


def install(path):
    """An empty data directory in the folder, which belongs to the database's user."""
    # A server that starts removes all that looks like a temporary table from there, anybody's.
    tmp = os.path.join(os.path.dirname(path), "tmp")
    os.makedirs(tmp, exist_ok=True)
    os.chmod(tmp, 0o1777)
    run(["mariadb-install-db", "--no-defaults", "--user=" + USER, "--datadir=" + path,
         "--skip-test-db", "--auth-root-authentication-method=normal",
         "--innodb-log-file-size=8M"], env=dict(os.environ, TMPDIR=tmp))


def prepare(box, name, sql=(), args=()):
    """Makes a data directory with the given statements run in it, cleanly stopped."""
    path = box.folder(name, mode=0o700, owner=USER)
    install(path)
    s = Server(box, path, name="prepare", args=args).start()
    for q in sql:
        s.query(q)
    # Only what the test itself commits shall be in the binlogs.
    s.query(RESET_LOGS)
    s.stop()
    return path


def copy(template, target):
    """A fresh copy of a prepared data directory, owned as it was."""
    run(["cp", "-a", "--reflink=auto", template, target])
    return target


def binlogs(datadir, base="mysql-bin"):
    """Paths of the binlogs in order, from the index file."""
    with open(os.path.join(datadir, base + ".index")) as f:
        names = [os.path.basename(line.strip()) for line in f if line.strip()]
    return [os.path.join(datadir, n) for n in names]


def mark(datadir):
    """Where the log stands: what comes after it is checked by logged()."""
    return binlogs(datadir)[-1]


def switch_logs(server, since):
    """A new binlog, and the old ones that no check needs purged."""
    files = binlogs(server.datadir)
    server.query("FLUSH BINARY LOGS")
    server.query("PURGE BINARY LOGS TO '%s'" % os.path.basename(since if since in files else files[0]))


def resize_logs(server):
    """A new redo log, renamed over the old one."""
    size = server.query("SELECT @@innodb_log_file_size")[0][0]
    server.query("SET GLOBAL innodb_log_file_size=%d" % ((8 << 20) if size > (8 << 20) else (12 << 20)))


def check_tables(server):
    """What the database itself finds wrong with its tables."""
    return ["CHECK TABLE %s: %s %s" % (table, row[2], row[3])
            for table in ("d.t", "d.progress")
            for row in server.query("CHECK TABLE %s EXTENDED" % table)
            if row[2] != "status" or row[3] != "OK"]


def check_stopped(datadir):
    """What is found wrong in the files of a server that was stopped: nothing is looked at."""
    return []


def logged(server, since, cut, clients, marks):
    """What the log holds from `since` on: (client -> list of (seq, digest), client -> progress, problems).
    marks: the progress before."""
    return collect(decode(after(binlogs(server.datadir), since), cut), clients, marks)


def after(files, since):
    """The binlogs from that one on, or all when it is gone."""
    return files[files.index(since):] if since in files else files


def collect(changes, clients, marks):
    """What logged() returns, of the changes that decode() yields."""
    rows, marks, wrong = {c: [] for c in clients}, dict(marks), []
    try:
        for verb, table, value in changes:
            c, seq = int(value[1]), int(value[2])
            if table == "d.t" and verb == "INSERT" and c in rows:
                rows[c].append((seq, digest(value[3][1:-1])))
            elif table == "d.progress" and c in rows:
                marks[c] = seq
            else:
                wrong.append("binlog: %s %s (%s, %s)" % (verb, table, c, seq))
    except ValueError as e:
        wrong.append(str(e))
    return rows, marks, wrong


_VALUE = re.compile(r"###   @(\d+)=(.*)")


def decode(files, cut=(), program="mariadb-binlog", enter=None):
    """Yields (verb, table, values) for each row change of a committed transaction, in order.

    verb is INSERT, UPDATE or DELETE; values maps column number to text: the row after the change
    (for DELETE: before). Raises when mariadb-binlog cannot read a file to its end; but the files
    in `cut`, the last ones before the server was killed or its power cut, may end within an event,
    or with one of which nothing but zeros is left. The server writes a large transaction in
    several calls and acknowledges none of it before the last; and where the log is not
    accelerated (opened while no daemon was there), ext4 may have set its size before its blocks.
    What was acknowledged behind such an event is missed when rows and binlogs are compared.
    """
    for path in files:
        yield from _decode(path, path in cut, program, enter)


def _ends_in_zeros(path):
    """Is every event right but the last one that holds anything, of which nothing but zeros is left from some
    byte on, to the file's end?"""
    with open(path, "rb") as f:
        data = f.read()
    there, at = len(data.rstrip(b"\0")), 4
    while at + 19 <= len(data):
        length = struct.unpack_from("<I", data, at + 9)[0]
        end = at + length
        if length < 23 or end > len(data):
            return at <= there
        if data[at + 4] != 15:  # the first one, whose flag is cleared at the end
            if zlib.crc32(data[at:end - 4]) != struct.unpack_from("<I", data, end - 4)[0]:
                return at < there < end
        at = end
    return False


def _decode(path, may_be_torn, program, enter):
    p = subprocess.Popen([program, "--no-defaults", "--base64-output=decode-rows", "-v",
                          "--verify-binlog-checksum", path],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                         preexec_fn=enter)
    rows, row = [], None
    for line in p.stdout:
        if line.startswith("### "):
            line = line.rstrip("\n")
            m = _VALUE.match(line)
            if m:
                row[2][int(m.group(1))] = m.group(2)
            elif line.startswith(("### INSERT INTO ", "### UPDATE ", "### DELETE FROM ")):
                row = (line.split()[1], line.split()[-1].replace("`", ""), {})
                rows.append(row)
        elif line.startswith("COMMIT"):
            yield from rows
            rows, row = [], None
        elif line.startswith("ROLLBACK") and not line.startswith("ROLLBACK/*!*/"):
            rows, row = [], None
    errors = p.stderr.read()
    if p.wait() or "ERROR" in errors:
        torn = "Event truncated" in errors or ("Event crc check failed" in errors and
                                               _ends_in_zeros(path))
        if not (may_be_torn and torn):
            raise ValueError("%s: %s: exit %d %s" % (
                os.path.basename(path), program, p.returncode, errors.strip()[:400]))
