#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The rules that are installed (etc/preload.d): which files of which program they take over, name by name. With the
names of settings and versions that no test runs: MySQL 5.7's redo log, group replication's relay logs."""
import os
import shutil
import subprocess
import sys
import tempfile

from harness import Check, default_builddir, find

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = "/var/lib/mysql/"

REDO_8 = [DATA + "#innodb_redo/#ib_redo" + n for n in ("0", "31", "156", "77_tmp", "10000")]
REDO_57 = [DATA + "ib_logfile" + n for n in ("0", "1", "2", "9", "15", "99", "101")]
BINLOGS = [DATA + n for n in ("binlog.000001", "binlog.999999", "binlog.1000000", "mysql-bin.000007",
                              "db1-bin.000123", "master-bin.1000001")]
RELAY = [DATA + n for n in (
    "relay-bin.000001", "db1-relay-bin.000001", "db1-relay-bin.1000000",
    "db1-relay-bin-channel2.000004",              # a channel of multi-source replication
    "db1-relay-bin-new-bin.000001",               # one whose name looks like a binlog's
    "db1-relay-bin-group_replication_applier.000002",
    "db1-relay-bin-group_replication_recovery.000001",
    "relaylog.000003",                            # GreatSQL's sample
    "relaylog-group_replication_applier.000002",
    "relaylog-group_replication_recovery.000001",
    "relay-log.000001")]
NEVER = [DATA + n for n in (
    "ibdata1", "undo_001", "d/t.ibd", "#ib_16384_0.dblwr", "binlog.index", "binlog.~rec~", "mysql-bin.index",
    "binlog.index_crash_safe", "#innodb_temp/temp_1.ibt", "ib_buffer_pool", "mysql.ibd", "ib_logfile",
    "ib_logfiles", "auto.cnf", "relay-log.info", "db1-relay-bin.index", "relaylog.index", "binlog.00001",
    "#ib_archive/log_group_75563827/ib_log_0")]
WAL = "/var/lib/postgresql/15/main/pg_wal/"
SEGMENTS = [WAL + n for n in ("000000010000000000000001", "0000000A0000001F000000FF",
                              "000000010000000000000FFF")] + ["/srv/log/0000000100000000000000AB"]
NO_SEGMENTS = [WAL + n for n in ("xlogtemp.4711", "00000002.history", "000000010000000000000001.partial",
                                 "archive_status/000000010000000000000001.ready",
                                 "000000010000000000000001.00000028.backup", "00000001000000000000000g")] + [
    "/var/lib/postgresql/15/main/global/pg_control", "/var/lib/postgresql/15/main/pg_xact/0000",
    "/var/lib/postgresql/15/main/base/1/1259"]

# program: (taken, left alone)
EXPECTED = {
    "mysqld": (REDO_8 + REDO_57 + BINLOGS, RELAY + NEVER + SEGMENTS),
    "mariadbd": ([DATA + "ib_logfile0", DATA + "ib_logfile101", DATA + "binlog.000001", DATA + "mysql-bin.000007"],
                 RELAY + NEVER + REDO_8 + SEGMENTS + [DATA + "ib_logfile102", DATA + "aria_log.00000001"]),
    "postgres": (SEGMENTS, NO_SEGMENTS + BINLOGS + REDO_8),
}
# they read, and write copies under the same names
OTHERS = ("xtrabackup", "mariadb-backup", "mysqlbinlog", "mysqldump", "pg_receivewal", "pg_basebackup", "pg_rewind", "sh", "cp")


def main():
    check = Check()
    program = find(default_builddir(), "rules")
    every = sorted({p for pair in EXPECTED.values() for paths in pair for p in paths})
    with tempfile.TemporaryDirectory() as folder:
        for name in [*EXPECTED, *OTHERS]:
            copy = shutil.copy(program, os.path.join(folder, name))
            taken, left = EXPECTED.get(name, ([], every))
            r = subprocess.run([copy, *taken, *left], text=True, capture_output=True, check=False,
                               env={"PMEMLOGD_PRELOAD_CONFIG": os.path.join(ROOT, "etc", "preload.d")})
            check(r.returncode == 0, "%s: exit %d %s%s", name, r.returncode, r.stdout[-200:], r.stderr)
            said = dict(reversed(line.split(" ", 1)) for line in r.stdout.splitlines())
            for path in taken:
                check(said.get(path) == "yes", "%s: %s is not taken over", name, path)
            for path in left:
                check(said.get(path) == "no", "%s: %s is taken over", name, path)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
