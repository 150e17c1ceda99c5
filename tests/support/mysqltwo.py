# SPDX-License-Identifier: LGPL-2.1-or-later
"""Modes of tests/db/mysql-modes with a second server: clone and replica. It runs under the library, too, in a
domain of its own, on the same disk, and loses power with the first."""
import os
import shutil
import socket

import load
import mysql

SECOND = "mysql2"  # the other one's domain
CATCH_UP = 60


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


PORT = _free_port()
ARGS = ["--skip-networking=0", "--bind-address=127.0.0.1", "--port=%d" % PORT, "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON", "--plugin-load-add=mysql_clone.so"]


def _second(m, *args):
    """A server beside the first, made from the same template."""
    c = m.c
    data = os.path.join(c.image.path, SECOND)
    if not os.path.exists(data):
        mysql.copy(c.template, data)
        os.unlink(os.path.join(data, "auto.cnf"))  # or both had one UUID
        c.image.sync()  # a copy that is lost in the power cut would be nobody's fault
    env = dict(c.env(), PMEMLOGD_DOMAIN=SECOND)
    s = mysql.Server(m.box, data, name=SECOND, env=env,
                     args=ARGS + ["--server-id=2", "--port=%d" % _free_port(), *args])
    m.others.append(s)
    return s


def _accelerated(m):
    """The second's redo log and binlog are in the lane."""
    def good():
        d = m.c.product.status().domain(SECOND)
        return d and all(any(f["state"] == "lane" and f["records"] and p.search(f["path"]) for f in d["files"])
                         for p in mysql.LOGS) and all(f["state"] == "lane" for f in d["files"])
    m.until(CATCH_UP, good, "the second server is not in the lane: %s" % m.c.product.status().domain(SECOND))


def _rows(m, server, acked):
    """What of the acknowledged rows the server lacks."""
    missing = 0
    for n, last in acked.items():
        rows = dict(server.query("SELECT seq, CRC32(v) FROM d.t WHERE client=%d" % n))
        missing += sum(1 for q in range(1, last + 1) if rows.get(q) != m.c.ledger.digest(n, q))
        missing += len(rows) != max(rows, default=0)
    return missing + len(mysql.check_tables(server))


def _acked(m):
    return {n: max([last for last, _, _ in load.acks(path)], default=0) for n, (path, _) in m.clients.items()}


def _gate(m):
    r = m.c.product.command("gate", "%s/%s" % (mysql.USER, SECOND), timeout=150)
    return m.require(r.returncode == 0, "gate %s: exit %d: %s", SECOND, r.returncode, r.stdout + r.stderr)


def clone(m):
    """A copy by the server itself, read by sendfile; then one by a second server over the network."""
    m.server.query("CREATE USER c@'127.0.0.1'")
    m.server.query("GRANT BACKUP_ADMIN ON *.* TO c@'127.0.0.1'")
    m.commits(50)
    place = os.path.join(m.box.folder("cloned", mode=0o700, owner=mysql.USER), "data")
    acked = _acked(m)
    m.server.query("CLONE LOCAL DATA DIRECTORY '%s'" % place)
    r = m.c.product.command("flush")  # the copy's own redo files bear the names of the rules
    m.require(r.returncode == 0, "flush: %s", r.stdout + r.stderr)
    copy = mysql.Server(m.box, place, name="copy", args=ARGS + ["--port=%d" % _free_port()]).start()
    missing = _rows(m, copy, acked)
    m.require(not missing, "local clone: %d rows missing or wrong", missing)
    copy.stop()
    shutil.rmtree(place)

    s = _second(m).start()
    s.query("SET GLOBAL clone_valid_donor_list='127.0.0.1:%d'" % PORT)
    m.commits(50)
    acked = _acked(m)
    try:
        s.query("CLONE INSTANCE FROM c@'127.0.0.1':%d IDENTIFIED BY ''" % PORT)
    except mysql.ERRORS as e:
        # nobody is there to start it again, it says, and ends; or is gone before it says so
        m.require(e.args[0] in (3707, 2013, 2006), "remote clone: %s", e)
    s.process.wait(CATCH_UP)
    s.kill()
    s.start()
    missing = _rows(m, s, acked)
    m.require(not missing, "remote clone: %d rows missing or wrong", missing)
    s.query("CREATE TABLE d.more (id INT PRIMARY KEY)")
    s.query("INSERT INTO d.more VALUES (1)")
    _accelerated(m)

    def after():
        if _gate(m):
            again = _second(m).start()
            lacks = _rows(m, again, acked) + (again.query("SELECT COUNT(*) FROM d.more")[0][0] != 1)
            m.require(not lacks, "the clone after the power cut: %d rows missing or wrong", lacks)
    m.after.append(after)
    return "local and remote clone of %d rows" % sum(acked.values())


def replica(m):
    """Relay logs stay on the disk; what the replica had applied and the source had sent is there on both."""
    m.server.query("CREATE USER r@'127.0.0.1'")
    m.server.query("GRANT REPLICATION SLAVE ON *.* TO r@'127.0.0.1'")
    relay = ["--relay-log=relaylog", "--relay-log-recovery=ON", "--skip-replica-start", "--max-relay-log-size=64K"]
    s = _second(m, *relay).start()
    s.query("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='r',"
            " SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1" % PORT)
    s.query("START REPLICA")
    m.commits(100)
    applied = "SELECT COUNT(*) FROM d.t"
    m.until(CATCH_UP, lambda: s.query(applied)[0][0] > 50, "the replica applies nothing: %s" % s.complaint())
    _accelerated(m)
    taken = [f["path"] for f in m.c.product.status().files(SECOND) if "relaylog" in f["path"]]
    m.require(not taken, "relay logs in the lane: %s", taken)
    m.require(any(n.startswith("relaylog.0") for n in os.listdir(s.datadir)), "no relay log is there")
    had = s.query(applied)[0][0]

    def after():
        if not _gate(m):
            return
        again = _second(m, *relay).start()
        done = again.query("SELECT COUNT(*) FROM d.t")[0][0]
        m.require(done >= had, "the replica had applied %d rows, now it has %d", had, done)
        theirs = again.query("SELECT @@GLOBAL.gtid_executed")[0][0].replace("\n", "")
        ours = m.server.query("SELECT @@GLOBAL.gtid_executed")[0][0].replace("\n", "")
        m.require(m.server.query("SELECT GTID_SUBSET('%s','%s')" % (theirs, ours))[0][0] == 1,
                  "the replica has what its source has lost: %s, source %s", theirs, ours)
        again.query("START REPLICA")
        r = again.query("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %d)" % (ours, CATCH_UP))
        m.require(r[0][0] == 0, "the replica does not catch up: %s", again.complaint())
        total = "SELECT COUNT(*), BIT_XOR(%s) FROM d.t" % mysql.MIX
        m.require(again.query(total) == m.server.query(total), "replica and source differ")
    m.after.append(after)
    return "%d rows applied" % had

