# SPDX-License-Identifier: LGPL-2.1-or-later
"""pmemlogd as the tests run it: own configuration, emulated pool on tmpfs, no systemd."""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time

from sandbox import ROOT, run, skip, wait_end

LIBRARY = "libpmemlogd-preload.so"


def find(builddir, name):
    """Path of a built program or library; skips with a reason when it is not there."""
    for folder, _, files in os.walk(builddir):
        if name in files and not folder.endswith(".p"):
            return os.path.join(folder, name)
    skip("%s is not built in %s (meson setup, ninja; or --builddir)" % (name, builddir))


def default_builddir():
    return os.environ.get("BUILDDIR") or os.environ.get("BUILD") or os.path.join(ROOT, "build")


class Status(dict):
    """pmemlogctl status --json, with the lookups that the tests need."""

    def domain(self, name):
        for d in self.get("domains", []):
            if d["name"] == name:
                return d
        return None

    def files(self, name):
        d = self.domain(name)
        return d["files"] if d else []


class Pmemlogd:
    """create(), start(), kill(), stop(); env() is what a database needs to get at it."""

    def __init__(self, box, builddir, domain, lane_size="4MiB", user="mysql", preload=None,
                 settings=None, memory="1g", sim=False, rules="mariadb"):
        self.box = box
        self.domain = domain
        self.user = user
        self.daemon = find(builddir, "pmemlogd")
        self.ctl = find(builddir, "pmemlogctl")
        # The database's user must reach the library; a build folder may be closed to him.
        self.library = os.path.join(box.folder("lib"), LIBRARY)
        shutil.copyfile(find(builddir, LIBRARY), self.library)
        os.chmod(self.library, 0o755)
        self.rules = box.folder("preload.d")
        shutil.copy(os.path.join(ROOT, "etc", "preload.d", rules + ".ini"), self.rules)
        self.memory = box.tmpfs("memory", memory)
        self.pool = os.path.join(self.memory, "pool")
        self.rundir = os.path.join(self.memory, "run")
        self.state = box.folder("state")
        self.config = os.path.join(box.path, "pmemlogd.conf")
        self.preload = preload  # library put into the daemon itself (faults)
        self.preload_env = {}
        self.wrap = []  # a program that runs the daemon, and its arguments
        self.settings = {"lane_size": lane_size, "destage_age": "1s"}
        self.settings.update(settings or {})
        self.process = None
        # The test build (pool/sim.h): where the pool's shadow lies.
        self.shadows = os.path.join(self.memory, "shadows") if sim else None
        self.no_drain = False  # a control: the database's records are never waited for
        if sim:
            self.settings["trust_fs"] = ["fuse"]

    def sim_env(self, **more):
        """For every program of ours: the daemon, pmemlogctl, the database."""
        env = {"PMEMLOGD_SIM": self.shadows} if self.shadows else {}
        env.update(more)
        return env

    def create(self, lane_size=None):
        """A fresh pool; the old one, its run and state folders are gone, as on a new machine."""
        if lane_size:
            self.settings["lane_size"] = lane_size
        for path in (self.pool, self.rundir, self.state, self.shadows):
            if path:
                shutil.rmtree(path, ignore_errors=True)
                os.mkdir(path, 0o755)
        if self.shadows:
            os.chmod(self.shadows, 0o777)
        lines = ['pool = "%s";' % self.pool, "emulate = true;", 'run_dir = "%s";' % self.rundir,
                 'state_dir = "%s";' % self.state]
        lines += ["%s = %s;" % (key, json.dumps(value))
                  for key, value in sorted(self.settings.items())]
        with open(self.config, "w") as f:
            f.write("\n".join(lines) + "\n")
        run([self.ctl, "-c", self.config, "pool", "create", "--emulate"],
            env=dict(os.environ, **self.sim_env()))

    def env(self):
        env = self.sim_env(
            LD_PRELOAD=self.library,
            PMEMLOGD_SOCKET=os.path.join(self.rundir, "pmemlogd.sock"),
            PMEMLOGD_DOMAIN=self.domain,
            PMEMLOGD_PRELOAD_CONFIG=self.rules)
        if self.no_drain:
            env["PMEMLOGD_SIM_NO_DRAIN"] = "1"
        return env

    def start(self, timeout=30, wait=True):
        """Returns when it says READY=1, which means: every domain is decided (recovered)."""
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.path.join(self.memory, "notify")
        if os.path.exists(path):
            os.unlink(path)
        self.notify.bind(path)
        env = dict(os.environ, **self.sim_env(NOTIFY_SOCKET=path))
        if self.preload:
            env["LD_PRELOAD"] = self.preload
            env.update(self.preload_env)
        self.process = self.box.spawn([*self.wrap, self.daemon, "-c", self.config],
                                      log="pmemlogd.log", env=env)
        if wait:
            self.wait_ready(timeout)
        return self

    def wait_ready(self, timeout=30):
        end = time.monotonic() + timeout
        self.notify.setblocking(False)
        try:
            while wait_end(self.process, end - time.monotonic(), self.notify.fileno()) is None:
                if b"READY=1" in self.notify.recv(65536).split(b"\n"):
                    # nobody reads on: a full queue would stop the daemon, a closed one does not
                    self.notify.close()
                    return
        except subprocess.TimeoutExpired:
            raise RuntimeError("pmemlogd: not ready after %d s" % timeout) from None
        raise RuntimeError("pmemlogd: exit %s" % self.process.returncode)

    def reap(self):
        """After its end."""
        self.process.wait()
        self.box.forget(self.process)
        self.process = None
        self.notify.close()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.reap()

    def stop(self, timeout=30):
        self.process.send_signal(signal.SIGTERM)
        wait_end(self.process, timeout)
        status = self.process.returncode
        self.reap()
        if status:
            raise RuntimeError("pmemlogd: exit %d at a clean stop" % status)

    def command(self, *words, timeout=60, text=""):
        """text: on its standard input."""
        return subprocess.run([self.ctl, "-c", self.config, *words], input=text,
                              capture_output=True, text=True, timeout=timeout,
                              env=dict(os.environ, **self.sim_env()))

    def status(self):
        """Parsed status. An emulated pool must answer 1 and say so; anything else is an error."""
        r = self.command("status", "--json")
        try:
            s = Status(json.loads(r.stdout))
        except ValueError:
            raise RuntimeError("status --json: exit %d\n%s%s" % (r.returncode, r.stdout, r.stderr))
        if r.returncode != 1 or "NOT DURABLE" not in s["pool"]["durability"]:
            raise RuntimeError("status on an emulated pool: exit %d, %r"
                               % (r.returncode, s["pool"]))
        return s

    def gate(self):
        """Exit status and text of the gate: 0 only when nothing of the domain is left over."""
        r = self.command("gate", "%s/%s" % (self.user, self.domain), timeout=150)
        return r.returncode, (r.stdout + r.stderr).strip()

    def live_bytes(self):
        """Live bytes in the pool by reading the lanes' headers and walking the records: asks
        nobody, needs no daemon. Meant for the moment after the power cut."""
        return sum(lane_live(path) for path in self.lanes())

    def lanes(self):
        found = []
        for folder, _, files in os.walk(self.pool):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    if f.read(8) == b"PMLANE01":
                        found.append(path)
        return found


def lane_live(path):
    """Bytes from the tail to the end of the valid chain (DESIGN: lane format), without the CRCs."""
    header = struct.Struct("<IHHQQQQIIQQ")
    with open(path, "rb") as f:
        page = f.read(4096)
        ring, incarnation = struct.unpack_from("<QQ", page, 16)
        tails, chains = struct.unpack_from("<QQ", page, 64), struct.unpack_from("<II", page, 80)
        tail, chain = min(zip(tails, chains))
        at = tail
        while at - tail < ring:
            f.seek(4096 + at % ring)
            raw = f.read(64)
            if len(raw) < 64:
                break
            crc, kind, _, inc, pos, _, _, length, link, _, _ = header.unpack(raw)
            if inc != incarnation or pos != at or link != chain or not 1 <= kind <= 6:
                break
            chain = crc
            at += 64 + (length + 63) // 64 * 64
    return at - tail


def accelerated(status, domain, patterns):
    """None when for each pattern (a compiled regex on the path) a file is in state lane with
    records; otherwise words that say what is missing."""
    files = status.files(domain)
    for p in patterns:
        mine = [f for f in files if p.search(f["path"])]
        if not any(f["state"] == "lane" and f["records"] > 0 for f in mine):
            seen = ["%s %s %s %d records" % (f["path"], f["state"], f.get("reason"), f["records"])
                    for f in mine]
            return "%s: %s" % (p.pattern, "; ".join(seen) or "no such file registered")
    return None
