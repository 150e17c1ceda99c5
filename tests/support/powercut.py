# SPDX-License-Identifier: LGPL-2.1-or-later
"""One database through many power cuts. tests/db/powercut and scripts/demo drive it."""
import hashlib
import os
import random
import signal
import statistics
import time

import load
import preloads
from fsimage import Image
from halt import halt, signal_to
from losefs import LoseFs, simdir
from product import Pmemlogd, accelerated
from sandbox import engine as database
from sandbox import run
from verify import Ledger

# What happens before or after the cut, by weight. The cut itself comes in all of them.
EVENTS = {
    "plain": 6,     # load, cut
    "early": 2,     # the cut within 60 ms of the clients' start
    "rotate": 3,    # log switched, old ones purged or recycled under load
    "resize": 1,    # redo log resized under load: new file, rename over the old one; fewer WAL segments
    "orphan": 2,    # the daemon was killed a while before the cut
    "restart": 2,   # the daemon was stopped cleanly and started again under load
    "revive": 1,    # the daemon was killed and started again under load
    "gate": 1,      # recovery by the gate alone; the database starts without a daemon
    "frozen": 1,    # the daemon stands still (SIGSTOP) before the cut: the lane fills up
    "again": 2,     # a second cut while the first is being recovered
    "crash": 1,     # the database alone is killed and started again, then the cut
    "refuse": 1,    # before recovery the database must not start on these files
    "startup": 1,   # the cut while the database starts
}
UNSAFE = ("nosync", "eatmydata")
WITHOUT_DAEMON = ("plain", "early", "rotate", "resize", "crash", "startup")


class NotAccelerated(RuntimeError):
    pass


class Campaign:
    """mode: pmemlogd; or a control without it: disk, nosync, eatmydata.

    recover=False: after the cut the database starts on what the disk alone has. lie=True: the
    daemon's syncs of the database's files are left out. no_drain=True (losefs): the database's records are
    not waited for. Each must lose rows.

    engine: the module of the database. image, template: the caller's own disk, and a data directory prepared before.
    """

    LANES = ("1MiB", "2MiB", "1MiB", "4MiB", "16MiB")

    def __init__(self, box, builddir, fs="ext4", seed=1, mode="pmemlogd", recover=True, lie=False,
                 clients=4, group=5, sizes=None, library=True, no_drain=False, names="journal",
                 image=None, template=None, engine=None):
        self.box = box
        self.engine = engine = engine or database("mariadb")
        self.seed, self.mode, self.recover, self.clients = seed, mode, recover, clients
        self.group = group if recover else 1
        self.sizes = sizes
        self.memory = box.tmpfs("acks")
        lossy = fs == "losefs"
        if lossy:
            builddir = simdir(builddir)
        self.image = image or (LoseFs(box, builddir, rule=names) if lossy else Image(box, fs))
        self.lossy = getattr(engine, "LOSSY", []) if lossy else []
        self.datadir = os.path.join(self.image.path, engine.NAME)
        self.template = template or engine.prepare(box, "template", engine.TABLES)
        self.product = None
        self.library = library
        if mode == "pmemlogd":
            self.product = Pmemlogd(box, builddir, engine.NAME, user=engine.USER, sim=lossy,
                                    rules=engine.RULES)
            self.product.no_drain = no_drain
            self.image.product = self.product
            if no_drain:
                self.image.forced(fs="none", pool="none")
            if lie:
                env = preloads.lie_env(box, self.image.path)
                self.product.preload = env.pop("LD_PRELOAD")
                self.product.preload_env = env
            if not library:  # as after a failed upgrade: ld.so warns, the server runs without it
                os.rename(self.product.library, self.product.library + ".away")
        self.keep_cuts = False  # what each cut left is copied before anybody touches it
        self.extra = []  # more arguments for the server
        self.variant = []  # those of this group of cycles
        self.arrange = None  # called before the server first starts on a fresh copy
        self.past_the_gate = None  # called with a server that has started without it
        self.server = None
        self.ledger = None
        self.cycles = []       # one dict per cycle, for the JSON report
        self.problems = []
        self.fresh = True
        self.lane = None

    # ---- setting up

    def env(self):
        if self.mode == "pmemlogd":
            return self.product.env()
        if self.mode == "nosync":
            return preloads.nosync_env(self.box, self.engine)
        if self.mode == "eatmydata":
            return preloads.eatmydata_env(self.box)
        return {}

    def args(self):
        # in the controls a log that was never synced would keep the server down before a row could
        # be missed
        return ([] if self.mode in UNSAFE else self.engine.BUSY) + self.variant + self.lossy + self.extra

    def start_over(self, n):
        """Fresh file system, data directory, pool."""
        variants = getattr(self.engine, "VARIANTS", [[]])
        self.variant = variants[n % len(variants)]
        self.torn = set()  # logs that were written when the server died
        self.image.make()
        self.engine.copy(self.template, self.datadir)
        if self.arrange:
            self.arrange()
        self.image.sync()
        self.ledger = Ledger(self.engine, self.seed, self.clients, self.sizes)
        if self.product:
            self.lane = self.LANES[n % len(self.LANES)]
            self.product.create(lane_size=self.lane)
            self.product.start()
        self.server = self.engine.Server(self.box, self.datadir, env=self.env(),
                                         args=self.args())
        self.server.start()
        if self.mode in UNSAFE:  # or nothing but the missing log would be seen
            self.image.sync()
        self.fresh = False

    # ---- the load and what happens to it

    def start_clients(self, k):
        out = {}
        for c, plan in self.ledger.plans.items():
            path = os.path.join(self.memory, "%d.%d" % (k, c))
            out[c] = (path, self.box.fork(load.client, self.engine, plan, self.server.socket,
                                          self.ledger.first(c), path))
        return out

    def check_accelerated(self, timeout=15.0):
        """All logs must be seen in the lane by the daemon, or the test would test nothing."""
        end = time.monotonic() + timeout
        while True:
            status = self.product.status()
            missing = accelerated(status, self.engine.NAME, self.engine.LOGS)
            if missing is None:
                return status
            if time.monotonic() > end:
                raise NotAccelerated(missing)
            time.sleep(0.05)

    def disturb(self, event, r, seconds):
        """Spends `seconds` of load time; in the middle of it happens what the event says."""
        at = r.uniform(0, seconds)
        time.sleep(at)
        if event == "rotate":
            self.engine.switch_logs(self.server, self.since)
        elif event == "resize":
            self.engine.resize_logs(self.server)
        elif event == "orphan":
            self.product.kill()
        elif event == "crash":
            self.server.kill()
            self.torn.add(self.engine.mark(self.datadir))
            self.server.start()
        elif event == "frozen":
            self.product.process.send_signal(signal.SIGSTOP)
        elif event in ("restart", "revive"):
            self.product.stop() if event == "restart" else self.product.kill()
            self.product.start()
        time.sleep(max(0.0, seconds - at))

    def power_cut(self, clients):
        """All processors stop (halt.py), the file system is cut, every process is killed."""
        self.image.before_cut()
        self.cut_at = time.monotonic_ns()
        victims = [self.product.process.pid] if self.product and self.product.alive() else []
        victims += [child.pid for _, child in clients.values() if child.poll() is None]
        victims += self.server.pids() if self.server else []
        halt(victims)
        # whom it had just forked
        late = [pid for pid in (self.server.pids() if self.server else []) if pid not in victims]
        halt(late)
        victims += late
        self.image.cut()
        for pid in victims:
            signal_to(pid, signal.SIGKILL)
        if self.product:
            self.product.kill()
        if self.server:
            self.server.kill()
        for _, child in clients.values():
            child.wait()
            self.box.forget(child)

    # ---- one cycle

    def cycle(self, k, event=None):
        """Runs one cycle; returns its record. Failures are in the record, not raised."""
        r = random.Random("%d/%d" % (self.seed, k))
        names = [e for e in EVENTS if self.product or e in WITHOUT_DAEMON]
        if self.mode in UNSAFE or not self.recover:
            names = ["plain"]
        event = event or r.choices(names, [EVENTS[e] for e in names])[0]
        seconds = r.uniform(0.2, 1.0)
        rec = {"cycle": k, "event": event, "acked": 0, "lost": 0, "quarantined": 0, "unstarted": 0,
               "live_at_cut": 0, "wraps": 0, "full_waits": 0, "counts": True, "problems": []}
        begin = time.monotonic()
        self.image.plan("%d/%d" % (self.seed, k))
        if self.fresh:
            self.start_over(k // self.group)
        rec["lane"] = self.lane
        self.since = self.engine.mark(self.datadir)
        self.torn = set()
        acked = dict(self.ledger.have)
        clients = self.load(rec, k, event, r, seconds)
        self.power_cut(clients)
        rec["cut"] = self.image.said
        sent = self.read_acks(rec, clients, acked)
        if self.product:
            rec["live_at_cut"] = self.product.live_bytes()
            rec["counts"] = rec["live_at_cut"] > 0
        self.restart(rec, event, r, acked, sent)
        rec["seconds"] = round(time.monotonic() - begin, 2)
        if rec["lost"] or rec["quarantined"] or rec["unstarted"] or not self.recover:
            self.abandon()
        self.cycles.append(rec)
        return rec

    def load(self, rec, k, event, r, seconds):
        """The time until the cut. Returns the clients."""
        if event == "startup":
            self.server.stop() if r.random() < 0.5 else self.server.kill()
            self.server.start(wait=False)
            time.sleep(r.uniform(0, 0.4))
            return {}
        clients = self.start_clients(k)
        if event == "early":
            time.sleep(r.uniform(0.01, 0.06))
            return clients
        if self.product:
            status = self.check_accelerated()
        self.disturb(event, r, seconds)
        if self.product and event not in ("orphan", "frozen"):
            status = self.product.status()
        if self.product:
            d = status.domain(self.engine.NAME)
            rec["wraps"], rec["full_waits"] = d["wraps"], d["full_waits"]
            rec["bypass"] = [f["path"] for f in d["files"] if f["state"] != "lane"]
        dead = [c for c, (_, child) in clients.items() if child.poll() is not None]
        if event == "crash":
            dead = []
        if dead or not self.server.alive():
            rec["lost"] += 1
            rec["problems"].append("before the cut: server %s, clients ended: %s" %
                                   ("alive" if self.server.alive() else "dead", dead))
        return clients

    def read_acks(self, rec, clients, acked):
        """Fills acked (client -> last row acknowledged before the cut); returns the same with the
        acknowledgements that came after it. Between the cut and SIGKILL lies a millisecond or two
        in which the server lives on a dead file system, and MariaDB has been seen to answer OK to
        a commit whose binlog had just got EIO (about one cut in forty, without pmemlogd). Without
        power nobody answers: these rows may be there, and need not be."""
        sent = dict(acked)
        for c, (path, _) in clients.items():
            for last, _, end in load.acks(path):
                if end < self.cut_at:
                    acked[c] = last
                sent[c] = last
            rec["acked"] += acked[c] - self.ledger.have[c]
            if os.path.exists(path):
                os.unlink(path)
        return sent

    def restart(self, rec, event, r, acked, sent):
        """Power back: mount, recovery, gate, database, checks."""
        self.image.umount()
        self.image.mount()
        if self.keep_cuts:
            self.keep_cut(acked, sent)
        if self.product and self.recover:
            if event == "again":
                self.product.start(wait=False)
                time.sleep(r.uniform(0, 0.05))
                self.power_cut({})
                self.image.umount()
                self.image.mount()
            if event == "refuse":
                self.must_refuse(rec, acked)
            begin = time.monotonic()
            if event != "gate":
                self.product.start()
            status, words = self.product.gate()
            rec["recovery_s"] = round(time.monotonic() - begin, 3)
            if status:
                rec["quarantined"] = 1
                rec["problems"].append("gate: exit %d: %s" % (status, words))
                return
        self.torn.add(self.engine.mark(self.datadir))
        env = self.env() if self.recover or not self.product else {}
        self.server = self.engine.Server(self.box, self.datadir, env=env, args=self.args())
        try:
            begin = time.monotonic()
            self.server.start()
            rec["start_s"] = round(time.monotonic() - begin, 3)
        except self.engine.StartFailed as e:
            rec["unstarted"] = 1
            rec["lost"] += rec["acked"]  # nobody can read them
            rec["problems"].append(str(e))
            return
        if event == "gate":  # it must take the files over, without a restart of the database
            self.product.start()
        try:
            f = self.ledger.check(self.server, acked, sent, self.since, self.torn)
        except Exception as e:  # whatever the database says to a question about its rows
            rec["lost"] += 1
            rec["problems"].append("the check: %r" % e)
            return
        rec["rows"] = f.rows
        rec["lost"] += f.lost or bool(f.wrong)
        rec["problems"] += f.wrong

    def keep_cut(self, acked, sent):
        """The data directory and the pool as the last cut left them, in the folder cut; who had been promised what."""
        target = self.box.folder("cut")
        run(["rm", "-rf", target])
        os.mkdir(target, 0o755)
        run(["cp", "-a", "--sparse=always", self.datadir, target])
        if self.product:
            run(["cp", "-a", "--sparse=always", self.product.memory, target])
        with open(os.path.join(target, "acked"), "w") as f:
            f.write("acked %s\nsent %s\nchecked before %s\n" % (acked, sent, self.ledger.have))

    def must_refuse(self, rec, acked):
        """No daemon, no gate, commits in the pool: no file of theirs is written to, and none goes (MariaDB removes
        a binlog that was being made before it opens anything). PostgreSQL reads before it writes: where all of its
        log happens to be on the disk, up to the end of a segment, it needs none of those files, and starts."""
        before, names = self.marked(), self.log_names()
        s = self.engine.Server(self.box, self.datadir, env=self.env(), args=self.args())
        started, lacks = True, []
        try:
            s.start(timeout=15)  # PostgreSQL tries again and again
            try:
                lacks = self.ledger.lacks(s, acked)
                if self.past_the_gate:
                    self.past_the_gate(s)
            except self.engine.ERRORS as e:
                lacks.append("no answer: %s" % e)
            s.kill()
        except self.engine.StartFailed as e:
            started = False
            rec["refused"] = str(e)
        after = self.marked()
        wrong = ["removed " + p for p in sorted(names - self.log_names())] if not started else []
        wrong += ["changed " + p for inode, (p, content) in before.items()
                  if after.get(inode, (None, None))[1] != content]
        if started and not getattr(self.engine, "READS_FIRST", False):
            wrong.append("succeeded")
        if rec["live_at_cut"]:
            wrong += lacks
            rec["started_past_the_gate"] = started
        if wrong:
            rec["lost"] += 1
            rec["problems"].append("the start past the gate, with commits in the pool: " + ", ".join(wrong))

    def marked(self):
        """The files that bear our mark: inode -> (path, digest of what they hold)."""
        out = {}
        for folder, _, names in os.walk(self.datadir):
            for path in (os.path.join(folder, n) for n in names):
                try:
                    os.getxattr(path, "user.pmemlogd.owner", follow_symlinks=False)
                except OSError:
                    continue
                with open(path, "rb") as f:
                    out[os.fstat(f.fileno()).st_ino] = path, hashlib.sha256(f.read()).digest()
        return out

    def log_names(self):
        """The log files that there are."""
        paths = [os.path.join(folder, n) for folder, _, names in os.walk(self.datadir) for n in names]
        return {p for p in paths if any(log.search(p) for log in self.engine.LOGS)}

    def abandon(self):
        """Ends what runs and begins with fresh media in the next cycle."""
        for p in (self.server, self.product):
            if p:
                p.kill()
        self.image.umount()
        self.fresh = True

    def rest(self, k):
        """Between cycles: after the last of a group, fresh media with another lane size."""
        if not self.fresh and (k + 1) % self.group == 0:
            self.server.stop()
            if self.product:
                self.product.stop()
            wrong = self.engine.check_stopped(self.datadir)
            if wrong:
                self.cycles[-1]["lost"] += 1
                self.cycles[-1]["problems"] += wrong
            self.image.umount()
            self.fresh = True
            return wrong
        return []

    # ---- results

    def summary(self):
        total = {key: sum(c[key] for c in self.cycles)
                 for key in ("acked", "lost", "quarantined", "unstarted", "wraps", "full_waits")}
        live = [c["live_at_cut"] for c in self.cycles if c["counts"]]
        total["live_min"] = min(live, default=0)
        total["live_median"] = int(statistics.median(live)) if live else 0
        total["cycles"] = len(live)
        total["not_counted"] = len(self.cycles) - len(live)
        return total


def last_line(t):
    return ("acked %(acked)d lost %(lost)d quarantined %(quarantined)d unstarted %(unstarted)d "
            "live_at_cut %(live_min)d/%(live_median)d wraps %(wraps)d full_waits %(full_waits)d" % t)
