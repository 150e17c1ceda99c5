# SPDX-License-Identifier: LGPL-2.1-or-later
"""MySQL in the style of 8.0.30 to 8.0.4x, which is GreatSQL's: one thread writes the redo log, another one
syncs it, by fsync. GreatSQL itself is not run."""
import mysql
from mysql import *  # noqa: F401,F403

STYLE = ["--innodb-log-writer-threads=ON", "--innodb-use-fdatasync=OFF", "--innodb-flush-method=fsync"]
# By turns: the default of 8.0; O_DIRECT with the names of GreatSQL's sample configuration; each
# write synced by its descriptor's flag.
VARIANTS = [[], ["--innodb-flush-method=O_DIRECT", "--relay-log=relaylog"], ["--innodb-flush-method=O_DSYNC"]]


class Server(mysql.Server):
    STYLE = STYLE


def prepare(box, name, sql=(), args=()):
    return mysql.prepare(box, name, sql, args)
