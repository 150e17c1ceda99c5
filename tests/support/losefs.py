# SPDX-License-Identifier: LGPL-2.1-or-later
"""The two media of the test build (meson -Dsim=true): losefs, a file system that loses what was not
synced, and the pool that loses what was not drained. One cut takes both, by one seed."""
import fcntl
import os
import random
import subprocess
import time

from sandbox import ROOT, die_with_parent, run, skip
from product import find

FS_KINDS = ("none", "rand", "rand", "rand", "all")
POOL_KINDS = ("none", "flushed", "lines", "words", "words", "all")
RULES = ("journal", "strict")


def simdir(builddir):
    """The test build that belongs to a build folder: itself, or the one beside it, brought up to date."""
    if os.path.exists(os.path.join(builddir, "tests", "support", "losefs", "losefs")):
        return builddir
    argv = [os.path.join(ROOT, "scripts", "build-with"), "sim"]
    if os.path.exists(os.path.join(builddir + "-sim", "build.ninja")):
        argv = ["ninja", "-C", builddir + "-sim"]
    lock = os.open(builddir, os.O_RDONLY | os.O_CLOEXEC)  # one at a time
    fcntl.flock(lock, fcntl.LOCK_EX)
    r = subprocess.run(argv, env=dict(os.environ, BUILD=builddir), stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    os.close(lock)
    if r.returncode == 77:
        skip("the test build cannot be made: " + r.stdout.strip().splitlines()[-1])
    if r.returncode:
        raise RuntimeError(r.stdout[-3000:])
    return builddir + "-sim"


class LoseFs:
    """With the face of fsimage.Image: make(), then cut(), umount(), mount(), cut()...

    kinds: what a cut leaves of the file system and of the pool, and which rule its names follow, each
    by the seed of plan(); forced(...) for controls."""

    def __init__(self, box, builddir, name="disk", rule=None):
        if not os.path.exists("/dev/fuse"):
            skip("no /dev/fuse")
        self.box = box
        self.program = find(builddir, "losefs")
        self.simcut = find(builddir, "simcut")
        self.path = box.folder(name)
        self.process = None
        self.product = None  # whose pool is cut with it
        self.dead = False
        self.force = {"rule": rule}
        self.said = ""
        self.rule = None
        self.plan(0)

    def forced(self, **kinds):
        """fs=, pool=, rule=: not by the seed."""
        self.force.update(kinds)

    def plan(self, seed):
        """How the next cuts will be, and by which rule names last until then."""
        self.chance = random.Random("losefs/%s" % seed)
        self.rule = self.force.get("rule") or self.chance.choice(RULES)
        if self.process and not self.dead:
            self.tell("rule " + self.rule)

    def tell(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith(("cannot", "unknown", "cut ")):
            raise RuntimeError("losefs: %s: %s" % (words, answer or "has ended"))
        return answer

    def make(self):
        self.end()
        log = open(os.path.join(self.box.path, "losefs.log"), "ab")
        self.process = subprocess.Popen([self.program, self.path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=log, text=True,
                                        preexec_fn=die_with_parent)
        log.close()
        self.box.children.append(self.process)
        self.box.mounts.append(self.path)  # for the sandbox's end, which kills losefs
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError("losefs cannot be mounted")
        self.dead = False
        self.tell("rule " + self.rule)
        os.chmod(self.path, 0o755)
        self.sync()

    def sync(self):
        """What syncfs does elsewhere."""
        self.tell("sync")

    def before_cut(self):
        """To be called while all still run: every other cut finds somebody between store and drain."""
        if self.product and self.chance.random() < 0.5:
            with open(os.path.join(self.product.shadows, "hold"), "w"):
                time.sleep(self.chance.uniform(0.001, 0.02))

    def cut(self):
        """Power off: first the file system, which answers nobody from now on, then the pool. Who works on
        them must stand still already, and must be killed right afterwards. A record can then not have been
        trimmed on the strength of a sync that is undone, nor acknowledged on the strength of one."""
        fs = self.force.get("fs") or self.chance.choice(FS_KINDS)
        pool = self.force.get("pool") or self.chance.choice(POOL_KINDS)
        seed = self.chance.getrandbits(32)
        self.tell("cut %s %d" % (fs, seed))
        self.dead = True
        self.said = "names %s, files %s, pool %s" % (self.rule, fs, pool)
        if self.product:
            hold = os.path.join(self.product.shadows, "hold")
            if os.path.exists(hold):
                os.unlink(hold)
            self.said += ", " + run([self.simcut, self.product.shadows, self.product.pool, pool,
                                     str(seed)]).strip()

    def umount(self):
        """Nothing to do: power back does it."""

    def mount(self):
        if self.dead:
            self.tell("up")
        self.dead = False

    def end(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
            self.box.forget(self.process)
            self.box.mounts.remove(self.path)
            self.process = None
