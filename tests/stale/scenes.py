# SPDX-License-Identifier: LGPL-2.1-or-later
"""What happens to a whole machine or volume around the changes to single files (changes.py): the rows of
the table that are the file system's or the clock's, and the changes that concern all files at once.

A scene has hooks, called in the order below; what it does not need does nothing."""
import mmap
import os
import time

import machine
from changes import NEW
from fsimage import Image
from world import BLOCK, Wrong, run


class Scene:
    """when: of the changes (World). told: their time can be told from ours."""

    name = ""
    when = "rescue"
    told = True
    at = (0,)          # where the records go
    folder = ""        # added to the name of each database's folder
    shift = 0          # the clock of sessions and daemon, s from the right one
    size = 320 << 20
    stands = False     # something stands in the way until lift()
    refuses = False    # ...and it is the whole pool that is not to be had

    def begun(self, w):
        """The daemon runs, nobody has a file yet."""

    def based(self, w):
        """Sessions live, everything is in the files."""

    def recorded(self, w):
        """The pool has what the disk lacks."""

    def crashed(self, w):
        """Before the changes."""

    def changed(self, w):
        """After them; the next boot begins."""

    def start(self, w):
        w.product.start()

    def lift(self, w):
        """What stood in the way is gone."""


class Plain(Scene):
    def __init__(self, when):
        self.when, self.told = when, when in ("after", "rescue")


class Unmounted(Scene):
    name, stands = "not mounted", True

    def changed(self, w):
        w.image.umount()
        w.facts(mount="none")
        for c in w.cells:
            c.reachable = False

    def lift(self, w):
        w.image.mount()
        w.facts(mount="one")
        for c in w.cells:
            c.reachable = True


def copy_of(w, suffix):
    """A second image with the first one's bytes; it may be mounted at another place."""
    other = Image(w.box, w.fs, name="disk" + suffix, size=w.image.size)
    other.file = w.image.file + suffix
    run(["cp", "--sparse=always", w.image.file, other.file])
    if w.fs == "xfs":
        other.options = ["-o", "nouuid"]
    return other


class Twice(Scene):
    name, stands = "mounted twice", True

    def changed(self, w):
        w.image.umount()
        self.other = copy_of(w, ".copy")
        w.image.mount()
        self.other.mount()
        w.facts(mount="twice")

    def lift(self, w):
        self.other.umount()
        w.facts(mount="one")


class Dead(Unmounted):
    """The file system has met an error and answers nothing."""

    name = "I/O error"

    def changed(self, w):
        w.image.cut()
        w.facts(mount="error")
        for c in w.cells:
            c.reachable = False

    def lift(self, w):
        w.image.umount()
        super().lift(w)


class ReadOnly(Scene):
    name, stands = "read-only", True

    def changed(self, w):
        run(["mount", "-o", "remount,ro", w.image.path])
        w.facts(mount="readonly")
        for c in w.cells:
            c.sealable = False

    def lift(self, w):
        run(["mount", "-o", "remount,rw", w.image.path])
        w.facts(mount="one")
        for c in w.cells:
            c.sealable = True


class Full(Scene):
    """The records need new blocks, and somebody has taken them all."""

    name, stands = "no space", True
    at = (64 * BLOCK,)

    def changed(self, w):
        self.filler = os.path.join(w.image.path, "filler")
        fd = os.open(self.filler, os.O_RDWR | os.O_CREAT)
        for step in (64 << 20, 1 << 20, BLOCK):
            while True:
                try:
                    os.posix_fallocate(fd, os.fstat(fd).st_size, step)
                except OSError:
                    break
        os.fsync(fd)
        os.close(fd)
        # what fallocate may not have, small files may
        for n in range(1000):
            try:
                with open("%s.%d" % (self.filler, n), "wb") as f:
                    f.write(bytes(BLOCK))
                    f.flush()
                    os.fsync(f.fileno())
            except OSError:
                break
        w.facts(mount="full")

    def lift(self, w):
        for n in os.listdir(w.image.path):
            if n.startswith("filler"):
                os.unlink(os.path.join(w.image.path, n))
        os.sync()
        w.facts(mount="one")


class FullLate(Full):
    """...and some fit: the file is half new, so nobody may go on with it. Its path is a long one, which must
    not cost the words that say what to do."""

    name, at = "no space, late", (0, 64 * BLOCK)
    folder = "-" + "d" * 200

    @staticmethod
    def replayed(w, c):
        """Is its replay begun at all? Nothing tells of the change, where there was one."""
        return c.change.name == "none" or w.fs in c.change.timeless

    def start(self, w):
        super().start(w)
        for c in w.cells:
            if self.replayed(w, c):
                c.facts = [dict(f, mount="full, late") for f in c.facts]
        w.note()

    def lift(self, w):
        facts = [c.facts for c in w.cells]
        super().lift(w)
        for c, f in zip(w.cells, facts):
            if self.replayed(w, c):
                c.facts = f


class RolledBack(Scene):
    """The volume is one of an earlier session's time, when the files were ours, too."""

    name = "ctime older"

    def begun(self, w):
        w.sessions()
        self.snapshot(w)
        w.end_sessions()
        time.sleep(0.05)  # ctime is as old as the last tick

    def snapshot(self, w):
        run(["fsfreeze", "-f", w.image.path])
        try:
            run(["cp", "--sparse=always", w.image.file, w.image.file + ".old"])
        finally:
            run(["fsfreeze", "-u", w.image.path])

    def crashed(self, w):
        w.image.umount()
        os.rename(w.image.file + ".old", w.image.file)
        w.image.mount()
        w.facts(ctime="older")
        if [c for c in w.cells if c.condition == "UNLINK"]:
            raise Wrong("the older volume has the file again")


class RolledBackBefore(RolledBack):
    """...of a time when no session had the files."""

    name = "rolled back before"

    def begun(self, w):
        w.sessions()
        w.end_sessions()
        w.image.umount()
        run(["cp", "--sparse=always", w.image.file, w.image.file + ".old"])
        w.image.mount()

    def crashed(self, w):
        super().crashed(w)
        w.facts(mark="none")


class RolledBackWithin(RolledBack):
    """...of this very session's: LIMITS in pmemlogd(8) says that it cannot be told."""

    name = "rolled back within the session"

    def begun(self, w):
        pass

    def based(self, w):
        self.snapshot(w)

    def crashed(self, w):
        super().crashed(w)
        w.facts(ctime="window")


class MappedBefore(Scene):
    """A mapping that was stored to beside the session, and again after the crash: the page is writable
    already, so the kernel gives no new time. A window, LIMITS."""

    name, when = "mapped before the crash", "after"

    def recorded(self, w):
        self.maps = []
        for c in w.cells:
            with open(c.paths[c.victim], "r+b") as f:
                self.maps.append(mmap.mmap(f.fileno(), BLOCK))
            self.maps[-1][:4] = b"zzzz"

    def crashed(self, w):
        for m in self.maps:
            m[:] = NEW
            m.close()
        w.facts(ctime="window")


class ClockBack(Scene):
    """The clock stands before the last record, and nobody sets it right."""

    name = "clock behind"
    shift = 3600

    def changed(self, w):
        w.shift(0)
        w.facts(clock="behind")
        for c in w.cells:  # their times lie before our last record
            c.facts = [dict(f, ctime="known") if f["ctime"] == "later" else f for f in c.facts]


class ClockBackRight(ClockBack):
    """...and then it is set right. The others' times are of before our last record: a window, LIMITS."""

    name = "clock back, set right"

    def changed(self, w):
        w.shift(self.shift + 10)
        for c in w.cells:
            c.facts = [dict(f, ctime="window") if f["ctime"] == "later" else f for f in c.facts]


class ClockForward(Scene):
    """A day later."""

    name = "clock forward"

    def changed(self, w):
        w.shift(86400)


class Moved(Scene):
    """The data was copied to another file system, which is mounted at the same path."""

    name, stands = "copied to another file system", True

    def changed(self, w):
        self.old = w.image
        self.old.umount()
        new = Image(w.box, w.fs, name="disk", size=self.old.size)
        new.file = self.old.file + ".new"
        new.make()
        side = Image(w.box, w.fs, name="side", size=self.old.size)
        side.file = self.old.file
        side.mount()
        run(["cp", "-a", side.path + "/.", new.path])
        side.umount()
        self.new = new
        w.image = new
        w.facts(mount="none")
        for c in w.cells:
            c.sealable = False

    def lift(self, w):
        self.new.umount()
        w.image = self.old
        w.image.mount()
        w.facts(mount="one")
        for c in w.cells:
            c.sealable = True


class Cloned(Scene):
    """A copy of the whole image, with its UUID, takes its place: the same files by every fact."""

    name = "image copied"

    def changed(self, w):
        w.image.umount()
        run(["cp", "--sparse=always", w.image.file, w.image.file + ".copy"])
        os.rename(w.image.file, w.image.file + ".away")
        os.rename(w.image.file + ".copy", w.image.file)
        w.image.mount()


class OtherMachine(Scene):
    """The pool is found on a machine with another id: it is not touched, and the gate stays shut."""

    name, stands, refuses = "machine id changed", True, True

    def changed(self, w):
        machine.new_machine(w.box, w.product.memory)

    def start(self, w):
        try:
            w.product.start()
        except RuntimeError:
            w.product.reap()
            return
        raise Wrong("the daemon took another machine's pool")

    def lift(self, w):
        machine.back(w.box, machine.MACHINE_ID)
        w.product.start()


SCENES = [Unmounted, Twice, Dead, ReadOnly, Full, FullLate, RolledBack, ClockBack]
VOLUMES = [RolledBackBefore, RolledBackWithin, MappedBefore, ClockBackRight, ClockForward, Moved, Cloned,
           OtherMachine]
