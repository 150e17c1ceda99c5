# SPDX-License-Identifier: LGPL-2.1-or-later
"""Disk faults of tests/db/stall: what the disk does, and what pmemlogctl must say meanwhile.

What must hold is DESIGN's: G1 and G6; `status` names file and reason as long as it lasts (G8), `flush`
never says yes, and when the disk is well all of it mends without a restart.
"""
import errno
import os
import subprocess
import time
from dataclasses import dataclass, field

from faultdisk import ALL, ANYWHERE, INSIDE

HEAL_SECONDS = 20.0  # a busy machine; the daemon tries again each second
NOTICE_SECONDS = 10.0
BLOCK = 4096


@dataclass
class Fault:
    """seconds: how long the disk fails; 0: as long as the orders last by themselves (so many writes).
    reason: words of `status` and `flush`, alternatives separated by |."""
    orders: dict = field(default_factory=dict)
    seconds: float = 0
    reason: str = ""


EIO = "the disk reports an error"
FULL = "the file system is full"
DEAD = EIO + "|the file system is read-only|Read-only file system|Input/output error|not mounted"
FAULTS = {
    # one write of a log is lost, and the error is told once
    "eio-once": Fault({"write_fail": 1, "where": INSIDE}),
    "eio-n": Fault({"write_fail": 6, "where": INSIDE}),
    # every write of a log, until the power is cut; the next boot has a disk that is well
    "eio-forever": Fault({"write_fail": ALL, "where": INSIDE}, 2, EIO),
    "eio-heal": Fault({"write_fail": ALL, "where": INSIDE}, 3, EIO),
    # the file system is full for the program's own write
    "enospc-write": Fault(),
    # thin provisioning: the block layer has no room for what the file system has promised
    "enospc-destage": Fault({"write_fail": ALL, "where": INSIDE, "error": errno.ENOSPC}, 3, FULL),
    # the file system is full when recovery has to make the file longer
    "enospc-replay": Fault(),
    # no write at all, the journal's neither: the file system lets nobody write any more
    "readonly": Fault({"write_fail": ALL, "where": ANYWHERE}, 2, DEAD),
    # no call at all; then it is plugged in again
    "gone": Fault({"gone": 1}, 2, DEAD),
    "slow1000": Fault({"delay_ms": 1000, "where": ANYWHERE}, 8),
    # no answer at all, and no error: it comes of an error that was mended before
    "hangs": Fault({"delay_ms": 16000, "where": INSIDE}, 15, EIO),
    # not a fault of their own, but of who hears of it
    "eio-client": Fault(reason=EIO),
    "eio-earlier": Fault(),
    "eio-restart": Fault({"gone": 1}, 1, DEAD),
    "eio-replay": Fault(),
    "eio-grown": Fault(),
}


class Watch:
    """What pmemlogctl says while the disk fails, and after."""

    def __init__(self, product, domain, logs, reason):
        """logs: is this path one of the files that fail?"""
        self.product, self.domain, self.logs, self.reason = product, domain, logs, reason
        self.wrong = []

    def degraded(self):
        return [f for f in self.product.status().files(self.domain)
                if f["degraded"] and self.logs(f["path"])]

    def _seen(self):
        """None when `status` says all that it has to; else what is missing. A domain whose sessions
        have ended is held, by the same reason."""
        status = self.product.status()
        d = status.domain(self.domain)
        if not d:
            return "no such domain"
        words = d["reason"] if d["state"] == "held" else d["last_error"]
        if d["state"] == "ok" and not any(f["degraded"] and self.logs(f["path"]) for f in d["files"]):
            return "no file is degraded, last_error %r" % words
        if not self._named(words):
            return "%s, and no file is named: %r" % (d["state"], words)
        # not the exit status: an emulated pool, as here, makes it 1 at any time
        text = self.product.command("status")
        if words.split(".")[0] not in text.stdout:
            return "text: %s" % text.stdout
        if d["state"] == "ok" and "DEGRADED" not in text.stdout:
            return "text: nothing is DEGRADED: %s" % text.stdout
        return None

    def _named(self, words):
        """A log and the reason are in it."""
        return (any(self.logs(w.strip(":;,'\"")) for w in words.split()) and
                any(r in words for r in self.reason.split("|")))

    def during(self, seconds):
        """The fault has begun; spends about `seconds`. flush is asked again and again."""
        end = time.monotonic() + NOTICE_SECONDS
        words = self._seen()
        while words and time.monotonic() < end:
            time.sleep(0.05)
            words = self._seen()
        if words:
            self.wrong.append("status hides the fault: " + words)
            return
        end = time.monotonic() + seconds
        flushes = 0
        while flushes < 1 or time.monotonic() < end:
            flushes += 1
            self.must_refuse()
            if self.wrong:
                break
        words = self._seen()
        if words:
            self.wrong.append("status hides the fault after a while: " + words)

    def must_refuse(self):
        r = self.product.command("flush")
        text = (r.stdout + r.stderr).strip()
        if r.returncode == 0:
            self.wrong.append("flush says yes while the disk fails")
        elif not self._named(text):
            self.wrong.append("flush names no file or no reason: exit %d: %s" % (r.returncode, text))

    def healed(self):
        """The fault is over: seconds until status is good and flush says yes, by itself."""
        begin = time.monotonic()
        end = begin + HEAL_SECONDS
        words = "nothing"
        while time.monotonic() < end:
            try:
                r = self.product.command("flush", timeout=HEAL_SECONDS)
                words = "flush: exit %d: %s" % (r.returncode, (r.stdout + r.stderr).strip())
            except subprocess.TimeoutExpired:
                words = "flush does not answer"
                continue
            bad = [f["path"] for f in self.product.status().files(self.domain) if f["degraded"]]
            if r.returncode == 0 and not bad:
                return round(time.monotonic() - begin, 1)
            if bad:
                words = "degraded: " + ", ".join(bad)
            time.sleep(0.05)
        self.wrong.append("not healed within %d s: %s" % (HEAL_SECONDS, words))
        return None


class Ballast:
    """Fills the file system but for `spare` bytes."""

    def __init__(self, folder, spare=0):
        self.path = os.path.join(folder, "ballast")
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            st = os.fstatvfs(fd)
            room = st.f_bavail * st.f_frsize - spare
            step = 64 << 20
            at = 0
            while step >= BLOCK:
                if at + step > room + (32 << 20):
                    step //= 2
                    continue
                try:
                    os.posix_fallocate(fd, at, step)
                    at += step
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise
                    step //= 2
            if spare:
                os.ftruncate(fd, max(0, at - spare))
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self):
        """For good: a power cut does not bring it back."""
        os.unlink(self.path)
        fd = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
