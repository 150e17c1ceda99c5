# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients killed and stopped at random events and instructions inside RULE L and RULE F, in every state
of their file, while two other programs of the domain write on; the daemon stopped likewise.

The others must go on, what each acknowledged must be readable at once, the victim's last write is whole
in each page or not there; and after the power cut that ends each round the same.
"""
import os
import random
import signal
import subprocess

from cases import Stamp
from locks import LANE, SYNCS, held_by_daemon
from sandbox import wait_end
from scene import Failed, Orders, require, wait_for

POINTS = 200  # of a part with --share 1
ROUND = 6     # victims between two power cuts
STEPS = (0, 0, 1, 3, 10, 30, 100, 300, 1000, 3000)
PWRITEV2 = 328


class Crowd:
    """Two writers of log.0 and log.1, one of files of its own, and victims."""

    def __init__(self, m, plan, sync="fdatasync"):
        self.m, self.plan, self.sync = m, plan, sync
        self.orders = Orders(os.path.join(m.image.file + ".victim"))
        self.wrap = [m.killat, self.orders.path]
        self.victim = self.held = None
        self.gone_on = None

    def begin(self):
        self.others = [Stamp(self.m, first=t, threads=1, plan=self.plan) for t in (0, 1)]
        self.apart = Stamp(self.m, first=2, threads=1, plan="mixed", folder="apart")
        for s in self.others + [self.apart]:
            s.pause(500)
        self.victim = None

    def start_victim(self, at=0, steps=0, what=0):
        self.orders.begin(at, steps, what)
        try:
            self.victim = Stamp(self.m, first=8, threads=1, plan=self.plan, sync=self.sync,
                                again=self.victim, wrap=self.wrap)
        except Failed:
            require(self.orders["hit"] == 1, "the victim ended by itself")
            self.victim = self.m.stamps[-1]

    def wait_death(self):
        """False: it had no such event."""
        try:
            wait_for("the victim's death", lambda: self.orders["hit"] == 1, 60)
        except Failed:
            if self.victim.process.poll() is not None:
                return False
            raise
        if self.sync != "fork" or self.orders["hit_pid"] == self.orders["pid"]:
            wait_end(self.victim.process, 20)
        return True

    def moving(self, stamps=None):
        for s in self.others + [self.apart] if stamps is None else stamps:
            s.moves(20)

    def check(self, dead=True):
        if self.victim:
            self.victim.dead(dead and self.victim.process.poll() is not None)
        for s in self.m.stamps:
            s.check()

    def end_round(self):
        """Power cut, recovery, check of everything."""
        m = self.m
        m.cut()
        m.reboot()
        for s in m.stamps:
            s.dead()
        m.recover()
        acked = sum(s.check() for s in m.stamps)
        for s in m.stamps:
            s.map.close()
            os.unlink(s.shared)
        m.stamps = []
        m.product.kill()
        m.image.make()
        m.product.create()
        return acked


# States: called before the victim's event is ordered, and after its death.

def nothing(c):
    pass


def no_daemon(c):
    c.m.product.kill()


def bypass(c):
    """The lane is full and nobody destages."""
    c.m.product.kill()
    for s in c.others:
        s.pause(0)
    c.victim.moves(20, by=300)
    for s in c.others:
        s.pause(500)


def stopped_daemon(c):
    """As above, and the victim is on its way into it: waits for room, then RULE F."""
    c.m.product.process.send_signal(signal.SIGSTOP)
    for s in c.others:
        s.pause(0)


def start_again(c):
    for s in c.others:
        s.pause(500)
    if c.m.product.process:
        c.m.product.process.send_signal(signal.SIGCONT)
    else:
        c.m.product.start()


def renewed_daemon(c):
    """Records that are older than anybody's descriptions: who wants a FENCE heals first."""
    c.m.product.kill()
    c.m.product.start()


def hold_lock(c):
    """Another writer stands inside its write."""
    c.gone_on = Orders(os.path.join(c.m.image.file + ".holder"))
    if c.held is None or c.held not in c.m.stamps:
        c.held = Stamp(c.m, first=9, threads=1, plan=c.plan, wrap=[c.m.killat, c.gone_on.path])
    c.gone_on.set(only=PWRITEV2 + 1)
    c.gone_on.after(1, what=1)
    wait_for("somebody holds the lock", lambda: c.gone_on["hit"])


def let_go(c):
    os.kill(c.gone_on["pid"], signal.SIGCONT)
    os.kill(c.gone_on["pid"], signal.SIGKILL)
    wait_end(c.held.process, 20)
    c.m.stamps.remove(c.held)
    c.held.map.close()
    c.held = None


# name: (plan, settings, before, after, least and most events from then on)
STATES = {
    "client-lane": ("mixed", {}, nothing, nothing, (1, 40)),
    "client-bypass": ("mixed", {}, bypass, start_again, (1, 40)),
    "client-full": ("mixed", {}, stopped_daemon, start_again, (1, 200)),
    "client-absent": ("mixed", {}, no_daemon, start_again, (1, 40)),
    "client-fence": ("wide", {"bypass_size": "8KiB"}, nothing, nothing, (1, 60)),
    "client-heal": ("wide", {"bypass_size": "8KiB"}, renewed_daemon, nothing, (1, 60)),
}


def settings(more):
    return dict({"reconnect_timeout": "200ms", "destage_age": "50ms"}, **more)


def rounds(m, c, points, one, tell, name):
    """Calls one(k) and cuts the power now and then."""
    wrong = acked = 0
    for k in range(points):
        try:
            if k % ROUND == 0:
                if not m.product.process:
                    m.product.start()
                c.begin()
            one(k)
            for s in m.stamps:
                if s is not c.victim:
                    s.fine()
            if k % ROUND == ROUND - 1 or k == points - 1:
                acked += c.end_round()
        except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
            tell("%s point %d (%s): %s" % (name, k, c.orders.where(), e))
            wrong += 1
            break  # what comes after it would start from a broken state
    require(wrong or acked > 0, "nothing was acknowledged")
    return k + 1, wrong


def killed(m, name, share, tell):
    plan, more, before, after, events = STATES[name]
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(**settings(more))
    c = Crowd(m, plan)

    def one(k):
        if c.victim is None or c.victim.process.poll() is not None:
            c.start_victim()
        c.victim.moves(20, by=3)
        before(c)
        c.orders.after(r.randint(*events), r.choice(STEPS))
        if c.wait_death() and r.random() < 0.5:
            c.start_victim()  # at once: it gets the dead one's slot before anybody has looked
        c.moving()
        c.check()
        after(c)
        c.moving()
        c.check()
    return rounds(m, c, max(3, int(POINTS * share)), one, tell, name)


def waiting(m, name, share, tell):
    """Killed while it waits for a lock that another one holds, or just got it."""
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(**settings({}))
    c = Crowd(m, "mixed")

    def one(k):
        c.start_victim()
        c.victim.moves(20)
        hold_lock(c)
        c.orders.after(r.randint(1, 12), r.choice(STEPS[:8]))
        if r.random() < 0.5:
            os.kill(c.gone_on["pid"], signal.SIGCONT)
        c.wait_death()
        c.apart.moves(20)
        let_go(c)
        c.moving()
        c.check()
    return rounds(m, c, max(3, int(POINTS * share)), one, tell, name)


def slot(m, name, share, tell):
    """Killed on its way from its start to its first writes: socket, control file, slot."""
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(**settings({}))
    c = Crowd(m, "mixed")

    def one(k):
        if k % ROUND == 0:
            c.start_victim(1 << 30)
            c.victim.moves(20)
            c.span = c.orders["events"]
            c.orders.after(1)
            c.wait_death()
        c.start_victim(r.randint(c.span // 4, c.span), r.choice(STEPS[:8]))
        c.wait_death()
        c.moving()
        c.check()
    return rounds(m, c, max(3, int(POINTS * share)), one, tell, name)


def forked(m, name, share, tell):
    """A forked child killed in its first call; its parent makes the next one."""
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(**settings({}))
    c = Crowd(m, "mixed", "fork")

    def one(k):
        if c.victim is None or k % ROUND == 0:
            c.start_victim()
        c.victim.moves(20)
        c.orders.after(r.randint(1, 120), r.choice(STEPS[:8]))
        c.wait_death()
        if c.victim.process.poll() is not None:  # it was the parent: a child of it may live on
            c.victim.stopping()
            wait_for("the last child", lambda: not os.path.exists(
                "/proc/%d" % c.orders["hit_pid"]))
            c.start_victim()
        c.victim.moves(20)
        c.moving()
        c.check(dead=False)
    return rounds(m, c, max(3, int(POINTS * share)), one, tell, name)


def stopped(m, name, share, tell):
    """Stopped: who has other files goes on, the daemon answers; after SIGCONT everybody does."""
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(**settings({"bypass_size": "16KiB"}))
    c = Crowd(m, "wide")

    def one(k):
        c.start_victim()
        c.victim.moves(20)
        steps = r.choice(STEPS)
        c.orders.after(r.randint(1, 60), steps, what=1)
        wait_for("the victim stops", lambda: c.orders["hit"])
        if steps == 0:  # no system call is made inside the lane's lock, which all need
            c.apart.moves(20, by=20)
        require(m.status() is not None, "the daemon does not answer")
        os.kill(c.orders["pid"], signal.SIGCONT)
        c.victim.moves(20)
        c.moving()
        m.must_flush()
        c.orders.after(1)
        c.wait_death()
        c.check()
    return rounds(m, c, max(3, int(POINTS * share)), one, tell, name)


def free_of_daemon(c):
    """The programs that need no lock which the daemon stands in. It may have a file's while it writes records
    into it anew, or the lane's for an instant; never over a sync, which takes as long as the disk likes."""
    m = c.m
    inodes = held_by_daemon(m) if m.orders["hit"] else []
    syncs = m.orders["call"] in SYNCS and m.orders["stepped"] == 0
    require(not (inodes and syncs), "the daemon syncs under a lock: %s", m.orders.where())
    if LANE in inodes:
        return []
    return [s for s in c.others + [c.apart]
            if not set(inodes) & {e.inode() for e in os.scandir(s.dir) if e.is_file()}]


def daemon_stopped(m, name, share, tell):
    """The daemon stands at any of its events: all go on but those whose file's lock it has, these as soon as it
    goes on or is killed; and are accelerated again afterwards."""
    r = random.Random("%d/%s" % (m.seed, name))
    m.begin(start=False, **settings({}))
    c = Crowd(m, "mixed")
    m.traced_daemon()
    stood = 0

    def one(k):
        nonlocal stood
        if m.orders["pid"] != m.traced_pid():
            m.product.kill()
            m.traced_daemon()
        m.orders.after(r.randint(1, 60), r.choice(STEPS), what=1)
        m.wait_hit(10)
        if r.random() < 0.5:
            for s in c.others:
                s.pause(0)
        free = free_of_daemon(c)
        stood += len(free) < 3
        c.moving(free)
        wait_for("many writes", lambda: all(not s.moves(20, by=50) for s in free if s is not c.apart))
        if len(free) < 3 and r.random() < 0.5:
            m.end_daemon()
            c.moving()
            m.traced_daemon()
        m.signal_daemon(signal.SIGCONT)
        for s in c.others:
            s.pause(500)
        for f in ("log.0", "log.1"):
            m.in_lane(f)
        c.moving()
        m.must_flush()
        c.check()
    done = rounds(m, c, max(3, int(POINTS * share / 2)), one, tell, name)
    print("        %s: %d times inside a lock" % (name, stood), flush=True)
    return done


PARTS = dict({name: killed for name in STATES},
             **{"client-lock": waiting, "client-slot": slot, "client-fork": forked,
                "client-stopped": stopped, "daemon-stopped": daemon_stopped})
