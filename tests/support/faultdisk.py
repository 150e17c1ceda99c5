# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real file system on a disk whose faults the test switches (faultdisk.c)."""
import errno
import mmap
import os
import struct
import subprocess
import threading
import time

from extents import extents
from fsimage import MKFS, Image
from product import find

ALL = 0xFFFFFFFF
ANYWHERE, INSIDE, OUTSIDE = range(3)
_RANGES = 1000
_SIZE = 64 + 16 * _RANGES
_ORDERS = {"write_fail": 0, "flush_fail": 4, "where": 8, "error": 12, "gone": 16, "delay_ms": 20,
           "ranges": 24, "writes": 28, "flushes": 32, "failed": 36}
# A zeroed journal is written as zeros: this disk can neither punch holes nor zero ranges.
_MKFS = {"ext4": MKFS["ext4"] + ["-E", "nodiscard", "-J", "size=8"], "xfs": MKFS["xfs"] + ["-K"]}


class FaultDisk(Image):
    """As Image. order(): what fails from now on; good(): nothing does. watch(): the files whose blocks
    INSIDE and OUTSIDE speak of, looked up again and again, since logs grow."""

    def __init__(self, box, builddir, fs, name="disk", size=512 << 20):
        program = find(builddir, "faultdisk")  # skips where it is not built
        super().__init__(box, fs, name=name, size=size)
        self.backing = os.path.join(box.path, name + ".backing")
        self.control = os.path.join(box.path, name + ".control")
        for path, length in ((self.backing, size), (self.control, _SIZE)):
            with open(path, "wb") as f:
                f.truncate(length)
        with open(self.control, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), _SIZE)
        mountpoint = box.folder(name + "-device")
        self.file = os.path.join(mountpoint, "disk")
        self.server = box.spawn([program, self.backing, self.control, mountpoint], log="faultdisk.log")
        box.mounts.append(mountpoint)
        end = time.monotonic() + 10
        while not os.path.exists(self.file):
            if self.server.poll() is not None or time.monotonic() > end:
                raise RuntimeError("faultdisk does not serve")
            time.sleep(0.01)
        self.watched = None
        self.mkfs = _MKFS[fs]

    def close(self):
        """The file system is unmounted: the device goes, too."""
        mountpoint = os.path.dirname(self.file)
        end = time.monotonic() + 10
        while (mountpoint in self.box.mounts and
               subprocess.run(["umount", mountpoint], stderr=subprocess.DEVNULL).returncode):
            if time.monotonic() > end:
                raise RuntimeError("%s is busy" % mountpoint)
            time.sleep(0.02)
        if mountpoint in self.box.mounts:
            self.box.mounts.remove(mountpoint)
        self.server.wait()
        self.box.forget(self.server)
        self.map.close()
        for path in (self.backing, self.control):
            os.unlink(path)

    def wipe(self):
        with open(self.backing, "r+b") as f:
            f.truncate(0)
            f.truncate(self.size)

    def mount(self):
        self.good()  # back after a power cut, or another disk
        super().mount()

    def umount(self):
        self.unwatch()
        super().umount()

    # ---- faults

    def __getitem__(self, name):
        return struct.unpack_from("=I", self.map, _ORDERS[name])[0]

    def order(self, **orders):
        """where, error, delay_ms before write_fail, flush_fail, gone: those begin it."""
        orders.setdefault("error", errno.EIO)
        for name in sorted(orders, key=lambda n: n in ("write_fail", "flush_fail", "gone")):
            struct.pack_into("=I", self.map, _ORDERS[name], orders[name])

    def good(self):
        for name in ("write_fail", "flush_fail", "gone", "delay_ms", "where"):
            struct.pack_into("=I", self.map, _ORDERS[name], 0)

    def watch(self, paths):
        """paths: a function that lists the files. Until the next umount or unwatch()."""
        self.watched = set()
        self._look(paths)
        self.stop = threading.Event()
        self.watcher = threading.Thread(target=self._watch, args=(paths,), daemon=True)
        self.watcher.start()

    def watch_new(self):
        """Instead: INSIDE is where nobody has written yet, which is where new blocks of files come to lie;
        the journal and the like were written by mkfs. Only from now on: not kept up."""
        at, n = 0, 0
        with open(self.backing, "rb") as f:
            while n < _RANGES:
                try:
                    hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
                    if hole >= self.size:
                        break
                    at = os.lseek(f.fileno(), hole, os.SEEK_DATA)
                except OSError:  # none follows
                    at = self.size
                if at - hole >= 1 << 20:  # smaller ones are bitmaps that mkfs has left for later
                    struct.pack_into("=QQ", self.map, 64 + 16 * n, hole, at - hole)
                    n += 1
                if at >= self.size:
                    break
        struct.pack_into("=I", self.map, _ORDERS["ranges"], n)

    def unwatch(self):
        if self.watched is not None:
            self.stop.set()
            self.watcher.join()
            self.watched = None

    def _watch(self, paths):
        while not self.stop.wait(0.05):
            self._look(paths)

    def _look(self, paths):
        for path in paths():
            try:
                found = extents(path)
            except OSError:
                continue  # gone meanwhile, or the disk is
            for at, length in found:
                n = self["ranges"] if self.watched else 0
                if (at, length) in self.watched or n >= _RANGES:
                    continue
                struct.pack_into("=QQ", self.map, 64 + 16 * n, at, length)
                struct.pack_into("=I", self.map, _ORDERS["ranges"], n + 1)
                self.watched.add((at, length))
