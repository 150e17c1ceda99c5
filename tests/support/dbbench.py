# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs of one database in several modes of durability, each from a fresh copy of one prepared
data directory. bench/db and scripts/demo drive it."""
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import preloads
import stats
import sysbench
from product import Pmemlogd
from sandbox import cpu_seconds

MODES = ["disk", "nosync", "eatmydata", "tmpfs", "pmemlogd", "whole"]
OURS = ("pmemlogd", "whole")  # whole: each rewritten block as a whole record, not its changed lines
FREE = ("nosync", "eatmydata")  # no durability, log files on the same file system


class Bench:
    """prepare() once, then run() as often as wanted."""

    def __init__(self, box, builddir, engine, lane_size="256MiB"):
        self.box = box
        self.engine = engine
        self.builddir = builddir
        self.lane_size = lane_size
        self.product = None
        self.number = 0
        self.template = None

    def prepare(self):
        e = self.engine
        path = self.box.folder("template", mode=0o700, owner=e.USER)
        e.install(path, *e.BENCH_INSTALL)
        s = e.Server(self.box, path, name="prepare", args=e.BENCH).start()
        sysbench.prepare(s)
        s.query(e.RESET_LOGS)
        s.stop()
        self.template = path

    def _server(self, mode, data, memory):
        env, args = {}, list(self.engine.BENCH)
        if mode == "nosync":
            env = preloads.nosync_env(self.box, self.engine)
        elif mode == "eatmydata":
            env = preloads.eatmydata_env(self.box)
        elif mode == "tmpfs":
            # in /dev/shm itself: MariaDB maps its redo log there, as it does on DAX
            for name in os.listdir(data):
                if name.startswith(self.engine.LOG_NAMES):
                    shutil.move(os.path.join(data, name), memory)
            subprocess.run(["chown", "-R", self.engine.USER + ":", memory], check=True)
            args += self.engine.logs_in(memory, data)
        elif mode in OURS:
            if not self.product:
                self.product = Pmemlogd(self.box, self.builddir, self.engine.NAME, memory="1g",
                                        lane_size=self.lane_size, user=self.engine.USER, rules=self.engine.RULES)
            self.product.settings["changed_lines"] = mode == "pmemlogd"
            self.product.create()
            self.product.start()
            env = self.product.env()
        return self.engine.Server(self.box, data, name="bench", env=env, args=args)

    def run(self, mode, clients, seconds, warmup=1.0):
        """One run; a dict of what was measured."""
        self.number += 1
        data = os.path.join(self.box.path, "data")
        memory = tempfile.mkdtemp(prefix="pmemlogd-bench.", dir="/dev/shm")
        server = None
        try:
            self.engine.copy(self.template, data)
            server = self._server(mode, data, memory)
            os.sync()  # or the copy's pages are written out in the middle of the run
            server.start()
            sysbench.measure(server, clients, warmup, seed=1)
            daemon = [self.product.process.pid] if mode in OURS else []
            logged = self._logged(mode)
            before = cpu_of(server, daemon)
            begin = time.monotonic()
            out = sysbench.measure(server, clients, seconds, seed=self.number + 1)
            wall = time.monotonic() - begin
            used = [now - then for now, then in zip(cpu_of(server, daemon), before)]
            out.update(mode=mode, clients=clients,
                       cpu_us_per_commit=round(sum(used) / out["commits"] * 1e6, 1))
            if mode in OURS:
                out["daemon_cpu_percent"] = round(used[1] / wall * 100, 2)
                out["daemon_rss_kib"] = private_kib(daemon[0])
                now = self._logged(mode)
                for name in now:
                    out[name + "_per_commit"] = round((now[name] - logged[name]) / out["commits"], 1)
                self._must_be_accelerated(server)
            server.stop()
            server = None
            return out
        finally:
            if server and server.process:
                server.kill()
            if self.product and self.product.alive():
                self.product.stop()
            shutil.rmtree(memory, ignore_errors=True)
            shutil.rmtree(data, ignore_errors=True)

    def _logged(self, mode):
        """What went into the lane so far: records and bytes, padding and all."""
        if mode not in OURS:
            return None
        d = self.product.status().domain(self.engine.NAME)
        return {"lane_records": d["records"], "lane_bytes": d["bytes"]}

    def _must_be_accelerated(self, server):
        from product import accelerated
        missing = accelerated(self.product.status(), self.engine.NAME, self.engine.LOGS)
        if missing:
            raise RuntimeError("not accelerated: " + missing)


def cpu_of(server, daemon):
    """User and system time in seconds: of the server's processes together, of the daemon."""
    time.sleep(0.2)  # backends of clients that have just left are gone and in their parent's account
    return [sum(cpu_seconds(p) for p in server.pids())] + [cpu_seconds(p) for p in daemon]


def private_kib(pid):
    """Resident memory without shared mappings of the pool: anonymous and file pages of its own."""
    total = 0
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith(("RssAnon:", "RssFile:")):
                total += int(line.split()[1])
    return total


def ratios(rounds, mode, clients, against, key="commits_per_s"):
    """Paired ratios of one mode to another (or to the better of several), round by round."""
    out = []
    for runs in rounds:
        mine = runs.get((mode, clients))
        others = [runs[(m, clients)][key] for m in against if (m, clients) in runs]
        if mine and others:
            out.append(mine[key] / max(others))
    return out


def summarise(rounds, modes, clients, engine="mariadb"):
    """The list that bench/db --json gives: a dict for each (mode, clients), medians over rounds."""
    out = []
    for n in clients:
        for mode in modes:
            runs = [r[(mode, n)] for r in rounds if (mode, n) in r]
            if not runs:
                continue
            row = {"engine": engine, "mode": mode, "clients": n, "rounds": len(runs)}
            for key in ("commits_per_s", "p50_us", "p99_us", "p999_us", "cpu_us_per_commit",
                        "daemon_cpu_percent", "daemon_rss_kib", "lane_records_per_commit",
                        "lane_bytes_per_commit"):
                if key in runs[0]:
                    row[key] = round(statistics.median(r[key] for r in runs), 2)
            for name, against in (("ratio_to_nosync", ("nosync",)), ("ratio_to_free", FREE),
                                  ("ratio_to_tmpfs", ("tmpfs",)), ("ratio_to_disk", ("disk",))):
                values = ratios(rounds, mode, n, against)
                if values:
                    middle, low, high = stats.interval(values)
                    row[name] = round(middle, 3)
                    row[name + "_95"] = [round(low, 3), round(high, 3)]
            out.append(row)
    return out
