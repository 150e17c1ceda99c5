# SPDX-License-Identifier: LGPL-2.1-or-later
"""A file system that is no more: its journal cannot be written, or the disk is gone."""
import os
import time

from cases import DOMAIN, require, wait_for
from faults import HEAL_SECONDS


def break_journal(t):
    """A change of metadata by somebody, so that the journal meets the disk."""
    try:
        fd = os.open(os.path.join(t.disk.path, "other"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        pass


def errors_of(t, fault, shimmed):
    """The writers' first error while all of the disk fails; "" for none within the time."""
    t.disk.order(**fault.orders)
    break_journal(t)
    end = time.monotonic() + 5
    while time.monotonic() < end and not t.stamp.error() and not shimmed:
        time.sleep(0.02)
    return t.stamp.error()


def broken(t, fault):
    """All writes fail, or all calls: journal and all. Then the disk is well again, and mounted anew."""
    c = t.begin()
    t.writers(shimmed=False)
    t.stamp.moves(by=100)
    plain = errors_of(t, fault, False)
    require(plain, "the disk alone has no error: nothing is tested")
    t.end()

    for remount in (False, True):
        c = t.begin()
        t.writers()
        errors_of(t, fault, True)
        w = t.watch(fault)
        w.during(fault.seconds)
        t.take(w)
        t.stamp.note_floor()
        error = t.stamp.forgive()
        if error:
            t.notes["error"] = "%s (disk alone: %s)" % (error, plain)
        if not remount:
            t.cut_and_check()
            t.end()
            continue
        # no power cut: the writers end, the daemon lives and lets go of the files by itself
        t.stamp.stopping()
        t.stamp.process.kill()
        t.stamp.process.wait()
        wait_for("the daemon gives the domain's files up",
                 lambda: c.product.status().domain(DOMAIN)["state"] == "held", 20)
        text = c.product.status().domain(DOMAIN)["reason"]
        require("log." in text, "held, and no file is named: %s", text)
        require(c.flush()[0] != 0, "flush says yes while the disk is away")
        c.image.umount()
        c.image.mount()
        begin = time.monotonic()
        wait_for("recovery by itself", lambda: c.product.status().domain(DOMAIN)["state"] == "ok",
                 HEAL_SECONDS)
        t.notes["healed"] = round(time.monotonic() - begin, 1)
        c.must_flush()
        c.cut()
        t.checked()
