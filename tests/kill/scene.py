# SPDX-License-Identifier: LGPL-2.1-or-later
"""A machine whose programs are killed: its state as a whole (disk, pool, state and run folder) is kept
and put back, a program runs under killat.c, and what must hold afterwards is looked at.
"""
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time

from cases import DOMAIN, Case, Failed, require, wait_for
from fsimage import Image
from machine import BOOT_ID
from orders import Orders
from product import default_builddir, find
from sandbox import ROOT, wait_end
from snapshot import Snapshot

_libc = ctypes.CDLL(None, use_errno=True)
_GETFLAGS, _IMMUTABLE = 0x80086601, 0x10
_DETACH = 2

# linux/loop.h
_CTL_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A
_AUTOCLEAR = 4

PATIENCE = 600  # seconds: what is longer hangs, also on a machine that has little time for us


class Disk(Image):
    """Image in memory, mounted by system calls: hundreds of mounts are what these tests consist of."""

    SIZES = {"ext4": 32 << 20, "xfs": 300 << 20}

    def __init__(self, box, fs, memory, name="disk"):
        super().__init__(box, fs, name, self.SIZES[fs])
        self.file = os.path.join(memory, name + ".img")

    def mount(self):
        try:
            loop = self._loop()
            if _libc.mount(loop.encode(), self.path.encode(), self.fs.encode(), 0, None) < 0:
                raise OSError(ctypes.get_errno(), "mount " + loop)
        except OSError:
            super().mount()
            return
        self.box.mounts.append(self.path)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _loop(self):
        """A loop device on the file, which goes with its last user; other tests take some, too."""
        with open("/dev/loop-control") as control, open(self.file, "r+b") as f:
            for _ in range(50):
                path = "/dev/loop%d" % fcntl.ioctl(control, _CTL_GET_FREE)
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    info = struct.pack("=II52xI176x64x", f.fileno(), 0, _AUTOCLEAR)
                    fcntl.ioctl(fd, _CONFIGURE, info)
                    self.holder = fd
                    return path
                except OSError:
                    os.close(fd)
        raise OSError(0, "no free loop device")

    def umount(self):
        os.close(self.fd)
        self.fd = -1

        def gone():
            return _libc.umount2(self.path.encode(), 0) == 0
        wait_for("umount", gone)
        self.box.mounts.remove(self.path)
        if getattr(self, "holder", -1) >= 0:
            os.close(self.holder)  # the last one: the device is free again
            self.holder = -1


def strangers_away(mine):
    """Detaches, in this namespace, what other programs have mounted in the folders for such things. They may
    remove it under us, and a run that looks into fewer mounts has other events than the one that was counted."""
    needed = [os.path.realpath(p) + "/" for p in (mine, ROOT, default_builddir())]
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4].encode().decode("unicode_escape") for line in f]
    for point in reversed(points):
        if point.startswith(("/tmp/", "/var/tmp/", "/mnt/")) and not any(
                n.startswith(point + "/") or point.startswith(mine + "/") for n in needed):
            _libc.umount2(point.encode(), _DETACH)


class Machine(Case):
    """Case, with a disk in memory and programs that are killed at a given event."""

    def begin(self, start=True, **settings):
        for path in ("/dev/shm", "/dev/shm", "/sys/fs/cgroup"):  # the product looks into each mount
            _libc.umount2(path.encode(), _DETACH)
        strangers_away(self.box.path)
        memory = self.box.tmpfs("disks", "700m")
        settings.setdefault("lane_size", "1MiB")
        settings.setdefault("destage_age", "1h")
        super().begin(image=Disk(self.box, self.fs, memory), start=False, memory="300m", **settings)
        # each run reads the catalog as a whole: by small pages that is two thirds of its time
        subprocess.run(["mount", "-o", "remount,huge=within_size", self.product.memory],
                       stderr=subprocess.DEVNULL)
        self.killat = find(default_builddir(), "killat")
        self.orders = Orders(os.path.join(memory, "orders"), self.product.config)
        self.look = False  # the next program's fresh events are listed
        self.boots = 0
        self.taken = None
        if start:
            self.product.start()
        return self

    # ---- state

    def reboot(self):
        """Run folder empty, another boot id."""
        self.boots += 1
        if self.boots == 1:
            super().reboot()
            return
        shutil.rmtree(self.product.rundir)
        os.mkdir(self.product.rundir, 0o755)
        with open(os.path.join(self.product.memory, "boot_id"), "r+") as f:
            old = f.read()
            f.seek(0)
            # one that no boot before had, also where restore() has put an earlier one back
            f.write("%08x" % (self.boots << 16 | os.getpid() & 0xffff) + old[8:])

    def keep(self):
        """What restore() brings back. Nothing of the product runs now."""
        self.image.umount()
        p = self.product
        folders = [p.pool, p.state, p.rundir]
        self.taken = Snapshot(*folders), Snapshot.pieces(self.image.file)
        self.boot = self._boot_id()
        self.image.mount()

    def _boot_id(self):
        with open(BOOT_ID) as f:
            return f.read()

    def restore(self):
        folders, disk = self.taken
        if self.image.fd >= 0:
            self.image.umount()
        Snapshot.fill(self.image.file, *disk)
        self.image.mount()
        folders.put()
        if self._boot_id() != self.boot:
            with open(os.path.join(self.product.memory, "boot_id"), "r+") as f:
                f.write(self.boot)

    def lights_out(self):
        """Power cut without a program left, and the next boot."""
        self.image.cut()
        self.image.umount()
        self.image.mount()
        self.reboot()

    def traced_pid(self):
        """Of the daemon under killat; 0: it runs without it, or not at all."""
        alive = self.product.process and self.product.process.poll() is None
        return self.orders["pid"] if alive and self.product.process.args[0] == self.killat else 0

    def signal_daemon(self, sig):
        """To the traced daemon; it may come to its own end, or to that which was ordered, before."""
        pid = self.traced_pid()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    # ---- programs under killat

    def ctl(self, *words, at=0, steps=0):
        """pmemlogctl, killed at an event (0: it runs to its end): exit status and words."""
        argv = [self.product.ctl, "-c", self.product.config, *words]
        if at:
            self.orders.begin(at, steps, look=self.look)
            argv = [self.killat, self.orders.path] + argv
        r = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=PATIENCE)
        return r.returncode, (r.stdout + r.stderr).strip()

    def command_begin(self, *words):
        """pmemlogctl in the background."""
        argv = [self.product.ctl, "-c", self.product.config, *words]
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        self.box.children.append(p)
        return p

    def traced_daemon(self, at=0, steps=0, wait=True):
        """The daemon under killat; its events count from the reading of its configuration."""
        self.orders.begin(at, steps, look=self.look)
        self.product.wrap = [self.killat, self.orders.path]
        try:
            self.product.start(PATIENCE, wait=wait)
        finally:
            self.product.wrap = []

    def wait_ready_or_dead(self):
        """True: the traced daemon decided everything; False: it was killed before."""
        try:
            self.product.wait_ready(PATIENCE)
            return True
        except RuntimeError:
            require(self.orders["hit"] == 1, "the daemon ended: exit %s",
                    self.product.process.returncode)
            self.product.kill()
            return False

    def wait_hit(self, seconds):
        """False: the event has not come."""
        end = time.monotonic() + seconds
        while self.orders["hit"] == 0 and time.monotonic() < end:
            if self.product.process.poll() is not None:
                break
            time.sleep(0.002)
        return self.orders["hit"] == 1

    def end_daemon(self):
        """To the traced daemon, not to killat, which has gone only when nothing of it is left."""
        if self.traced_pid():
            self.signal_daemon(signal.SIGKILL)
            wait_end(self.product.process, PATIENCE)
            self.product.kill()
        else:
            super().end_daemon()

    # ---- what must hold

    def gate_words(self):
        return ["gate", "%s/%s" % (self.product.user, DOMAIN)]

    def immutable(self):
        found = []
        for folder, _, files in os.walk(self.image.path):
            for name in files:
                with open(os.path.join(folder, name), "rb") as f:
                    flags = fcntl.ioctl(f, _GETFLAGS, bytes(8))
                    if struct.unpack("=i4x", flags)[0] & _IMMUTABLE:
                        found.append(name)
        return found

    def marked(self):
        """Files with our owner mark."""
        return [name for folder, _, files in os.walk(self.image.path) for name in files
                if "user.pmemlogd.owner" in os.listxattr(os.path.join(folder, name))]

    def contents(self):
        """Name: bytes, of all files on the disk."""
        found = {}
        for folder, _, files in os.walk(self.image.path):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    found[os.path.relpath(path, self.image.path)] = f.read()
        return found

    def control_files(self):
        control = os.path.join(self.product.rundir, "control")
        return os.listdir(control) if os.path.isdir(control) else []

    def verdicts(self):
        """(verdict, flags) of the catalog's domains that are not clean, as the pool's file has them
        (abi/pool.h)."""
        newest = {}
        with open(os.path.join(self.product.pool, "pool"), "rb") as f:
            f.seek(65536)
            area = f.read(2 * 256 * 512)
        for at in range(0, len(area), 512):
            _, used, sequence, lane = struct.unpack_from("<IIQI", area, at)
            if used and sequence > newest.get(lane, (0,))[0]:
                newest[lane] = sequence, struct.unpack_from("<II", area, at + 120)
        return [v for _, v in newest.values() if v != (0, 0)]

    def left_over(self):
        """Words for what a complete recovery may not leave."""
        wrong = []
        if self.immutable():
            wrong.append("immutable: %s" % self.immutable())
        if self.marked():
            wrong.append("marks: %s" % self.marked())
        if self.control_files():
            wrong.append("control files: %s" % self.control_files())
        if self.verdicts():
            wrong.append("verdicts and flags: %s" % self.verdicts())
        return wrong


def differs(found, want):
    """Words for the first difference of two contents(), or None."""
    if sorted(found) != sorted(want):
        return "files %s, expected %s" % (sorted(found), sorted(want))
    for name, data in want.items():
        if found[name] != data:
            at = next((i for i, (a, b) in enumerate(zip(found[name], data)) if a != b),
                      min(len(data), len(found[name])))
            return "%s: %d bytes, expected %d; they differ at %d" % (name, len(found[name]),
                                                                    len(data), at)
    return None


__all__ = ["DOMAIN", "PATIENCE", "Disk", "Failed", "Machine", "Orders", "differs", "require", "signal",
           "wait_for"]
