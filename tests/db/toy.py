# SPDX-License-Identifier: LGPL-2.1-or-later
"""Small writers on a disk that fails (tests/cases/stamp.c): every byte is known."""
import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cases"))

from cases import DOMAIN, Case, Failed, Stamp  # noqa: E402
from faultdisk import FaultDisk  # noqa: E402
from faults import BLOCK, Watch  # noqa: E402
from product import default_builddir  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
THREADS, FILES = 4, 2
PAUSE_US = 2000


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


def block_of(n):
    return (b"%015d\n" % n) * (BLOCK // 16)
