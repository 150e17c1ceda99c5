#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Power cuts under native logs: the file system with the segments loses what was not synced, all processes are killed,
the pool stays; then the daemon recovers, and every record that was acknowledged, or that a follower was shown, is there,
once and in order.

    run-cut.py [--cycles N] [--seed S] [--fs ext4|xfs|losefs] [--seconds T] [--control lie|no-drain]

losefs: the test build, whose file system loses what was not synced, and whose pool what was not drained. Control
`lie`: the daemon's syncs do nothing; `no-drain` (losefs): the writers' records are not waited for; records must be
missing. Every GROUP cycles a new pool and file system. Last line: `cycles C acked A lost L bad B shown S`.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import time

from writers import Writers
# these behind writers, which says where they are
import preloads
from fsimage import Image
from halt import halt
from losefs import LoseFs, simdir
from product import default_builddir
from sandbox import Sandbox, need

EVENTS = ["plain"] * 4 + ["orphan", "revive", "restart", "frozen", "writer", "writer", "trim", "idle",
                         "step", "step", "step-revive", "step-revive"]
# Where the daemon dies, before or after the call (tests/support/callfault.c): segments made, filled, synced, trimmed.
STEPS = [("openat", ".log"), ("pwrite", ".log"), ("fdatasync", ".log"), ("fsync", "/logs/"), ("renameat", "/meta"),
         ("unlinkat", ".log")]
GROUP = 20


class Cuts(Writers):
    def __init__(self, box, fs, seed, control):
        sim = fs == "losefs"
        builddir = simdir(default_builddir()) if sim else default_builddir()
        super().__init__(box, "cut", seed, builddir, sim)
        self.seed, self.stepped, self.bad = seed, 0, ""
        self.image = (LoseFs(box, builddir) if sim else
                      Image(box, fs, size=(320 if fs == "xfs" else 256) << 20))
        self.image.product = self.product
        if control == "no-drain":
            self.env["PMEMLOGD_SIM_NO_DRAIN"] = "1"
            self.image.forced(fs="none", pool="none")
        self.product.state = os.path.join(self.image.path, "state")
        self.rules = os.path.join(box.tmpfs("rules"), "rules")
        self.product.preload = os.path.join(builddir, "tests", "logs", "libcallfault.so")
        self.product.preload_env = {"CALLFAULT_RULES": self.rules}
        if control == "lie":
            env = preloads.lie_env(box, self.image.path)
            self.product.preload = env.pop("LD_PRELOAD")
            self.product.preload_env = env

    def start_over(self):
        if self.product.process:
            self.product.stop()
        self.image.make()
        self.create("1MiB", "2MiB", "8MiB")
        self.image.sync()
        self.product.start()

    def step(self, revive):
        call, where = self.r.choice(STEPS)
        with open(self.rules + ".new", "w", encoding="ascii") as f:
            f.write("%s %s %d 0\n" % (call, where, self.r.choice((-1, -2))))
        os.rename(self.rules + ".new", self.rules)
        trim = None
        if call in ("renameat", "unlinkat"):
            trim = subprocess.Popen(self.command("trim"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                    env=self.env)
        end = time.monotonic() + 1
        while self.product.process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        os.unlink(self.rules)
        if trim:
            trim.kill()
            trim.wait()
        if self.product.process.poll() is None:
            return
        self.stepped += 1
        self.product.kill()
        if revive:
            self.product.start()
            time.sleep(self.r.uniform(0, 0.2))

    def make_room(self):
        """A full file system is another test's."""
        for _ in range(10):
            st = os.statvfs(self.image.path)
            if st.f_bavail > st.f_blocks * 2 // 3:
                return
            self.trim()

    def cycle(self, k):
        self.image.plan("%d/%d" % (self.seed, k))
        self.start_writer()
        self.start_writer()
        self.start_follower()
        self.make_room()
        time.sleep(self.r.uniform(0.02, 0.4))
        event = self.r.choice(EVENTS)
        if event in ("orphan", "revive"):
            self.product.kill()
            time.sleep(self.r.uniform(0, 0.1))
            if event == "revive":
                self.product.start()
        elif event == "restart":
            self.product.stop()
            self.product.start()
        elif event.startswith("step"):
            self.step(event == "step-revive")
        elif event == "frozen":
            self.product.process.send_signal(signal.SIGSTOP)
        elif event == "writer":
            p = self.writers.pop(self.r.randrange(2))
            p.kill()
            p.wait()
            self.start_writer()
        elif event == "trim":
            self.trim()
        elif event == "idle":
            # The last session's end: the log is let go of clean.
            self.kill_writers()
            time.sleep(self.r.uniform(0, 2.5))
        time.sleep(self.r.uniform(0, 0.1))
        self.image.before_cut()
        # All stand still first: an fsync under way while the file system goes may say yes (halt.py).
        if self.follower.poll() not in (None, 0):
            self.bad = "follower: " + self.follower.stderr.read()
        pids = [p.pid for p in self.writers + [self.follower] if p.poll() is None]
        if self.product.process:
            pids.append(self.product.process.pid)
        halt(pids)
        self.image.cut()
        for p in self.writers + [self.follower]:
            p.send_signal(signal.SIGKILL)
        self.follower.wait()
        self.product.kill()
        self.kill_writers()
        self.image.umount()
        self.image.mount()
        self.product.start()
        return event

    def counts(self):
        """[acknowledged, lost, bad, seen] and what it said."""
        found = []
        for words in (self.words, self.seen):
            p = self.check(words)
            if p.returncode == 2:
                return [0, 0, 1, 0], p.stderr.strip()
            found.append([int(n) for n in p.stdout.split()[1::2]])
        (acked, _, lost, bad, _), (seen, _, unseen, _, _) = found
        return [acked, lost + unseen, bad + bool(self.bad), seen], self.bad or p.stderr.strip()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cycles", type=int, default=6)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    p.add_argument("--fs", choices=["ext4", "xfs", "losefs"], default="ext4")
    p.add_argument("--control", choices=["lie", "no-drain"])
    p.add_argument("--seconds", type=float, default=1e9, help="end after so long, whatever is done")
    o = p.parse_args()
    if o.fs != "losefs":
        need(["mkfs." + o.fs, "losetup"], "e2fsprogs xfsprogs util-linux")
    print("seed %d" % o.seed)
    total, before, done, end = [0, 0, 0, 0], [0, 0], 0, time.monotonic() + o.seconds
    with Sandbox("lib-cut") as box:
        cuts = Cuts(box, o.fs, o.seed, o.control)
        for k in range(o.cycles):
            if time.monotonic() > end:
                break
            if k % GROUP == 0:
                cuts.start_over()
                before = [total[0], total[3]]
            event = cuts.cycle(k)
            done += 1
            total, said = cuts.counts()
            total[0] += before[0]
            total[3] += before[1]
            if total[1] or total[2]:
                print("cycle %d (%s; %s): lost %d bad %d %s" % (k, event, cuts.image.said, total[1], total[2], said))
                if cuts.product.status().domain("cut"):
                    print(cuts.product.status().domain("cut")["reason"])
                break
        if not o.control:
            cuts.product.stop()
    print("killed at a step of a segment: %d" % cuts.stepped)
    print("cycles %d acked %d lost %d bad %d shown %d" % (done, *total))
    failed = bool(total[1] or total[2])
    return int(not failed if o.control else failed or total[0] == 0 or total[3] == 0)


if __name__ == "__main__":
    sys.exit(main())
