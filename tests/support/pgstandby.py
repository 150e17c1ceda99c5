# SPDX-License-Identifier: LGPL-2.1-or-later
"""Modes of tests/db/postgres-modes with a second server, which runs under the library, too, in a domain of its own."""
import os
import signal
import time

from pgmodes import Mode

STANDBY = "standby"


class Standby(Mode):
    """Acknowledged means: flushed by the standby, which writes through pmemlogd as well. Both lose their power, the
    primary's disk does not come back; then it does, and is rewound to follow the other."""

    settings = {"synchronous_standby_names": "*", "wal_log_hints": "on", "wal_keep_size": "64MB"}
    second = None

    def standby(self, **settings):
        c = self.c
        env = dict(c.env(), PMEMLOGD_DOMAIN=STANDBY)
        words = [w for k, v in settings.items() for w in ("-c", "%s=%s" % (k, v))]
        return c.engine.Server(c.box, self.data, name=STANDBY, env=env,
                               args=c.engine.BUSY + ["-c", "wal_keep_size=64MB", "-c", "wal_log_hints=on"] + words)

    def arrange(self):
        """A copy that is a standby from the start."""
        c = self.c
        self.data = os.path.join(c.image.path, STANDBY)
        c.engine.copy(c.template, self.data)
        open(os.path.join(self.data, "standby.signal"), "w").close()
        self.socket = c.box.folder("run-" + c.engine.NAME, owner=c.engine.USER)

    def under_load(self):
        c = self.c
        self.second = self.standby(primary_conninfo="host=%s user=postgres" % self.socket)
        self.second.start()
        end = time.monotonic() + 30
        while time.monotonic() < end and not c.server.query(
                "SELECT 1 FROM pg_stat_replication WHERE sync_state='sync'"):
            time.sleep(0.05)
        before = self.rows()
        super().under_load()
        while time.monotonic() < end and self.rows() == before:
            time.sleep(0.1)
        self.in_the_lane(STANDBY)

    def rows(self):
        return self.c.server.query("SELECT COUNT(*) FROM d.t")[0][0]

    def before_the_cut(self):
        for pid in self.second.pids():  # it dies with the primary
            os.kill(pid, signal.SIGSTOP)

    def life(self):
        """As every life, but it is the standby that is checked."""
        c = self.c
        real = c.restart

        def restart(rec, event, r, acked, sent):
            self.second.kill()
            c.image.umount()
            c.image.mount()
            c.product.start()
            for domain in (STANDBY, c.engine.NAME):
                s = c.product.command("gate", "%s/%s" % (c.engine.USER, domain), timeout=150)
                if s.returncode:
                    self.wrong.append("gate %s: %s" % (domain, s.stdout + s.stderr))
                    return
            self.second = self.standby()
            self.second.start()
            self.second.query("SELECT pg_promote(true, 60)")
            # what was under way at the cut may be here and need not
            f = c.ledger.check(self.second, acked, {n: v + 20 for n, v in sent.items()}, None)
            rec["lost"] += f.lost
            rec["problems"] += f.wrong

        c.restart = restart
        try:
            return super().life()
        finally:
            c.restart = real

    def end(self):
        if self.second:
            self.second.kill()

    def after(self, sent):
        c = self.c
        server = c.engine.Server(c.box, c.datadir, env=c.env(), args=c.args())
        # pg_rewind wants it shut down cleanly
        server.args += ["-c", "synchronous_standby_names="]
        server.start()
        server.stop()
        self.second.query("CHECKPOINT")
        c.engine.tool("pg_rewind", "-D", c.datadir, "--source-server",
                      "host=%s user=postgres dbname=postgres" % self.second.socket)
        self.second.query("INSERT INTO d.t VALUES (99, 1, 'after')")
        open(os.path.join(c.datadir, "standby.signal"), "w").close()
        server.args += ["-c", "primary_conninfo=host=%s user=postgres" % self.second.socket]
        server.start()
        end = time.monotonic() + 30
        while time.monotonic() < end and not server.query("SELECT 1 FROM d.t WHERE client=99"):
            time.sleep(0.1)
        query = "SELECT COUNT(*), BIT_XOR(%s) FROM d.t" % c.engine.MIX
        if server.query(query) != self.second.query(query):
            self.wrong.append("the rewound primary holds other rows than the new one")
        self.wrong += c.engine.check_tables(server)
        self.in_the_lane()
        server.kill()
