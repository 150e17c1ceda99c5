# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon of its own with a domain, and logload's writers on one log of it."""
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from product import Pmemlogd, default_builddir, find  # noqa: E402
from sandbox import die_with_parent  # noqa: E402


class Writers:
    """create() makes the pool; start_writer() needs the daemon. The words are what was acknowledged. sim: the build
    whose pool loses what was not drained (losefs.py)."""

    def __init__(self, box, domain, seed, builddir=None, sim=False):
        self.box, self.domain, self.r = box, domain, random.Random(seed)
        builddir = builddir or default_builddir()
        self.product = Pmemlogd(box, builddir, domain, user="root", sim=sim, settings={"destage_age": "50ms"})
        self.load = find(builddir, "logload")
        self.env = dict(os.environ, **self.product.sim_env())
        self.words = os.path.join(box.tmpfs("words"), "words")
        self.seen = os.path.join(os.path.dirname(self.words), "seen")
        self.next = 0
        self.writers = []
        self.follower = None

    def create(self, *lane_sizes):
        """Nothing of an earlier pool counts any more."""
        self.product.create(lane_size=self.r.choice(lane_sizes))
        for path in (self.words, self.seen):
            if os.path.exists(path):
                os.unlink(path)
        self.next = 0

    def command(self, *words):
        return [self.load, words[0], os.path.join(self.product.rundir, "pmemlogd.sock"), self.domain, "log", *words[1:]]

    def start_writer(self):
        p = subprocess.Popen(self.command("write", str(self.next), self.words,
                                          self.r.choice(["append", "nowait", "mixed"])),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env,
                             preexec_fn=die_with_parent)
        self.next += 1
        if p.stdout.readline() != "writing\n":
            raise RuntimeError("writer: " + p.stderr.read())
        self.writers.append(p)

    def end_writer(self, p, kill):
        """It may not have ended by itself, and not badly if it is asked to."""
        if p.poll() is not None:
            raise RuntimeError("a writer ended by itself: %s %s" % (p.returncode, p.stderr.read()))
        (p.kill if kill else p.terminate)()
        p.wait()
        self.writers.remove(p)
        if not kill and p.returncode != 0:
            raise RuntimeError("a writer that was asked to end: %s %s" % (p.returncode, p.stderr.read()))

    def kill_writers(self):
        for p in self.writers:
            p.kill()
        for p in self.writers:
            p.wait()
        self.writers = []

    def start_follower(self):
        """Of a log that is there. What it is shown it notes in `seen`."""
        self.follower = subprocess.Popen(self.command("follow", "1000000", self.seen), stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True, env=self.env,
                                         preexec_fn=die_with_parent)
        if self.follower.stdout.readline() != "following\n":
            raise RuntimeError("follower: " + self.follower.stderr.read())

    def trim(self):
        t = subprocess.run(self.command("trim"), capture_output=True, text=True, timeout=60, env=self.env)
        if t.returncode:
            raise RuntimeError("trim: %s %s %s" % (t.returncode, t.stdout, t.stderr))

    def check(self, words=None):
        """Against what was acknowledged; or, self.seen, against what the follower was shown."""
        return subprocess.run(self.command("check", words or self.words), capture_output=True, text=True, timeout=120,
                              env=self.env)
