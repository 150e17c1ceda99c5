# SPDX-License-Identifier: LGPL-2.1-or-later
"""Disk faults under small writers (tests/cases/stamp.c and single calls): every byte is known."""
import ctypes
import errno
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cases"))

from cases import (DOMAIN, Agent, Case, Failed, Stamp, errno_of, read, require, wait_for)  # noqa: E402
from faultdisk import ALL, INSIDE, FaultDisk  # noqa: E402
from faults import BLOCK, FAULTS, HEAL_SECONDS, Ballast, Watch  # noqa: E402
from product import default_builddir  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
THREADS, FILES = 4, 2
PAUSE_US = 2000
GROWN_TRIES = 6
APPENDS_MOST = 20000
NOT_THE_LOGS = "the write that failed was of another block"
BIG = 300  # blocks: above bypass_size


def is_log(path):
    return os.path.basename(path).startswith("log.")


class Toy:
    """One life after another on one disk: a case with its writers."""

    def __init__(self, box, fs, seed, name):
        self.box, self.fs, self.seed, self.name = box, fs, seed, name
        self.notes = {"commits": 0, "lost": 0, "status": "ok", "flush": "ok"}
        self.problems = []
        self.c = None
        self.lives = 0

    def begin(self, **settings):
        self.lives += 1
        name = "%s.%d" % (self.name, self.lives)
        self.c = Case(self.box, self.fs, self.seed, name)
        settings.setdefault("destage_age", "50ms")
        settings.setdefault("lane_size", "64MiB")
        self.disk = FaultDisk(self.box, default_builddir(), self.fs, name=name)
        self.c.begin(image=self.disk, **settings)
        return self.c

    def end(self):
        if not self.c:
            return
        self.disk.good()
        self.c.end()
        self.disk.close()
        self.c = None

    def logs(self):
        try:
            return [self.c.path(n) for n in os.listdir(self.disk.path) if is_log(n)]
        except OSError:
            return []

    def writers(self, shimmed=True, pause_us=PAUSE_US, threads=THREADS):
        """Writers whose files have their blocks on the disk, all of them known to it."""
        for i in range(FILES):  # whole from the start: a fault hits data, not the allocation
            with open(self.c.path("log.%d" % i), "wb") as f:
                f.write(bytes(THREADS * 64 << 10))
                f.flush()
                os.fsync(f.fileno())
        self.stamp = Stamp(self.c, threads=threads, files=FILES, shimmed=shimmed, pause_us=pause_us)
        self.disk.watch(self.logs)
        if shimmed:
            self.stamp.moves(by=100)
            self.c.in_lane("log.0")
            self.c.in_lane("log.1")

    def watch(self, fault):
        return Watch(self.c.product, DOMAIN, is_log, fault.reason)

    def take(self, watch):
        """What pmemlogctl did wrong."""
        for words in watch.wrong:
            self.notes["flush" if words.startswith("flush") else "status"] = "WRONG"
            self.problems.append(words)

    def checked(self):
        try:
            self.notes["commits"] += self.c.check()
        except Failed as e:
            self.notes["lost"] += 1
            self.problems.append("life %d: %s" % (self.lives, e))

    def cut_and_check(self):
        """The disk is another one after it."""
        self.c.cut()
        self.c.recover()
        self.checked()

    def flushed_cut(self):
        """flush has said yes and nobody writes: the files alone have everything."""
        self.stamp.stop()
        self.c.must_flush()
        self.c.cut()
        self.checked()
        self.c.recover()
        self.checked()


# ---- faults that only the logs' data meets ---------------------------------------------------------

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


# ---- a full file system ----------------------------------------------------------------------------

def append_until_full(a, fd, most=4000):
    """(blocks that were acknowledged, errno or 0)"""
    for n in range(most):
        e = errno_of(a.write_synced, fd, _block(n), n * BLOCK)
        if e:
            return n, e
    return most, 0


def _block(n):
    return (b"%015d\n" % n) * (BLOCK // 16)


def full_for_writer(t, fault):
    # what the disk alone does, first
    c = t.begin()
    ballast = Ballast(c.image.path, spare=1 << 20)
    a = Agent(c, shimmed=False)
    fd = a.open(c.path("plain.9"), os.O_RDWR | os.O_CREAT)
    plain = append_until_full(a, fd)
    require(plain[1], "the disk alone did not run full")
    a.close(fd)
    ballast.remove()
    os.unlink(c.path("plain.9"))

    t.writers()
    a = Agent(c)
    fd = a.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
    ballast = Ballast(c.image.path, spare=1 << 20)
    n, e = append_until_full(a, fd)
    require(e == plain[1], "errno %d with pmemlogd, %d without, after %d and %d blocks", e, plain[1], n,
            plain[0])
    require(n > 0, "no block was written")
    # a file in which nothing is to be allocated goes on
    t.stamp.moves(by=200)
    c.must_flush()
    t.stamp.moves(by=200)
    if t.seed % 2:
        ballast.remove()
        more = errno_of(a.write_synced, fd, _block(n), n * BLOCK)
        require(not more, "room has been made, and a write still fails: %s", os.strerror(more))
        n += 1
        t.notes["healed"] = 0.0
    t.c.cut()
    if os.path.exists(c.path("ballast")):
        os.unlink(c.path("ballast"))
    t.c.recover()
    t.checked()
    have = read(c.path("log.9"))
    want = b"".join(_block(i) for i in range(n))
    if have[:len(want)] != want:
        t.notes["lost"] += 1
        t.problems.append("log.9: %d bytes, %d acknowledged" % (len(have), len(want)))


def full_for_replay(t, fault):
    """Records whose blocks were never allocated; while the power was off somebody filled the disk."""
    for half in (False, True):
        c = t.begin(destage_age="60s")
        a = Agent(c)
        fd = a.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
        blocks = 1024
        a.many(fd, blocks, BLOCK)
        c.accelerated("log.9")
        c.cut()
        ballast = Ballast(c.image.path, spare=(1 << 20) if half else 0)
        c.product.start()
        status, words = c.product.gate()
        require(status != 0, "gate says yes with a full disk")
        d = c.status()
        want = "quarantined" if half else "held"
        require(d["state"] == want, "%s on a full disk, should be %s: %s", d["state"], want, d["reason"])
        require("log.9" in d["reason"] and "No space" in d["reason"], "reason: %s", d["reason"])
        text = c.product.command("status").stdout
        require("No space" in text and "log.9" in text, "status hides it: %s", text)
        require(c.flush()[0] != 0, "flush says yes while records wait for room")
        ballast.remove()
        begin = time.monotonic()
        if half:
            r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
            require(r.returncode == 0, "recover --apply: exit %d: %s", r.returncode, r.stdout + r.stderr)
        wait_for("recovery by itself", lambda: c.product.status().domain(DOMAIN)["state"] == "ok",
                 HEAL_SECONDS)
        t.notes["healed"] = round(time.monotonic() - begin, 1)
        c.must_flush()
        require(c.product.gate()[0] == 0, "gate says no after recovery")
        if read(c.path("log.9")) != b"".join(_block(i) for i in range(blocks)):
            t.notes["lost"] += 1
            t.problems.append("log.9 is not what was written")
        t.notes["commits"] += blocks
        t.end()


# ---- a file system that is no more ------------------------------------------------------------------

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


# ---- a slow one ------------------------------------------------------------------------------------

def pace(stamp, seconds):
    """Commits/s over the time, and the longest that a writer stood still: also one that still does."""
    begin = time.monotonic()
    last = [(stamp.acked_by(i), begin) for i in range(stamp.threads)]
    longest, first = 0, stamp.acked()
    now = begin
    while now < begin + seconds:
        time.sleep(0.02)
        now = time.monotonic()
        for i, (n, since) in enumerate(last):
            longest = max(longest, now - since)
            if stamp.acked_by(i) != n:
                last[i] = (stamp.acked_by(i), now)
    return (stamp.acked() - first) / (now - begin), longest


def slow(t, fault):
    t.begin()
    t.writers(shimmed=False, threads=1)  # as a database's log: one at a time
    t.stamp.moves(by=100)
    t.disk.order(**fault.orders)
    time.sleep(1)
    plain_rate, plain = pace(t.stamp, fault.seconds)
    t.stamp.stopping()
    t.end()
    require(plain >= 1, "the disk is not slow: %.3f s", plain)

    for lane in ("64MiB", "1MiB"):
        t.begin(lane_size=lane)
        # the small one is to run full within a second
        t.writers(pause_us=PAUSE_US if lane != "1MiB" else 0, threads=1)
        t.disk.order(**fault.orders)
        rate, longest = pace(t.stamp, fault.seconds if lane == "64MiB" else 2 * fault.seconds)
        d = t.c.status()
        # A full lane and a sync of the daemon that takes longer than a second: that second, RULE F's
        # sync and the program's own, each behind the daemon's perhaps. Once; then the disk's pace.
        require(longest < 3 * plain + 3, "lane of %s: a commit waited %.2f s, the disk alone %.2f s",
                lane, longest, plain)
        if lane == "64MiB":
            require(not d["full_waits"], "the lane ran full, which is the other half of this test")
            # Not each is: ext4 lets a write wait for its journal's commit, once every few seconds.
            require(rate > 20 * plain_rate, "%.1f commits/s with room in the lane, %.1f with the disk "
                    "alone", rate, plain_rate)
            t.notes["with_room"] = "%.0f/s, longest %.2f s" % (rate, longest)
        else:
            require(d["full_waits"], "the lane did not run full")
            require(rate > 0, "no commit")
            t.notes["full"] = "%.0f/s, longest %.2f s, disk alone %.1f/s, %.2f s" % (
                rate, longest, plain_rate, plain)
        t.stamp.fine()
        if lane == "64MiB":
            r = t.c.product.command("flush", timeout=HEAL_SECONDS)
            require(r.returncode == 0, "flush on a slow disk: %s", r.stdout + r.stderr)
        t.cut_and_check()
        t.end()


def hangs(t, fault):
    """A sync that does not end gives no error. The one that was mended before must not stand for it."""
    c = t.begin()
    t.writers()
    t.disk.order(write_fail=1, where=INSIDE)
    w = t.watch(fault)
    wait_for("the daemon sees an error", lambda: c.status()["destage_errors"] > 0)
    w.healed()
    t.take(w)
    old = c.status()["last_error"]
    require("the disk reports an error" in old, "last_error: %s", old)
    t.disk.order(**fault.orders)
    told = "the disk hangs"
    wait_for("status says that the disk hangs", lambda: told in c.status()["last_error"], fault.seconds)
    require(not any(f["degraded"] for f in c.status()["files"]), "a hang is no error")
    text = c.product.command("status").stdout
    require(told in text, "text hides it: %s", text)
    t.stamp.fine()
    t.disk.good()
    wait_for("the disk answers", lambda: told not in c.status()["last_error"], HEAL_SECONDS)
    t.stamp.moves(by=200)
    t.flushed_cut()


# ---- who hears of an error --------------------------------------------------------------------------

def heard_by_client(t, fault):
    """Only a program's own sync has failed; the daemon's description never does."""
    c = t.begin(destage_age="60s")
    t.writers()
    t.stamp.stop()
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR)
    a.write_synced(fd, read(c.path("log.0"))[:BLOCK], 0)
    t.disk.order(write_fail=ALL, where=INSIDE)
    a.fchmod(fd, 0o640)  # so that its next fsync is a real one
    e = errno_of(a.fsync, fd)
    require(e == errno.EIO, "fsync: errno %d, the disk has failed it", e)
    f = c.status("log.0")
    require(f["degraded"], "a client's failed sync is not shown: %s", f)
    w = t.watch(fault)
    w.must_refuse()
    t.disk.good()
    t.notes["healed"] = w.healed()
    t.take(w)
    t.flushed_cut()


def heard_by_earlier(t, fault):
    """The daemon that heard of it is dead; the disk is well when the next one comes."""
    c = t.begin()
    t.writers()
    t.disk.order(write_fail=ALL, where=INSIDE)
    wait_for("the daemon sees an error", lambda: c.status()["destage_errors"] > 0)
    c.product.kill()
    t.stamp.stop()
    # the pages are clean from here on, though no disk has them
    require(LIBC.syncfs(c.image.fd) < 0, "no error: the disk has not lost anything")
    t.disk.good()
    c.product.start()
    w = t.watch(fault)
    t.notes["healed"] = w.healed()
    t.take(w)
    t.flushed_cut()


def restarted_in_it(t, fault):
    """The disk is away when the daemon comes back: it cannot even open the files."""
    c = t.begin()
    t.writers()
    a = Agent(c)  # its session lives on, whatever the disk does
    fd = a.open(c.path("log.9"), os.O_RDWR | os.O_CREAT)
    a.many(fd, 8, BLOCK)
    c.must_flush()
    c.product.kill()
    a.many(fd, 16, BLOCK)
    t.disk.order(**fault.orders)
    break_journal(t)
    t.stamp.note_floor()
    c.product.start()
    w = t.watch(fault)
    w.during(fault.seconds)
    t.take(w)
    t.stamp.forgive()
    t.cut_and_check()
    if read(c.path("log.9")) != b"".join(_block(i) for i in range(16)):
        t.notes["lost"] += 1
        t.problems.append("log.9 is not what was written")


def grown(t, fault):
    """The write-back of blocks that are new in the file fails, once. ext4 keeps them as unwritten, and the
    same pages written again and synced are zeros after the next boot: whoever heals has to get round
    that. Who heals: the daemon; a program's own truncate; the replay within the same boot. And who cannot,
    since somebody appends beside him and the pages are all there is of it, must not fence. Without a
    record to heal from: a write above bypass_size fails, and is made again."""
    for who in ("daemon", "program", "replay", "appender", "again"):
        for left in range(GROWN_TRIES - 1, -1, -1):
            try:
                grown_by(t, fault, who)
                break
            except (OSError, Failed) as e:
                # ext4 gives up altogether now and then, when its journal hears of the error first
                if not left or "Read-only" not in str(e) and NOT_THE_LOGS not in str(e):
                    raise
                t.end()


def append_beside(t, a, fd):
    """Appends until a stranger has come between; what a write says that has met one. The disk is well
    again, and only the program's own sync has heard of the error."""
    c, path = t.c, t.c.path("log.9")
    a.fchmod(fd, 0o640)
    require(errno_of(a.fsync, fd) == errno.EIO, NOT_THE_LOGS)
    stranger = os.open(path, os.O_WRONLY | os.O_APPEND)
    stop = threading.Event()

    def strange():
        while not stop.is_set():
            os.write(stranger, b"stranger" * 6)

    thread = threading.Thread(target=strange)
    thread.start()
    try:
        for i in range(APPENDS_MOST):
            e = errno_of(a.write, fd, b"a friend" * 6)
            if e or i % 20 == 0 and c.status("log.9")["state"] == "bypass":
                t.notes["appender"] = os.strerror(e)
                return
    finally:
        stop.set()
        thread.join()
        os.close(stranger)
    raise Failed("nobody came between in %d writes" % APPENDS_MOST)


def grown_by(t, fault, who):
    c = t.begin(destage_age="60s")
    a = Agent(c)
    path = c.path("log.9")
    fd = a.open(path, os.O_RDWR | os.O_CREAT | (os.O_APPEND if who == "appender" else 0))
    a.many(fd, 8, BLOCK)
    c.must_flush()
    c.accelerated("log.9")
    t.disk.watch_new()  # any sync of the machine may write the journal first
    a.many(fd, 92, BLOCK, 8)
    blocks = 100
    if who == "again":
        c.must_flush()  # no FENCE on the way
        t.disk.watch_new()
        big = b"".join(_block(i) for i in range(blocks, blocks + BIG))
        t.disk.order(write_fail=1, where=INSIDE)
        e = errno_of(a.pwrite, fd, big, blocks * BLOCK)
        require(e == errno.EIO, "the write that fails says %s", e)
        require(a.pwrite(fd, big, blocks * BLOCK) == len(big), "the write made again is short")
        blocks += BIG
    elif who == "daemon":
        t.disk.order(write_fail=1, where=INSIDE)
        w = t.watch(fault)
        t.notes["healed"] = w.healed()
        t.take(w)
    else:
        if who != "appender":
            c.product.kill()
        t.disk.order(write_fail=1, where=INSIDE)
        require(LIBC.syncfs(c.image.fd) < 0, "no error: the disk has not failed")
    require(t.disk["failed"] == 1, "%s: the disk has not failed", who)
    if who == "appender":
        append_beside(t, a, fd)
    if who == "program":
        b = Agent(c)
        b.ftruncate(b.open(path, os.O_RDWR), blocks * BLOCK + 100)
    if who == "replay":
        a.kill()
        c.product.start()
        require(c.product.gate()[0] == 0, "replay: %s", c.product.gate()[1])
        c.product.kill()
    c.cut()
    if who == "appender":
        c.recover()
    have = read(path)[:blocks * BLOCK]
    wrong = [i for i in range(blocks) if have[i * BLOCK:(i + 1) * BLOCK] != _block(i)]
    if wrong:
        t.notes["lost"] += 1
        t.problems.append("%s: %d blocks are not on the disk, first %d: %r" % (
            who, len(wrong), wrong[0], have[wrong[0] * BLOCK:][:16]))
    t.notes["commits"] += blocks
    t.end()


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
