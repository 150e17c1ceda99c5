# SPDX-License-Identifier: LGPL-2.1-or-later
"""A machine with a pool and one file system, many databases on it, and one crash for all of them. Each
database is a domain of its own (a scribe with one or three files), so each is judged by itself: a cell."""
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import machine  # noqa: E402
from changes import BLOCK, MARK, NAMED, after  # noqa: E402
from design import GOOD  # noqa: E402
from fsimage import Image  # noqa: E402
from product import Pmemlogd, Status, find, lane_live  # noqa: E402
from sandbox import die_with_parent, run  # noqa: E402

RULES = "[stale]\nprogram = scribe\npath = */log.*\n"
BASE, OLD = "b", "o"  # what a file holds at first; what the records of the crash bring
BLOCKS = 3
QUIET_S = 1.35        # longer than the second that DESIGN 7 grants, and rewrite_until's 200 ms
_GETFLAGS, _SETFLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10


class Wrong(Exception):
    """The test itself does not show what it should: no verdict on the product."""


class Scribe:
    """scribe.c, running in a domain."""

    def __init__(self, world, domain):
        env = {**os.environ, **world.product.env(), **world.clock_env, "PMEMLOGD_DOMAIN": domain}
        if world.clock_env:
            env["LD_PRELOAD"] += " " + world.clock_library
        self.process = subprocess.Popen([world.scribe], stdin=subprocess.PIPE, env=env, text=True,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        world.box.children.append(self.process)
        world.scribes.append(self)

    def __call__(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        answer = int(self.process.stdout.readline() or "-1000")
        if answer < 0:
            raise Wrong("%s: error %d" % (words, -answer))
        return answer


class Place:
    """Where a change finds what it needs besides the file."""

    def __init__(self, cell):
        self.cell = cell

    def spare(self, path):
        """A name outside the database's folder, on the same file system."""
        self.cell.spares += 1
        return os.path.join(self.cell.world.aside, "%s.%d" % (self.cell.domain, self.cell.spares))

    def mark(self, path):
        """The owner mark that the path's file had."""
        return self.cell.marks[path]


class Cell:
    """One domain. condition: the change by which a row of the table comes about ("UNLINK": its own
    session deletes the file); change: what comes on top, at `when`."""

    def __init__(self, world, number, condition, change, files=1, folder=""):
        self.world, self.condition, self.change = world, condition, NAMED[change]
        self.domain = "c%03d" % number
        self.victim = number % files
        self.folder = os.path.join(world.image.path, self.domain + folder)
        self.paths = [os.path.join(self.folder, "log.%d" % i) for i in range(files)]
        self.inode = list(self.paths)  # where each registered inode is found now; None: gone
        self.facts = [dict(GOOD) for _ in range(files)]
        self.marks, self.spares, self.live = {}, 0, 0
        self.fds = []
        self.reachable = self.sealable = True
        self.trouble = None

    def name(self):
        what = self.change.name
        if self.condition:
            what = self.condition + ", then " + what
        return what + (", 1 of 3" if len(self.paths) == 3 else "")

    def open(self):
        os.makedirs(self.folder, exist_ok=True)
        self.scribe = Scribe(self.world, self.domain)
        self.fds = [self.scribe("o", p) for p in self.paths]

    def base(self):
        for fd in self.fds:
            self.scribe("w", fd, 0, BLOCKS * BLOCK, BASE)

    def marked(self):
        return all(MARK in os.listxattr(p) for p in self.paths)

    def record(self):
        """What the pool alone has at the crash."""
        for fd in self.fds:
            for at in self.world.at:
                self.scribe("w", fd, at, BLOCK, OLD)
        for p in self.paths:
            self.marks[p] = os.getxattr(p, MARK)
        if self.condition == "UNLINK":
            self.scribe("u", self.paths[self.victim])
            self._fact(handle="stale", unlink=True)
            self.inode[self.victim] = None

    def _fact(self, **facts):
        self.facts[self.victim] = dict(self.facts[self.victim], **facts)

    def make(self, change, told):
        """Somebody else's doing."""
        path = self.paths[self.victim]
        if change.name == "none":
            return
        if not os.path.exists(path):
            with open(path, "wb"):
                pass
        change.do(path, Place(self))
        self.facts[self.victim] = after(self.facts[self.victim], change, told,
                                        self.world.fs)
        if self.inode[self.victim] is None or change.moved == "":
            self.inode[self.victim] = None
        elif change.moved:
            self.inode[self.victim] = path + change.moved

    def prepare(self, told):
        if self.condition and self.condition != "UNLINK":
            self.make(NAMED[self.condition], told)

    def look(self):
        """Names and bytes of everything in the folder."""
        found = {}
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else []:
            with open(os.path.join(self.folder, name), "rb") as f:
                found[name] = f.read()
        return found

    def lane(self):
        return os.path.join(self.world.product.pool, "lane-%06d" % self.number)


def flags_of(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("l", fcntl.ioctl(fd, _GETFLAGS, bytes(8)))[0]
    finally:
        os.close(fd)


def immutable(path):
    return bool(flags_of(path) & _IMMUTABLE)


class World:
    """when: `beside` the live sessions, `soon` (within a second after the crash of all processes),
    `after` it (same boot), `rescue` (after a power cut, in a boot of its own)."""

    def __init__(self, box, builddir, fs, when, at=(0,), shift=0, size=320 << 20):
        self.box, self.fs, self.when, self.at = box, fs, when, at
        self.builddir = builddir
        self.memory = box.tmpfs("images", "4g")
        self.image = Image(box, fs, size=size)
        # In memory: what a loop device has been given survives the cut all the same.
        self.image.file = os.path.join(self.memory, "image")
        self.scribe = find(builddir, "scribe")
        self.clock_library = find(builddir, "libpmemlogd-clock.so")
        self.clock_env = {}
        self.scribes, self.cells = [], []
        self.product = Pmemlogd(box, builddir, "stale", lane_size="1MiB", user="root", memory="1g",
                                settings={"destage_age": "3600s", "clock_wait": "1s"})
        with open(os.path.join(self.product.rules, "stale.ini"), "w", encoding="ascii") as f:
            f.write(RULES)
        self.shift(shift)
        self.aside = os.path.join(self.image.path, "aside")

    def shift(self, seconds):
        """The clock of all our programs that start from now on."""
        self.clock_env = {"CLOCK_SHIFT_S": str(seconds)} if seconds else {}
        self.product.preload = self.clock_library if seconds else None
        self.product.preload_env = self.clock_env

    def add(self, condition, change, files=1, folder=""):
        cell = Cell(self, len(self.cells), condition, change, files, folder)
        self.cells.append(cell)
        return cell

    def begin(self):
        self.image.make()
        os.mkdir(self.aside)
        self.product.create()
        self.product.start()

    def sessions(self):
        """All databases run, and have records that only the pool has."""
        for c in self.cells:
            c.open()
            c.base()
        # On a busy machine a registration may take longer than a session waits: it tries again.
        end = time.monotonic() + 15
        for c in self.cells:
            while not c.marked():
                if time.monotonic() > end:
                    raise Wrong("%s is not registered" % c.domain)
                time.sleep(0.1)
                c.base()
        self.flush()

    def flush(self):
        r = self.product.command("flush")
        if r.returncode:
            raise Wrong("flush: %s%s" % (r.stdout, r.stderr))

    def records(self):
        for c in self.cells:
            c.record()
        for d in self.product.status()["domains"]:
            cell = next((c for c in self.cells if c.domain == d["name"]), None)
            if cell:
                cell.number = d["lane"]
                lanes = [f for f in d["files"] if f["state"] == "lane" and f["live_bytes"]]
                if len(lanes) != len(cell.paths):
                    raise Wrong("%s is not in the lane: %s" % (cell.domain, d["files"]))

    def end_sessions(self):
        """A clean end: all is in the files."""
        for s in self.scribes:
            s.process.stdin.close()
        for s in self.scribes:
            s.process.wait()
            s.process.stdout.close()
            self.box.forget(s.process)
        self.scribes = []
        for c in self.cells:
            r = self.product.command("gate", "root/" + c.domain)
            if r.returncode:
                raise Wrong("gate after a clean end: " + r.stdout + r.stderr)

    def crash(self):
        """Everything of ours dies; with the power cut also what the disk was not told to keep."""
        cut = self.when in ("beside", "rescue")
        if cut:
            self.image.cut()
        self.product.kill()
        for s in self.scribes:
            s.process.kill()
        for s in self.scribes:
            s.process.wait()
            s.process.stdin.close()
            s.process.stdout.close()
            self.box.forget(s.process)
        self.scribes = []
        self.crashed = time.monotonic()
        if cut:
            self.remount()
        for c in self.cells:
            c.live = lane_live(c.lane())
            if c.live < 64 + BLOCK:
                raise Wrong("no live record at the crash: %d bytes" % c.live)

    def remount(self):
        self.image.umount()
        self.image.mount()

    def quiet(self):
        """Nothing of ours gives a sign of life; then a second more."""
        time.sleep(max(0, self.crashed + QUIET_S - time.monotonic()))

    def boot(self):
        """The next boot of the machine, up to where our daemon starts."""
        shutil.rmtree(self.product.rundir)
        os.mkdir(self.product.rundir, 0o755)
        machine.new_boot(self.box, self.product.memory)

    def note(self):
        """How everything is before anything of ours looks at it."""
        for c in self.cells:
            c.before = c.look()

    def facts(self, **facts):
        """What is so for every file of the machine."""
        for c in self.cells:
            c.facts = [dict(f, **facts) for f in c.facts]

    def end(self):
        for s in self.scribes:
            s.process.kill()
            s.process.wait()
        self.product.kill()
        if self.image.fd < 0:
            return
        for c in self.cells:
            for folder, _, names in os.walk(c.folder):
                for n in names:
                    release(os.path.join(folder, n))
        self.image.umount()


def release(path):
    """Takes the immutable attribute off."""
    try:
        fd = os.open(path, os.O_RDONLY)
        fcntl.ioctl(fd, _SETFLAGS, struct.pack("l", flags_of(path) & ~_IMMUTABLE))
        os.close(fd)
    except OSError:
        pass


__all__ = ["BLOCK", "Cell", "MARK", "NAMED", "OLD", "Status", "World", "Wrong", "immutable",
           "lane_live", "run"]
