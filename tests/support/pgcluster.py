# SPDX-License-Identifier: LGPL-2.1-or-later
"""Debian's own way to start PostgreSQL: pg_ctlcluster, which empties the environment and takes it from the
cluster's file. What the drop-in for postgresql@.service brings is used as it is: its environment lines, its gate."""
import os
import re
import subprocess
import time
import types

import postgres
import powercut
import sandbox
from pgmodes import Mode
from sandbox import ROOT, Child, run

VERSION, CLUSTER = "15", "main"
NAME = "%s-%s" % (VERSION, CLUSTER)  # systemd's %i, the domain
DROP_IN = os.path.join(ROOT, "systemd", "postgresql@.service.d")
CONFIG = "/etc/postgresql/%s/%s" % (VERSION, CLUSTER)
LOG = "/var/log/postgresql/postgresql-%s.log" % NAME
# What pg_ctlcluster and pg_createcluster write to outside the cluster; ours, in our mount namespace.
PLACES = ("/etc/postgresql", "/var/log/postgresql", "/run/postgresql")


class Server(postgres.Server):
    """As postgres.Server; env is what the caller's shell has, which must not matter."""

    def start(self, timeout=60, wait=True):
        self.log = LOG
        self.log_from = os.path.getsize(LOG) if os.path.exists(LOG) else 0
        r = ctl("start", dict(os.environ, **self.env))
        if r.returncode:
            raise postgres.StartFailed("pg_ctlcluster: exit %d: %s" % (r.returncode, r.stdout))
        with open(os.path.join(self.datadir, "postmaster.pid")) as f:
            self.process = Child(int(f.readline()))  # left to us, the next subreaper
        self.box.children.append(self.process)
        if wait:
            self.wait_ready(timeout)
        return self

    def stop(self, timeout=60, how=None):
        r = ctl("stop", dict(os.environ))
        if r.returncode:
            raise RuntimeError("pg_ctlcluster: exit %d: %s" % (r.returncode, r.stdout))
        self._reap()


def ctl(verb, env):
    return subprocess.run(["pg_ctlcluster", VERSION, CLUSTER, verb], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def installed(name, **places):
    """A file of the drop-in's folder as meson installs it."""
    with open(os.path.join(DROP_IN, name + ".in")) as f:
        return re.sub(r"@(\w+)@", lambda m: places[m.group(1)], f.read())


class Ctlcluster(Mode):
    def __init__(self, outer):
        engine = types.SimpleNamespace(**{**vars(postgres), "NAME": NAME, "Server": Server})
        box = sandbox.Inner(outer.box, "ctlcluster")
        postgres.isolate(outer.box)
        for place in PLACES:
            if not os.path.isdir(place):
                sandbox.skip("%s is not there (package postgresql-common)" % place)
            run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place])
            outer.box.mounts.append(place)
        self.builddir = os.path.dirname(os.path.dirname(outer.product.daemon))
        c = powercut.Campaign(box, self.builddir, outer.image.fs, outer.seed, engine=engine, template=outer.template)
        c.LANES = ("4MiB",)
        super().__init__(c)

    def arrange(self):
        """The copy becomes cluster 15/main; the two lines come later."""
        c = self.c
        folder = c.box.folder("run-postgres", owner=c.engine.USER)  # where postgres.Server looks
        run(["pg_createcluster", "-d", c.datadir, "-s", folder, "-p", "5432",
             VERSION, CLUSTER])
        words = postgres.SETTINGS + postgres.BUSY
        with open(os.path.join(CONFIG, "postgresql.conf"), "a") as f:
            f.write("listen_addresses = ''\n")
            f.writelines("%s = '%s'\n" % tuple(w.split("=")) for w in words if "=" in w)
        self.without_the_lines()
        p = c.product
        with open(os.path.join(CONFIG, "environment"), "a") as f:
            f.write(installed("environment", preload=p.library))
            # where a test's daemon is
            f.writelines("%s = '%s'\n" % (k, p.env()[k]) for k in ("PMEMLOGD_SOCKET", "PMEMLOGD_PRELOAD_CONFIG"))

    def without_the_lines(self):
        """The control: what the caller has in his environment does not reach the postmaster."""
        c = self.c
        s = Server(c.box, c.datadir, env=c.env()).start()
        if s.preloaded(c.product.library):
            self.wrong.append("the library is loaded without the lines of the environment file")
        s.stop()

    def before_the_cut(self):
        c = self.c
        if not c.server.preloaded(c.product.library):
            self.wrong.append("the library is not loaded in the postmaster")
        env = {}
        with open("/proc/%d/environ" % c.server.pid, "rb") as f:
            env = dict(w.split(b"=", 1) for w in f.read().split(b"\0") if b"=" in w)
        if env.get(b"PMEMLOGD_DOMAIN") != NAME.encode():
            self.wrong.append("the postmaster's domain is %r" % env.get(b"PMEMLOGD_DOMAIN"))

    def life(self):
        self.c.product.gate = self.gate
        return super().life()

    def go(self):
        try:
            return super().go()
        finally:
            self.c.box.leave()

    def gate(self):
        """The drop-in's ExecStartPre, as systemd would run it."""
        p = self.c.product
        text = installed("pmemlogd.conf", bindir=os.path.dirname(p.ctl))
        line = re.search(r"^ExecStartPre=\+(.*)$", text, re.M).group(1).replace("%i", NAME).split()
        r = subprocess.run([line[0], "-c", p.config, *line[1:]], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=150)
        return r.returncode, (r.stdout + r.stderr).strip()

    def after(self, sent):
        """pg_ctlcluster stops it and starts it again, in the lane as before."""
        c = self.c
        c.server.stop()
        c.server.start()
        c.server.query("INSERT INTO d.t VALUES (99, 1, 'after')")
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                c.check_accelerated()
                break
            except powercut.NotAccelerated as e:
                words = str(e)
        else:
            self.wrong.append("not in the lane after stop and start: " + words)
        c.server.stop()
