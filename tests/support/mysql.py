# SPDX-License-Identifier: LGPL-2.1-or-later
"""A private MySQL from Debian sid (tests/db/get-mysql), as an engine beside mariadb.py.

It runs with sid's usr/ on /usr in a mount namespace of its own; every other path is the machine's.
"""
import functools
import os
import re
import subprocess

import mariadb
import usr
from mariadb import (DIGEST, ERRORS, MIX, SET_PROGRESS, StartFailed, TABLES, USER, check_stopped,  # noqa: F401
                     check_tables, copy, cursor, digest, mix)
from sandbox import ROOT, SKIP, skip

PROGRAMS = []
PACKAGES = "mmdebstrap python3-pymysql"
NAME = "mysql"
RULES = "mysql"
LOGS = (re.compile(r"/#innodb_redo/#ib_redo\d+(_tmp)?$"), re.compile(r"/binlog\.\d+$"))
# As etc/preload.d/mysql.ini: redo log and binlogs.
NOSYNC_PATHS = "*/#innodb_redo/#ib_redo[0-9]*:*/binlog.[0-9]*:./binlog.[0-9]*"

BUSY = ["--max-binlog-size=1M"]
ROTATE = ["--max-binlog-size=64K"]
STILL = ["--max-binlog-size=1G"]
# Where each write that was not synced may be lost by itself: with O_DIRECT, the default, MySQL syncs no
# doublewrite file, and takes a direct write for durable. Such a disk may lose both copies of a page.
LOSSY = ["--innodb-flush-method=fsync"]
VARIANTS = [[]]  # further arguments, taken in turn by the groups of a campaign

# As durable as MySQL gets, and small, so that a restart is quick.
SETTINGS = [
    "--skip-networking", "--skip-name-resolve", "--mysqlx=OFF", "--secure-file-priv=NULL",
    "--server-id=1", "--sync-binlog=1", "--log-bin=binlog",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=32M", "--innodb-redo-log-capacity=8M", "--innodb-log-buffer-size=2M",
    "--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0",
    "--max-allowed-packet=16M", "--performance-schema=0",
]

# For bench/db.
BENCH = ["--innodb-buffer-pool-size=128M", "--innodb-redo-log-capacity=128M", "--innodb-log-buffer-size=16M",
         "--max-connections=50"]
LOG_NAMES = ("#innodb_redo", "binlog.")
RESET_LOGS = "RESET BINARY LOGS AND GTIDS"
BENCH_INSTALL = ()


def logs_in(folder, _):
    return ["--innodb-log-group-home-dir=" + folder, "--log-bin=" + os.path.join(folder, "binlog")]


@functools.cache
def folder():
    """Where MySQL's usr/ is; skips when it is not to be had."""
    r = subprocess.run([os.path.join(ROOT, "tests", "db", "get-mysql")], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, text=True)
    if r.returncode == SKIP:
        skip(r.stdout.strip().removeprefix("SKIP: "))
    if r.returncode:
        raise RuntimeError("get-mysql: exit %d\n%s" % (r.returncode, r.stdout))
    return r.stdout.split()[-1]


def inside(user=None):
    return usr.entry(os.path.join(folder(), "usr"), user)


class Server(mariadb.Server):
    """As mariadb.Server."""

    STYLE = []  # what makes another engine of it

    def __init__(self, box, datadir, name="mysql", env=None, args=()):
        super().__init__(box, datadir, name, env, args)

    def argv(self):
        return (["/usr/sbin/mysqld", "--no-defaults", "--datadir=" + self.datadir,
                 "--socket=" + self.socket, "--pid-file=%s.pid" % self.socket]
                + SETTINGS + self.STYLE + self.args)

    def start(self, timeout=120, wait=True):
        """A busy machine takes its time over the many small steps of InnoDB's recovery."""
        return super().start(timeout, wait)

    def wait_ready(self, timeout=120):
        super().wait_ready(timeout)

    def identity(self):
        return {"enter": inside(USER)}


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


def install(path):
    tmp = os.path.join(os.path.dirname(path), "tmp")
    os.makedirs(tmp, exist_ok=True)
    os.chmod(tmp, 0o1777)
    r = subprocess.run(["/usr/sbin/mysqld", "--no-defaults", "--initialize-insecure", "--datadir=" + path,
                        "--innodb-redo-log-capacity=8M", "--secure-file-priv=NULL", "--skip-log-bin"],
                       preexec_fn=inside(USER), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, env=dict(os.environ, TMPDIR=tmp))
    if r.returncode:
        raise RuntimeError("mysqld --initialize-insecure: exit %d\n%s" % (r.returncode, r.stdout))


def binlogs(datadir):
    return mariadb.binlogs(datadir, "binlog")


def mark(datadir):
    return binlogs(datadir)[-1]


def switch_logs(server, since):
    """A new binlog, and the old ones that no check needs purged."""
    files = binlogs(server.datadir)
    server.query("FLUSH BINARY LOGS")
    server.query("PURGE BINARY LOGS TO '%s'" % os.path.basename(since if since in files else files[0]))


def resize_logs(server):
    """Twice as many redo files, or half as many; the surplus is removed as it is no longer needed."""
    size = server.query("SELECT @@innodb_redo_log_capacity")[0][0]
    server.query("SET GLOBAL innodb_redo_log_capacity=%d" % ((8 << 20) if size > (8 << 20) else (16 << 20)))


def logged(server, since, cut, clients, marks):
    return mariadb.collect(decode(mariadb.after(binlogs(server.datadir), since), cut), clients, marks)


def decode(files, cut=()):
    return mariadb.decode(files, cut, "/usr/bin/mysqlbinlog", inside())
