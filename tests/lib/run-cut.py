#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Power cuts under native logs: the file system with the segments loses what was not synced, all processes are killed,
the pool stays; then the daemon recovers, and every record that was acknowledged is there, once and in order.

    run-cut.py [--cycles N] [--seed S] [--fs ext4|xfs] [--control lie|none]

Control `lie`: the daemon's syncs do nothing, records must be missing. Last line: `acked A lost L bad B`.
"""
import argparse
import os
import random
import signal
import sys
import time

from writers import Writers
# these behind writers, which says where they are
import preloads
from fsimage import Image
from halt import halt
from sandbox import Sandbox, need

EVENTS = ["plain"] * 4 + ["orphan", "revive", "writer", "writer", "trim", "idle"]


class Cuts(Writers):
    def __init__(self, box, fs, seed, control):
        super().__init__(box, "cut", seed)
        self.image = Image(box, fs, size=(320 if fs == "xfs" else 256) << 20)
        self.image.make()
        self.product.state = os.path.join(self.image.path, "state")
        if control == "lie":
            env = preloads.lie_env(box, self.image.path)
            self.product.preload = env.pop("LD_PRELOAD")
            self.product.preload_env = env
        self.create("1MiB", "2MiB", "8MiB")
        self.image.sync()

    def cycle(self):
        self.start_writer()
        self.start_writer()
        time.sleep(self.r.uniform(0.02, 0.4))
        event = self.r.choice(EVENTS)
        if event in ("orphan", "revive"):
            self.product.kill()
            time.sleep(self.r.uniform(0, 0.1))
            if event == "revive":
                self.product.start()
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
        # All stand still first: an fsync under way while the file system goes may say yes (halt.py).
        pids = [p.pid for p in self.writers]
        if self.product.process:
            pids.append(self.product.process.pid)
        halt(pids)
        self.image.cut()
        for p in self.writers:
            p.send_signal(signal.SIGKILL)
        self.product.kill()
        self.kill_writers()
        self.image.umount()
        self.image.mount()
        self.product.start()
        return event

    def counts(self):
        """[acknowledged, lost, bad] and what it said."""
        p = self.check()
        if p.returncode == 2:
            return [0, 0, 1], p.stderr.strip()
        words = p.stdout.split()
        return [int(words[1]), int(words[5]), int(words[7])], p.stderr.strip()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cycles", type=int, default=6)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    p.add_argument("--fs", choices=["ext4", "xfs"], default="ext4")
    p.add_argument("--control", choices=["lie", "none"])
    o = p.parse_args()
    need(["mkfs." + o.fs, "losetup"], "e2fsprogs xfsprogs util-linux")
    print("seed %d" % o.seed)
    total = [0, 0, 0]
    with Sandbox("lib-cut") as box:
        cuts = Cuts(box, o.fs, o.seed, o.control)
        cuts.product.start()
        for k in range(o.cycles):
            event = cuts.cycle()
            total, said = cuts.counts()
            if total[1] or total[2]:
                print("cycle %d (%s): lost %d bad %d %s" % (k, event, total[1], total[2], said))
                if cuts.product.status().domain("cut"):
                    print(cuts.product.status().domain("cut")["reason"])
                break
        if not o.control:
            cuts.product.stop()
    print("acked %d lost %d bad %d" % tuple(total))
    failed = bool(total[1] or total[2])
    return int(not failed if o.control == "lie" else failed or total[0] == 0)


if __name__ == "__main__":
    sys.exit(main())
