# SPDX-License-Identifier: LGPL-2.1-or-later
"""Recovery and pool creation, killed at every system call and run again: pmemlogctl without a daemon
(gate, recover --apply, --discard, --adopt, pool create), and the daemon's start.

Each Job names a command, the state that it finds and what must hold when it was run again. The state is
put back for each event. Ways: `kill` alone; `cut`, the power fails after the kill; `twice`, the second
run is killed too, at a random event; `step`, so many instructions behind the event.
"""
import os
import random

from cases import Agent, Stamp, block, read
from scene import DOMAIN, Failed, differs, require, signal, wait_for

# Way: its part of the points.
WAYS = {"kill": 1, "cut": 0.3, "twice": 0.2, "step": 0.2}


def left_behind(m):
    """Records of four files that nobody has destaged, and one that is unlinked; all programs are dead.

    Returns what must be in the files that no stamp checks."""
    a = Agent(m)
    want = {}
    for name in ("log.7", "log.8", "log.9"):
        fd = a.open(m.path(name), os.O_RDWR | os.O_CREAT)
        a.write_synced(fd, block(1) * 2, 0)
        if name == "log.9":  # a FENCE, and records behind it
            a.ftruncate(fd, 4096)
            a.write_synced(fd, block(2, 512), 1024)
            want[name] = block(1)[:1024] + block(2, 512) + block(1)[1536:]
        elif name == "log.8":
            a.unlink(m.path(name))
        else:
            want["log.6"] = block(1) * 2
            a.rename(m.path(name), m.path("log.6"))
    m.accelerated("log.9")
    s = Stamp(m, threads=2, files=2, count=8)
    m.product.process.send_signal(signal.SIGSTOP)
    s.done()
    require(m.live() > 0, "nothing is live")
    return want


def state_power(m):
    want = left_behind(m)
    m.cut()
    m.reboot()
    return want


def state_killed(m):
    """All processes died and the machine runs on: the control file is there."""
    want = left_behind(m)
    for a in m.agents:
        a.kill()
    m.agents = []
    m.product.kill()
    return want


def state_foreign(m):
    """Somebody else wrote, more than a second after the last record."""
    want = state_power(m)
    ctime = os.stat(m.path("log.0")).st_ctime

    def foreign():
        fd = os.open(m.path("log.0"), os.O_RDWR)
        os.pwrite(fd, b"foreign" * 100, 60 << 16)
        os.fsync(fd)
        os.close(fd)
        return os.stat(m.path("log.0")).st_ctime > ctime + 2.5
    wait_for("a later ctime", foreign)
    return want


def state_quarantined(m):
    want = state_foreign(m)
    status, words = m.ctl(*m.gate_words())
    require(status == 1 and "quarantined" in words, "gate: exit %d: %s", status, words)
    return want


def state_other_pool(m):
    """A file with the mark of a pool that is gone."""
    want = state_power(m)
    p = m.product
    for folder in (p.pool, p.state):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                os.unlink(path)
    status, words = m.ctl("pool", "create", "--emulate")
    require(status == 0, "pool create: %s", words)
    require(m.marked(), "no file has a mark")
    return want


def state_no_pool(m):
    return {}


def state_old_pool(m):
    """A pool with records, and a lane whose domain has gone on."""
    return state_power(m)


class Job:
    begin = 0  # part of the events that is left out
    varies = False  # threads: not each run has as many events

    def __init__(self, name, state, words, again=None, start=True, status=0):
        self.name, self.state, self.words, self.start = name, state, words, start
        self.again = again or words
        self.status = status

    def first(self, m, at, steps=0):
        """The run that is killed at an event (of 1 << 30: counted): exit status and words."""
        return m.ctl(*self.words, at=at, steps=steps)

    def complete(self, m, want, base):
        """What is wrong after the last run; base: the contents that an undisturbed run leaves."""
        wrong = m.left_over()
        differing = differs(m.contents(), base)
        if differing:
            wrong.append(differing)
        for name, data in want.items():
            if read(m.path(name)) != data:
                wrong.append("%s is not what was acknowledged" % name)
        try:
            m.check()
        except Failed as e:
            wrong.append(str(e))
        return wrong + self.gate(m)

    def after(self, m):
        """After the undisturbed run."""

    @staticmethod
    def gate(m):
        status, words = m.ctl(*m.gate_words())
        return ["gate: exit %d: %s" % (status, words)] if status else []

    def run_again(self, m, r):
        """The second run, to its end: words for what is wrong."""
        status, words = m.ctl(*self.again)
        return [] if status == self.status else ["run again: exit %d: %s" % (status, words)]


class Quarantine(Job):
    """The gate that finds a foreign change: it stays shut, and the files are protected."""

    def complete(self, m, want, base):
        wrong = []
        # log.6 and log.9, log.0 and log.1: all that have an entry and a name
        if len(m.immutable()) != 4:
            wrong.append("immutable: %s" % m.immutable())
        status, words = m.ctl(*m.gate_words())
        if status != 1 or "somebody else" not in words and "changed" not in words:
            wrong.append("gate: exit %d: %s" % (status, words))
        status, words = m.ctl("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
        if status:
            wrong.append("apply: exit %d: %s" % (status, words))
        return wrong + super().complete(m, want, m.contents())


class Apply(Job):
    """The next start's gate may come first, or the daemon: they open only when all is in the files."""

    def run_again(self, m, r):
        first = r.choice(("apply", "gate", "daemon"))
        if first == "apply":
            return super().run_again(m, r)
        if first == "daemon":
            m.product.start()
            status, words = m.product.gate()
            m.product.stop()
        else:
            status, words = m.ctl(*m.gate_words())
        if status == 0:
            return []
        if "--apply" not in words:  # not decided yet
            return ["gate: exit %d: %s" % (status, words)]
        return super().run_again(m, r)


class ApplyEnd(Apply):
    """Its last steps, and the daemon comes next."""

    begin = 0.95

    def run_again(self, m, r):
        m.product.start()
        status, words = m.product.gate()
        m.product.stop()
        return ["gate: exit %d: %s" % (status, words)] if status else []


class Discard(Job):
    def complete(self, m, want, base):
        wrong = m.left_over()
        differing = differs(m.contents(), base)
        kept = os.path.join(m.product.state, "quarantine")
        if not os.path.isdir(kept) or not any(
                os.path.exists(os.path.join(kept, d, "lane")) for d in os.listdir(kept)):
            wrong.append("no copy of the records was kept")
        return wrong + ([differing] if differing else []) + self.gate(m)


class Adopt(Job):
    def complete(self, m, want, base):
        return ["log.6 still has a mark"] if "log.6" in m.marked() else []


class Create(Job):
    """Made by the first run, or by the second; refused in clear words where it is there already."""

    def run_again(self, m, r):
        status, words = m.ctl(*self.again)
        if status == 0 or status == 1 and "holds a pool already" in words:
            return []
        return ["run again: exit %d: %s" % (status, words)]

    def complete(self, m, want, base):
        wrong = []
        status, words = m.ctl("pool", "check")
        if status:
            wrong.append("pool check: exit %d: %s" % (status, words))
        wrong += self.gate(m)
        extra = [n for n in os.listdir(m.product.pool) if n not in m.pool_files]
        if extra:
            wrong.append("left in the pool's folder: %s" % extra)
        return wrong


class CreateForce(Create):
    def run_again(self, m, r):
        status, words = m.ctl(*self.again)
        return [] if status == 0 else ["run again: exit %d: %s" % (status, words)]


class Start(Job):
    """The daemon's start, until every domain is decided."""

    varies = True

    def first(self, m, at, steps=0):
        m.traced_daemon(at, steps, wait=False)
        ready = m.wait_ready_or_dead()
        if m.orders["hit"] != 1 or at == 1 << 30:
            m.end_daemon()
        return (0 if ready else 137), ""

    def run_again(self, m, r):
        m.product.start()
        status, words = m.product.gate()
        m.product.stop()
        return [] if status == self.status else ["gate: exit %d: %s" % (status, words)]


class StartQuarantine(Start, Quarantine):
    """The same where it finds a foreign change."""


YES = "--yes=" + DOMAIN
JOBS = [
    Job("gate-power", state_power, ["gate", "root/" + DOMAIN]),
    Job("gate-killed", state_killed, ["gate", "root/" + DOMAIN]),
    Quarantine("gate-foreign", state_foreign, ["gate", "root/" + DOMAIN], status=1),
    Apply("apply", state_quarantined, ["recover", "--apply", YES, DOMAIN]),
    ApplyEnd("apply-end", state_quarantined, ["recover", "--apply", YES, DOMAIN]),
    Discard("discard", state_quarantined, ["recover", "--discard", YES, DOMAIN]),
    Adopt("adopt", state_other_pool, ["recover", "--adopt", "LOG6", DOMAIN]),
    Create("create", state_no_pool, ["pool", "create", "--emulate"], start=False),
    Start("start-power", state_power, []),
    Start("start-killed", state_killed, []),
    StartQuarantine("start-foreign", state_foreign, [], status=1),
    CreateForce("create-force", state_old_pool, ["pool", "create", "--emulate", "--force", "YES-POOL"]),
]


def points(events, share, r):
    """All events of a run, or a share of them, spread out; the first and the last are always in."""
    if share >= 1:
        return list(range(1, events + 1))
    step = 1 / share
    return sorted({1, events} | {min(events, int((i + r.random()) * step) + 1)
                                 for i in range(int(events * share))})


def one(m, job, n, way, r, events, want, base):
    """Kills at event n and runs again; words for what is wrong."""
    m.restore()
    steps = r.choice((3, 20, 100, 500, 2000)) if way == "step" else 0
    status, words = job.first(m, n, steps)
    if m.orders["hit"] != 1:
        if job.varies:
            return []
        return ["not killed: %d events, exit %d: %s" % (m.orders["events"], status, words)]
    m.spot = m.orders.where()
    if way == "cut":
        m.lights_out()
    elif way == "twice":
        job.first(m, r.randint(1, events))
        m.spot += "; then " + m.orders.where()
        if r.random() < 0.5:
            m.lights_out()
    return job.run_again(m, r) + job.complete(m, want, base)


def job_run(m, job, share, tell):
    """Points and how many of them went wrong."""
    r = random.Random("%d/%s" % (m.seed, job.name))
    m.begin(start=job.start)
    want = job.state(m)
    names = {"LOG6": m.path("log.6"), "YES-POOL": "--yes=" + m.product.pool}
    job.words = [names.get(w, w) for w in job.words]
    job.again = [names.get(w, w) for w in job.again]
    if job.state is state_no_pool:
        for folder in (m.product.pool, m.product.state):
            for name in os.listdir(folder):
                os.unlink(os.path.join(folder, name))
    m.keep()
    m.restore()
    status, words = job.first(m, 1 << 30)
    events = m.orders["events"]
    require(status == (0 if job.varies else job.status), "%s: exit %d: %s", job.name, status, words)
    base = m.contents()
    job.after(m)
    m.pool_files = os.listdir(m.product.pool)
    wrong = job.complete(m, want, base)
    require(not wrong, "%s without a kill: %s", job.name, "; ".join(wrong))
    total = bad = 0
    for way in WAYS:
        skipped = int(events * job.begin)
        for n in points(events - skipped, share * WAYS[way], r):
            n += skipped
            total += 1
            wrong = one(m, job, n, way, r, events, want, base)
            if wrong:
                bad += 1
                tell("%s %s at event %d of %d (%s): %s" % (job.name, way, n, events, m.spot,
                                                           "; ".join(wrong)))
            if bad >= 10:
                return total, bad
    return total, bad
