# SPDX-License-Identifier: LGPL-2.1-or-later
"""The disk fails while records are put back."""
from cases import DOMAIN, require
from faultdisk import ALL, INSIDE


def on_the_disk_alone(t):
    """No daemon, no memory: what the last cut has left."""
    t.c.product.kill()
    t.c.image.cut()
    t.c.image.umount()
    t.c.image.mount()
    t.checked()


def replay_heals(t):
    """One write of the replay is lost: written again, not just synced again."""
    c = t.begin(destage_age="60s")
    t.writers()
    c.cut()
    t.disk.watch(t.logs)
    t.disk.order(write_fail=1, where=INSIDE)
    c.product.start()
    status, words = c.product.gate()
    require(t.disk["failed"], "the disk has not failed")
    require(status == 0, "gate: %s", words)
    on_the_disk_alone(t)
    t.end()


def replayed_twice(t, fault):
    """The disk fails in the middle of the replay, or at its end: nothing is trimmed, and again."""
    replay_heals(t)
    for at, orders in (("write", {"write_fail": ALL, "where": INSIDE}), ("flush", {"flush_fail": ALL})):
        c = t.begin(destage_age="60s")
        t.writers()
        c.cut()
        t.disk.watch(t.logs)
        t.disk.order(**orders)
        c.product.start()
        status, words = c.product.gate()
        require(status != 0, "%s: gate says yes though the replay has failed", at)
        d = c.status()
        # held where the file system gave up before the first byte, which the journal decides
        states = ("quarantined",) if at == "write" else ("quarantined", "held")
        require(d["state"] in states and "log." in d["reason"], "%s: %s: %s", at, d["state"], d["reason"])
        require(c.flush()[0] != 0, "%s: flush says yes though the replay has failed", at)
        r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
        require(r.returncode != 0, "%s: recover --apply says yes while the disk fails", at)
        t.disk.good()
        if at == "flush":  # the journal's, too: nobody may write until it is mounted anew
            c.image.umount()
            c.image.mount()
        r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
        require(r.returncode == 0, "%s: recover --apply: %s", at, r.stdout + r.stderr)
        c.recover()
        on_the_disk_alone(t)
        t.end()
