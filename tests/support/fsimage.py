# SPDX-License-Identifier: LGPL-2.1-or-later
"""A file system of our own on a loop device, and the power cut.

FS_IOC_SHUTDOWN without log flush makes ext4 and xfs drop at one instant all that was not flushed;
no write reaches the device afterwards. The next mount replays the journal, as after a power loss.
Not modelled: a volatile cache inside the drive (the loop device keeps what it was given).
"""
import fcntl
import os
import struct
import subprocess
import time

from sandbox import run

_FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, uint32_t)
_NOLOGFLUSH = 2

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}


class Image:
    """A mounted file system in a sparse file; `mount()`, then `cut()`, `umount()`, `mount()`..."""

    def __init__(self, box, fs, name="disk", size=768 << 20):
        self.box = box
        self.fs = fs
        self.file = os.path.join(box.path, name + ".img")
        self.path = box.folder(name)
        self.fd = -1
        self.size = size
        self.said = ""  # how the last cut was
        self.mkfs = MKFS[fs]
        self.options = []  # further words for mount

    def make(self):
        """A fresh, empty file system, mounted."""
        if self.fd >= 0:
            self.umount()
        self.wipe()
        run(self.mkfs + [self.file])
        self.mount()

    def wipe(self):
        if os.path.exists(self.file):
            os.unlink(self.file)  # truncating in place would keep the old blocks' cost
        with open(self.file, "wb") as f:
            f.truncate(self.size)

    def mount(self):
        # Direct I/O: a flush of this file system is a flush of the disk below, without a second
        # page cache in between. Not everywhere possible; then buffered.
        for extra in (["--direct-io=on"], []):
            r = subprocess.run(["losetup", "-f", "--show", *extra, self.file],
                               capture_output=True, text=True)
            if r.returncode == 0:
                break
        else:
            raise RuntimeError("losetup: " + r.stderr)
        loop = r.stdout.strip()
        try:
            run(["mount", "-t", self.fs, *self.options, loop, self.path])
        finally:
            # Detach now means: when it is unmounted, or when our namespace dies.
            subprocess.run(["losetup", "-d", loop], stderr=subprocess.DEVNULL)
        self.box.mounts.append(self.path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def plan(self, seed):
        """Nothing here is by chance."""

    def before_cut(self):
        """Nothing to prepare."""

    def sync(self):
        run(["sync", "-f", self.path])

    def cut(self):
        """The power cut. Kill everything that works on it right afterwards, not before."""
        fcntl.ioctl(self.fd, _FS_IOC_SHUTDOWN, struct.pack("I", _NOLOGFLUSH))

    def umount(self):
        os.close(self.fd)
        self.fd = -1
        end = time.monotonic() + 10
        while True:  # a killed process may take a moment to let go of its files
            r = subprocess.run(["umount", self.path], capture_output=True, text=True)
            if r.returncode == 0:
                break
            if time.monotonic() > end:
                raise RuntimeError("umount: " + r.stderr)
            time.sleep(0.01)
        self.box.mounts.remove(self.path)
