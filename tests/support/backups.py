# SPDX-License-Identifier: LGPL-2.1-or-later
"""What tests/db/backup does with each engine: take a backup of a loaded server, start it without pmemlogd.

start() before the first, take(shimmed) as often as one likes: a folder; serve(folder): a server of it. end(), when
nobody writes any more: (server, words) of one that has been brought to the end of what a reader of the log has
received all the time, or None where there is no such reader.
"""
import os
import re
import shutil
import subprocess
import time

from sandbox import run

WAIT_SECONDS = 60.0
RECOVERY_SECONDS = 600.0  # hundreds of segments, a shell and a cp for each, on a busy machine


class Backup:
    def __init__(self, box, campaign, engine):
        self.box, self.c, self.engine = box, campaign, engine
        self.kept = None  # a backup that end() goes on from
        self.n = 0

    def start(self):
        """Before the first backup."""

    def take(self, shimmed):
        self.n += 1
        target = os.path.join(self.box.path, "backup%d" % self.n)
        self.into(target, self.c.env() if shimmed else {})
        if not self.kept:
            self.kept = self.keep(target)
        return target

    def into(self, target, env):
        """Takes one; env: of the tool."""
        raise NotImplementedError

    def keep(self, target):
        """The first one is started and changed: a copy of it is for the end."""
        return None

    def serve(self, target):
        return self.engine.Server(self.box, target, name="restored").start()

    def remove(self, target):
        shutil.rmtree(target)

    def end(self):
        return None


def tool(argv, env, what, **kw):
    r = subprocess.run(argv, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, capture_output=True, text=True, **kw)
    if r.returncode:
        raise RuntimeError("%s: exit %d\n%s" % (what, r.returncode, r.stderr[-2000:]))
    return r.stdout


class MariaDB(Backup):
    """mariadb-backup reads the log files from a process of its own."""

    PROGRAMS = ["mariadb-backup"]
    PACKAGES = "mariadb-backup"
    ARGS = ["--innodb-log-file-size=128M"]  # must not go round during a backup

    def into(self, target, env):
        tool(["mariadb-backup", "--no-defaults", "--backup", "--user=root", "--socket=" + self.c.server.socket,
              "--datadir=" + self.c.datadir, "--target-dir=" + target], env, "mariadb-backup")

    def serve(self, target):
        run(["mariadb-backup", "--no-defaults", "--prepare", "--target-dir=" + target])
        run(["chown", "-R", self.engine.USER + ":", target])
        return super().serve(target)


class PostgreSQL(Backup):
    """pg_basebackup, the WAL beside it (stream) or behind it (fetch), and pg_verifybackup, which reads that WAL
    with pg_waldump. In the end: the first backup, and the segments that pg_receivewal has written meanwhile."""

    PROGRAMS = []
    PACKAGES = ""
    ARGS = ["-c", "wal_keep_size=512MB"]  # by fetch it is copied last
    SLOT = "tests"

    def place(self):
        return ["-h", self.c.server.socket, "-U", "postgres"]

    def start(self):
        self.received = self.box.folder("received", mode=0o700, owner=self.engine.USER)
        self.engine.tool("pg_receivewal", *self.place(), "--create-slot", "--slot=" + self.SLOT)
        self.receiver = self.box.spawn(
            [os.path.join(self.engine.BIN, "pg_receivewal"), *self.place(), "-D", self.received, "--slot=" + self.SLOT],
            log="receivewal.log", user=self.engine.USER, group=self.engine.USER, extra_groups=[],
            env=dict(LC_ALL="C", PATH=os.environ["PATH"], **self.c.env()))

    def into(self, target, env):
        self.box.folder(os.path.basename(target), mode=0o700, owner=self.engine.USER)
        self.engine.tool("pg_basebackup", *self.place(), "-D", target, "-X", ("stream", "fetch")[self.n % 2],
                         "-c", "fast", env=env)
        self.engine.tool("pg_verifybackup", target)

    def keep(self, target):
        return self.engine.copy(target, target + ".kept")

    def end(self):
        server = self.c.server
        last = server.query("SELECT pg_walfile_name(pg_current_wal_lsn())")[0][0]
        server.query("SELECT pg_switch_wal()")
        end = time.monotonic() + WAIT_SECONDS
        while not os.path.exists(os.path.join(self.received, last)):
            if time.monotonic() > end or self.receiver.poll() is not None:
                raise RuntimeError("%s is not received: %s" % (last, sorted(os.listdir(self.received))[-3:]))
            time.sleep(0.05)
        self.receiver.kill()
        self.receiver.wait()
        self.box.forget(self.receiver)
        open(os.path.join(self.kept, "recovery.signal"), "w").close()
        for name in os.listdir(os.path.join(self.kept, "pg_wal")):  # from what was received, all of it
            path = os.path.join(self.kept, "pg_wal", name)
            if not os.path.isdir(path):
                os.unlink(path)
        s = self.engine.Server(self.box, self.kept, name="recovered", args=[
            "-c", "restore_command=cp %s/%%f %%p" % self.received])
        s.start(RECOVERY_SECONDS)
        end = time.monotonic() + RECOVERY_SECONDS
        while s.query("SELECT pg_is_in_recovery()")[0][0] != "f":
            if time.monotonic() > end:
                raise RuntimeError("the recovery does not end: %s" % s.complaint())
            time.sleep(0.05)
        return s, "%d segments received" % len(os.listdir(self.received))


class MySQL(Backup):
    """mysqldump, into a fresh server. In the end: the first dump, and the binlogs that mysqlbinlog has received
    meanwhile, from the place on that the dump names."""

    PROGRAMS = []
    PACKAGES = ""
    ARGS = []

    def program(self, name, *words):
        return ["/usr/bin/" + name, "--no-defaults", "--user=root", *words]

    def start(self):
        self.received = self.box.folder("received")
        first = os.path.basename(self.engine.binlogs(self.c.datadir)[0])
        self.receiver = self.box.spawn(
            self.program("mysqlbinlog", "--socket=" + self.c.server.socket, "--raw", "--read-from-remote-server",
                         "--stop-never", "--result-file=%s/" % self.received, first),
            log="mysqlbinlog.log", enter=self.engine.inside(), env=dict(os.environ, **self.c.env()))

    def into(self, target, env):
        os.mkdir(target)
        tool(self.program("mysqldump", "--socket=" + self.c.server.socket, "--single-transaction", "--source-data=2",
                          "--hex-blob", "--max-allowed-packet=16M", "--set-gtid-purged=OFF", "--column-statistics=0",
                          "--result-file=" + self.dump(target), "--databases", "d"),
             env, "mysqldump", preexec_fn=self.engine.inside())

    def dump(self, target):
        return os.path.join(target, "dump.sql")

    def keep(self, target):
        return target

    def serve(self, target):
        data = os.path.join(target, "data")
        self.engine.copy(self.c.template, data)
        s = self.engine.Server(self.box, data, name="restored", args=["--skip-log-bin"]).start()
        s.query("DROP DATABASE d")
        with open(self.dump(target), "rb") as f:
            self.feed(s, f)
        return s

    def feed(self, server, source):
        r = subprocess.run(self.program("mysql", "--socket=" + server.socket, "--max-allowed-packet=16M"),
                           stdin=source, capture_output=True, text=True, preexec_fn=self.engine.inside())
        if r.returncode:
            raise RuntimeError("mysql: exit %d\n%s" % (r.returncode, r.stderr[-2000:]))

    def remove(self, target):
        shutil.rmtree(os.path.join(target, "data"))

    def end(self):
        c = self.c
        files = self.engine.binlogs(c.datadir)
        mine = [os.path.join(self.received, os.path.basename(f)) for f in files]
        end = time.monotonic() + WAIT_SECONDS
        while not os.path.exists(mine[-1]) or os.path.getsize(mine[-1]) < os.path.getsize(files[-1]):
            if time.monotonic() > end or self.receiver.poll() is not None:
                raise RuntimeError("%s is not received" % files[-1])
            time.sleep(0.05)
        self.receiver.kill()
        self.receiver.wait()
        self.box.forget(self.receiver)
        for a, b in zip(files, mine):
            self.same(a, b)
        with open(self.dump(self.kept)) as f:
            name, place = re.search(r"SOURCE_LOG_FILE='([^']+)', SOURCE_LOG_POS=(\d+)", f.read()).groups()
        s = self.serve(self.kept)
        names = [os.path.basename(f) for f in files]
        p = subprocess.Popen(["/usr/bin/mysqlbinlog", "--no-defaults", "--start-position=" + place,
                              *mine[names.index(name):]], stdout=subprocess.PIPE, preexec_fn=self.engine.inside())
        self.feed(s, p.stdout)
        p.stdout.close()
        if p.wait():
            raise RuntimeError("mysqlbinlog: exit %d" % p.returncode)
        return s, "%d binlogs received" % len(mine)

    def same(self, a, b):
        """But for the flag "in use" of the first event."""
        with open(a, "rb") as f, open(b, "rb") as g:
            x, y = bytearray(f.read()), bytearray(g.read())
        for data in (x, y):
            data[21:23] = b"\0\0"
        if x != y:
            raise RuntimeError("%s was received otherwise than it was written" % a)


KINDS = {"mariadb": MariaDB, "postgres": PostgreSQL, "mysql": MySQL, "mysql80": MySQL}
