#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two processes of four threads on one native log, while writers are killed and replaced, the daemon is killed, stopped
and started, and the log is trimmed; a follower across all of it. No gap, no double, no record out of order, nothing
acknowledged lost: run-live.py [--seconds N] [--seed S]. Last lines: what the follower and the final check saw.
"""
import argparse
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from product import Pmemlogd, default_builddir, find  # noqa: E402
from sandbox import Sandbox, die_with_parent  # noqa: E402

MODES = ["append", "nowait", "mixed"]


class Live:
    def __init__(self, box, seed):
        self.box, self.r = box, random.Random(seed)
        self.product = Pmemlogd(box, default_builddir(), "live", user="root",
                                settings={"destage_age": "50ms"})
        self.product.create(lane_size=self.r.choice(["1MiB", "2MiB", "4MiB"]))
        self.product.start()
        self.load = find(default_builddir(), "logload")
        self.socket = os.path.join(self.product.rundir, "pmemlogd.sock")
        self.words = os.path.join(box.tmpfs("words"), "words")
        self.next = 0
        self.writers = []

    def run(self, *words):
        return [self.load, words[0], self.socket, "live", "log", *words[1:]]

    def start(self):
        p = subprocess.Popen(self.run("write", str(self.next), self.words, self.r.choice(MODES)),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=die_with_parent)
        self.next += 1
        if p.stdout.readline() != "writing\n":
            raise RuntimeError("writer: " + p.stderr.read())
        self.writers.append(p)

    def end(self, p, kill):
        if p.poll() is not None:
            raise RuntimeError("a writer ended by itself: %s %s" % (p.returncode, p.stderr.read()))
        (p.kill if kill else p.terminate)()
        p.wait()
        self.writers.remove(p)
        if not kill and p.returncode != 0:
            raise RuntimeError("a writer that was asked to end: %s %s" % (p.returncode, p.stderr.read()))

    def disturb(self):
        what = self.r.choice(["writer"] * 4 + ["polite", "daemon", "orphan", "restart", "trim", "trim"])
        if what == "writer":
            self.end(self.r.choice(self.writers), True)
            self.start()
        elif what == "polite":
            self.end(self.r.choice(self.writers), False)
            self.start()
        elif what == "daemon":
            self.product.kill()
            self.product.start()
        elif what == "orphan":
            # Longer than a lane lasts: the writers meet ENOSPC and go on.
            self.product.kill()
            time.sleep(self.r.uniform(0.1, 2))
            self.product.start()
        elif what == "restart":
            self.product.stop()
            self.product.start()
        else:
            t = subprocess.run(self.run("trim"), capture_output=True, text=True, timeout=60)
            if t.returncode:
                raise RuntimeError("trim: %s %s %s" % (t.returncode, t.stdout, t.stderr))
        return what


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    o = p.parse_args()
    print("seed %d" % o.seed)
    with Sandbox("lib-live") as box:
        live = Live(box, o.seed)
        live.start()
        live.start()
        follower = subprocess.Popen(live.run("follow", "1000000"), stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        end, seen = time.monotonic() + o.seconds, {}
        while time.monotonic() < end:
            time.sleep(live.r.uniform(0.05, 0.4))
            what = live.disturb()
            seen[what] = seen.get(what, 0) + 1
            if follower.poll() is not None:
                break
        for w in list(live.writers):
            live.end(w, live.r.random() < 0.5)
        time.sleep(0.5)
        follower.terminate()
        out, err = follower.communicate(timeout=60)
        check = subprocess.run(live.run("check", live.words), capture_output=True, text=True, timeout=120)
        live.product.stop()
        live.product.start()
        again = subprocess.run(live.run("check", live.words), capture_output=True, text=True, timeout=120)
        print(" ".join("%s %d" % i for i in sorted(seen.items())))
        print(out.strip(), err.strip())
        print(check.stdout.strip(), check.stderr.strip())
        print("after a restart:", again.stdout.strip(), again.stderr.strip())
        live.product.stop()
        bad = follower.returncode or check.returncode or again.returncode
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
