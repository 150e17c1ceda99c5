# SPDX-License-Identifier: LGPL-2.1-or-later
"""Recovery and pool creation, killed at every system call and run again: pmemlogctl without a daemon
(gate, recover --apply, --discard, --adopt, pool create), and the daemon's start: the jobs of jobs.py.

The state that a job finds is put back for each point. Ways: `kill` alone; `cut`, the power fails after the kill;
`twice`, the second run is killed too, at a random event; `step`, random numbers of instructions on, wherever stores
to the pool lie between two events; `any`, events of all kinds, fresh or not, in case that rule is wrong.
"""
import os
import random

from orders import NEVER, Spot
from points import Counted
from scene import require
from states import state_no_pool

# Way: its part of the events that it has.
WAYS = {"kill": 1, "cut": 0.5, "twice": 0.3, "step": 1, "any": 0.03}
# A small share is drawn from all events: to find the fresh ones takes longer than to kill at a few of them.
LOOK_SHARE = 0.2
SAMPLED = {"kill": 1, "cut": 0.3, "twice": 0.2, "step": 0.2}


def one(m, job, spot, way, r, counted, want, base):
    """Kills there and runs again; words for what is wrong. None: it had no such event."""
    m.restore()
    status, words = job.first(m, spot)
    if m.orders["hit"] != 1:
        if job.varies:
            return None
        return ["not killed: %d events, exit %d: %s" % (m.orders["events"], status, words)]
    m.spot = m.orders.where()
    if way == "cut":
        m.lights_out()
    elif way == "twice":
        job.first(m, counted.one_of(r))
        m.spot += "; then " + m.orders.where()
        if r.random() < 0.5:
            m.lights_out()
    return job.run_again(m, r) + job.complete(m, want, base)


def begun(m, job):
    """The state that the job finds is made and kept: what must be in the files."""
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
    return want


def undisturbed(m, job, want, look):
    """(Counted, contents of the files after it)"""
    m.restore()
    m.look = look
    status, words = job.first(m, Spot(NEVER))
    m.look = False
    counted = Counted(m.orders, look)
    require(status == (0 if job.varies else job.status), "%s: exit %d: %s", job.name, status, words)
    base = m.contents()
    job.after(m)
    m.pool_files = os.listdir(m.product.pool)
    wrong = job.complete(m, want, base)
    require(not wrong, "%s without a kill: %s", job.name, "; ".join(wrong))
    return counted, base


def job_run(m, job, share, tell):
    """Points and how many of them went wrong."""
    r = random.Random("%d/%s" % (m.seed, job.name))
    want = begun(m, job)
    look = share >= LOOK_SHARE
    counted, base = undisturbed(m, job, want, look)
    print("        %s: %s" % (job.name, counted), flush=True)
    total = bad = missed = 0
    for way, part in (WAYS if look else SAMPLED).items():
        for spot in counted.spots(way, share * part, r, job.begin):
            wrong = one(m, job, spot, way, r, counted, want, base)
            if wrong is None:
                missed += 1
                continue
            total += 1
            if wrong:
                bad += 1
                tell("%s %s at %s (%s): %s" % (job.name, way, spot, m.spot, "; ".join(wrong)))
            if bad >= 10:
                return total, bad
    if missed:
        print("        %s: %d points had no such event" % (job.name, missed), flush=True)
    return total, bad
