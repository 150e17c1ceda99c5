# SPDX-License-Identifier: LGPL-2.1-or-later
"""Disk faults under small writers: which there are. Those that only the logs' data meets are here."""
import subprocess
import time

from toy import Toy
from cases import Failed, require, wait_for
from faults import FAULTS
from faults_full import full_for_writer, full_for_replay
from faults_gone import broken
from faults_heard import heard_by_client, heard_by_earlier, restarted_in_it, grown
from faults_late import slow, hangs
from faults_replay import replayed_twice


def passing(t, fault):
    t.begin()
    t.writers()
    t.disk.order(**fault.orders)
    wait_for("the disk has failed", lambda: t.disk["failed"])
    wait_for("the daemon sees an error", lambda: t.c.status()["destage_errors"] > 0)
    t.stamp.moves(by=200)
    w = t.watch(fault)
    t.notes["healed"] = w.healed()
    t.take(w)
    t.stamp.moves(by=200)
    t.flushed_cut()
    t.end()
    # the same, and the power goes at once
    t.begin()
    t.writers()
    t.disk.order(**fault.orders)
    wait_for("the disk has failed", lambda: t.disk["failed"])
    time.sleep(t.seed % 5 * 0.02)
    t.cut_and_check()


def lasting(t, fault):
    t.begin()
    t.writers()
    t.disk.order(**fault.orders)
    w = t.watch(fault)
    before = t.stamp.acked()
    w.during(fault.seconds)
    t.stamp.fine()
    require(t.stamp.acked() > before + 100, "the writers stand still while the disk fails")
    t.disk.good()
    t.notes["healed"] = w.healed()
    t.take(w)
    t.stamp.moves(by=200)
    t.flushed_cut()
    t.end()
    forever(t, fault)


def forever(t, fault):
    t.begin()
    t.writers()
    t.disk.order(**fault.orders)
    w = t.watch(fault)
    w.during(fault.seconds / 2)
    t.take(w)
    t.stamp.moves(by=200)
    t.cut_and_check()


RUNS = {
    "eio-once": passing,
    "eio-n": passing,
    "eio-forever": forever,
    "eio-heal": lasting,
    "enospc-write": full_for_writer,
    "enospc-destage": lasting,
    "enospc-replay": full_for_replay,
    "readonly": broken,
    "gone": broken,
    "slow1000": slow,
    "hangs": hangs,
    "eio-client": heard_by_client,
    "eio-earlier": heard_by_earlier,
    "eio-restart": restarted_in_it,
    "eio-replay": replayed_twice,
    "eio-grown": grown,
}


def faults(_):
    """Those that it is put through: all."""
    return list(RUNS)


def run_fault(box, fs, seed, name, _):
    """(notes, problems)"""
    t = Toy(box, fs, seed, name)
    fault = FAULTS[name]
    try:
        RUNS[name](t, fault)
    except (Failed, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
        t.problems.append("life %d: %r" % (t.lives, e))
    if t.problems:
        box.tails()
    t.end()
    return t.notes, t.problems
