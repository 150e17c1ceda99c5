#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Two processes of four threads on one native log, while writers are killed and replaced, the daemon is killed, stopped
and started, and the log is trimmed; a follower across all of it. No gap, no double, no record out of order, nothing
acknowledged lost: run-live.py [--seconds N] [--seed S]. Last lines: what the follower and the final check saw.
"""
import argparse
import random
import subprocess
import sys
import time

from writers import Writers
from sandbox import Sandbox  # behind writers, which says where it is


class Live(Writers):
    def disturb(self):
        what = self.r.choice(["writer"] * 4 + ["polite", "daemon", "orphan", "restart", "trim", "trim"])
        if what == "writer":
            self.end_writer(self.r.choice(self.writers), True)
            self.start_writer()
        elif what == "polite":
            self.end_writer(self.r.choice(self.writers), False)
            self.start_writer()
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
            self.trim()
        return what


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    o = p.parse_args()
    print("seed %d" % o.seed)
    with Sandbox("lib-live") as box:
        live = Live(box, "live", o.seed)
        live.create("1MiB", "2MiB", "4MiB")
        live.product.start()
        live.start_writer()
        live.start_writer()
        live.start_follower()
        follower = live.follower
        end, seen = time.monotonic() + o.seconds, {}
        while time.monotonic() < end:
            time.sleep(live.r.uniform(0.05, 0.4))
            what = live.disturb()
            seen[what] = seen.get(what, 0) + 1
            if follower.poll() is not None:
                break
        for w in list(live.writers):
            live.end_writer(w, live.r.random() < 0.5)
        time.sleep(0.5)
        follower.terminate()
        out, err = follower.communicate(timeout=60)
        check = live.check()
        live.product.stop()
        live.product.start()
        again = live.check()
        print(" ".join("%s %d" % i for i in sorted(seen.items())))
        print(out.strip(), err.strip())
        print(check.stdout.strip(), check.stderr.strip())
        print("after a restart:", again.stdout.strip(), again.stderr.strip())
        live.product.stop()
        bad = follower.returncode or check.returncode or again.returncode
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
