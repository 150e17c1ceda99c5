# SPDX-License-Identifier: LGPL-2.1-or-later
"""A private PostgreSQL: own data directory, own socket, no network, never the system's cluster."""
import ctypes
import hashlib
import os
import re
import signal
import subprocess
import time

import pgwire
from sandbox import run

BIN = "/usr/lib/postgresql/15/bin"
PROGRAMS = [os.path.join(BIN, p) for p in ("postgres", "initdb", "pg_checksums")]
PACKAGES = "postgresql-15"
USER = "postgres"
NAME = "postgres"  # of the engine, its domain
RULES = "postgresql"
LOGS = (re.compile(r"/[0-9A-F]{24}$"),)
NOSYNC_PATHS = "*pg_wal/0*"

TABLES = [
    "CREATE EXTENSION amcheck",
    "CREATE SCHEMA d",
    "CREATE TABLE d.t (client INT, seq INT, v TEXT, PRIMARY KEY (client, seq))",
    # as large in the WAL as they are: what repeats itself would be compressed
    "ALTER TABLE d.t ALTER COLUMN v SET STORAGE EXTERNAL",
    "CREATE TABLE d.progress (client INT PRIMARY KEY, seq INT)",
]
READS_FIRST = True
SET_PROGRESS = ("INSERT INTO progress VALUES (%d,%d)"
                " ON CONFLICT (client) DO UPDATE SET seq=EXCLUDED.seq")
ERRORS = (pgwire.Error, OSError)
_MD5 = "('x'||left(md5(%s),8))::bit(32)::bigint"
DIGEST = _MD5 % "v"
MIX = _MD5 % ("(%s)::text||':'||seq" % DIGEST)

# As durable as PostgreSQL gets; a port is a name only, there is no network.
SETTINGS = ["-h", "", "-c", "shared_buffers=32MB", "-c", "fsync=on", "-c", "synchronous_commit=on",
            "-c", "full_page_writes=on"]
# Segments are switched, made, renamed and recycled all the time; ROTATE: a checkpoint after each.
BUSY = ["-c", "max_wal_size=6MB", "-c", "min_wal_size=3MB"]
ROTATE = ["-c", "max_wal_size=2MB", "-c", "min_wal_size=2MB"]
STILL = ["-c", "max_wal_size=4GB", "-c", "checkpoint_timeout=1h"]  # segments are made, and none is renamed

# For bench/db: no checkpoint by size or time within a run.
BENCH = ["-c", "shared_buffers=128MB", "-c", "max_wal_size=4GB", "-c", "min_wal_size=1GB",
         "-c", "checkpoint_timeout=1h", "-c", "autovacuum=off", "-c", "max_connections=50"]
BENCH_INSTALL = ("--wal-segsize=16",)
LOG_NAMES = ("pg_wal",)
RESET_LOGS = "CHECKPOINT"

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWIPC = 0x08000000


class StartFailed(RuntimeError):
    pass


def digest(payload):
    """As the server computes DIGEST."""
    return int(hashlib.md5(payload.encode()).hexdigest()[:8], 16)


def mix(d, seq):
    """As the server computes MIX, of a row whose digest is d."""
    return digest("%d:%d" % (d, seq))


def cursor(socket):
    """For a client of the load: execute(statement)."""
    return pgwire.Connection(socket, search_path="d")


def isolate(box):
    """Shared memory of killed servers goes with this program; their processes are left to it."""
    if getattr(box, "has_postgres", False):
        return
    box.has_postgres = True
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if _libc.unshare(_CLONE_NEWIPC):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWIPC)")
    run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"])  # in our mount namespace
    box.mounts.append("/dev/shm")


def children(pid):
    """Processes that it has forked; none when it is gone."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(p) for p in f.read().split()]
    except FileNotFoundError:
        return []


class Server:
    """start() returns when it answers; kill() is SIGKILL for all its processes; stop() a clean shutdown."""

    def __init__(self, box, datadir, name="postgres", env=None, args=()):
        isolate(box)
        self.box = box
        self.datadir = datadir
        self.name = name
        self.socket = box.folder("run-" + name, mode=0o755, owner=USER)
        self.log = os.path.join(box.path, name + ".log")
        self.env = dict(env or {})
        self.args = list(args)
        self.process = None
        self.stopped = []  # processes of it that somebody kills

    def argv(self):
        return [os.path.join(BIN, "postgres"), "-D", self.datadir, "-k", self.socket] + SETTINGS + self.args

    def start(self, timeout=60, wait=True):
        self.log_from = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PMEMLOGD_", "PG"))}
        env.update(LC_ALL="C", **self.env)
        self.process = self.box.spawn(self.argv(), log=self.name + ".log", user=USER, group=USER,
                                      extra_groups=[], env=env, cwd="/")
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=60):
        end = time.monotonic() + timeout
        while True:
            try:
                self.connect().close()
                return
            except ERRORS:
                pass
            if self.process.poll() is not None:
                raise StartFailed("%s: exit %s: %s" % (self.name, self.process.returncode,
                                                       self.complaint()))
            if time.monotonic() > end:
                words = self.complaint()
                self.kill()
                raise StartFailed("%s: no answer after %d s: %s" % (self.name, timeout, words))
            time.sleep(0.03)

    def complaint(self):
        """The first error of this run in its log that is not about somebody who connects; None: none."""
        with open(self.log, errors="replace") as f:
            f.seek(self.log_from)
            lines = f.read().splitlines()
        for level in ("PANIC:", "FATAL:"):
            for line in lines:
                if level in line and not re.search(
                        r"the database system|terminating|connection|could not open .* log file", line):
                    return line.split(level, 1)[1].strip()
        return None

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def pids(self):
        """The postmaster and all that it has forked; kill() waits for these, too."""
        found = [self.process.pid] + children(self.process.pid) if self.alive() else []
        self.stopped = sorted({*self.stopped, *found[1:]})
        return found

    def connect(self, **kw):
        return pgwire.Connection(self.socket, **kw)

    def sysbench(self):
        return ["--db-driver=pgsql", "--pgsql-host=" + self.socket, "--pgsql-user=" + USER,
                "--pgsql-password=", "--pgsql-db=sbtest"]

    def query(self, sql):
        """Rows of one statement, on a connection of its own."""
        with self.connect() as c:
            return c.execute(sql)

    def _reap(self, others=()):
        self.process.wait()
        self.box.forget(self.process)
        self.process = None
        end = time.monotonic() + 30
        for pid in others:
            while time.monotonic() < end:
                try:
                    if os.waitpid(pid, os.WNOHANG)[0]:
                        break
                except ChildProcessError:
                    if not os.path.exists("/proc/%d" % pid):
                        break
                time.sleep(0.002)

    def kill(self):
        """All of them at once, as a power cut does it, and waits until they are gone."""
        if not self.process:
            return
        if self.alive():
            self.process.send_signal(signal.SIGSTOP)  # it must not fork meanwhile
        others = children(self.process.pid) + self.stopped
        self.stopped = []
        for pid in {self.process.pid, *others}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._reap(others)

    def stop(self, timeout=60, how=signal.SIGINT):
        """SIGINT: fast; SIGTERM: waits for the clients; SIGQUIT: immediate, as after a crash."""
        self.process.send_signal(how)
        self.process.wait(timeout=timeout)
        status = self.process.returncode
        self._reap()
        if status:
            raise RuntimeError("%s: exit %d at a clean stop" % (self.name, status))

    def preloaded(self, library):
        """Is the library mapped in the running server? ld.so only warns when it is missing."""
        with open("/proc/%d/maps" % self.pid) as f:
            return os.path.basename(library) in f.read()


def tool(name, *words, env=None, **kw):
    """Runs one of its programs as its user to the end; what it said."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PMEMLOGD_", "PG"))}
    return run([os.path.join(BIN, name), *words], user=USER, group=USER, extra_groups=[], cwd="/",
               env=dict(clean, LC_ALL="C", **(env or {})), **kw)


def install(path, *words):
    """An empty cluster in the folder, with checksums and segments of 1 MiB."""
    tool("initdb", "-D", path, "-k", "-N", "-A", "trust", "-E", "UTF8", "--locale=C",
         "--wal-segsize=1", *words)


def prepare(box, name, sql=(), args=(), initdb=()):
    """Makes a cluster with the given statements run in it, cleanly stopped."""
    path = box.folder(name, mode=0o700, owner=USER)
    install(path, *initdb)
    s = Server(box, path, name="prepare", args=args).start()
    for q in sql:
        s.query(q)
    s.stop()
    return path


def copy(template, target):
    """A fresh copy of a prepared cluster, owned as it was."""
    run(["cp", "-a", "--reflink=auto", template, target])
    return target


def logs_in(folder, data):
    """pg_wal was moved into the folder; PostgreSQL takes a symbolic link for it."""
    os.symlink(os.path.join(folder, "pg_wal"), os.path.join(data, "pg_wal"))
    return []


def mark(_):
    """Rows are held against the log by recovery alone."""
    return None


def logged(*_):
    return None


def switch_logs(server, _):
    """A new segment; the old ones are renamed to be used again."""
    server.query("SELECT pg_switch_wal()")
    server.query("CHECKPOINT")


def resize_logs(server):
    """From now on the other way: old segments removed and new ones made, or renamed and used again."""
    on = server.query("SHOW wal_recycle")[0][0] == "on"
    server.query("ALTER SYSTEM SET wal_recycle = %s" % ("off" if on else "on"))
    server.query("SELECT pg_reload_conf()")
    for _ in range(2):
        switch_logs(server, None)


def check_tables(server):
    """What the server itself finds wrong with its tables and indices."""
    wrong = []
    for table in ("d.t", "d.progress"):
        try:
            wrong += ["verify_heapam %s: %s" % (table, row) for row in server.query(
                "SELECT blkno, offnum, msg FROM verify_heapam('%s', check_toast := true)" % table)]
            server.query("SELECT bt_index_check('%s_pkey', true)" % table)
        except pgwire.Error as e:
            wrong.append("%s: %s" % (table, e))
    return wrong


def check_stopped(datadir):
    """What is wrong in the files of a server that was stopped."""
    r = subprocess.run([os.path.join(BIN, "pg_checksums"), "--check", "-D", datadir], user=USER, group=USER,
                       extra_groups=[], cwd="/", capture_output=True, text=True)
    return ["pg_checksums: " + (r.stderr or r.stdout).strip()[:400]] if r.returncode else []
