#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each case of `same` without the library and with it: the same output; and its file went through the lane."""
import difflib
import os
import subprocess
import sys

from harness import Check, Preload, Writer, default_builddir, find
from sandbox import Sandbox, need

# Records that a case makes at least: one for each write while its file is ours, 1 where nothing is said.
LEAST = {"open-errors": 0, "flags": 6, "position": 7, "doors": 9, "renames": 15, "metadata": 15,
         "forks": 5, "appenders": 1200, "threads": 2400, "spawns": 102, "closing": 6}


def run_case(program, case, folder, env):
    os.makedirs(folder, exist_ok=True)
    r = subprocess.run([program, folder, case], env=env, text=True, timeout=60,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return r.returncode, r.stdout


def compare(preload, program, case, check, renamed=False):
    """Number of records that the case made, and the lines in which the two runs differ."""
    build = os.path.basename(program)
    plain = run_case(program, case, preload.box.folder("plain", build, case), dict(os.environ))
    before = preload.records()
    folder = preload.box.folder("shim-renamed" if renamed else "shim", build, case)
    ours = run_case(program, case, folder, preload.environment(renamed))
    records = preload.records() - before
    if renamed:
        return records
    diff = list(difflib.unified_diff(plain[1].splitlines(), ours[1].splitlines(), "without", "with",
                                     lineterm="", n=1))
    check(plain[0] == 0, "%s: exit %d without the library\n%s", case, plain[0], plain[1])
    check(ours[0] == plain[0] and not diff, "%s %s: exit %d, without %d\n%s", build, case, ours[0], plain[0],
          "\n".join(diff))
    check(records >= LEAST.get(case, 1), "%s %s: %d records in the lane: not accelerated", build, case,
          records)
    print("%-14s %-18s %5d records" % (build, case, records), flush=True)
    return records


def signals(preload, check):
    program = find(default_builddir(), "signals")
    for mode in ("write", "altstack", "jump"):
        before = preload.records()
        status, text = run_signals(program, mode, preload)
        check(status == 0, "signals %s: exit %d\n%s", mode, status, text)
        # Most signals find the thread inside a call, so all that succeeded would mean that two of one
        # thread's calls were under the lock at once.
        check(mode == "jump" or " refused 0 " not in text, "signals %s: none refused", mode)
        check(preload.records() > before, "signals %s: not accelerated", mode)
        print("signals %-10s %s" % (mode, text.strip()), flush=True)


def run_signals(program, mode, preload):
    folder = preload.box.folder("signals", mode)
    r = subprocess.run([program, folder, mode], env=preload.environment(), text=True, timeout=100,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return r.returncode, r.stdout


def main():
    need([], "")
    wanted = sys.argv[1:]
    check = Check()
    program = find(default_builddir(), "same")
    cases = subprocess.run([program, "list"], text=True, stdout=subprocess.PIPE,
                           check=True).stdout.split()
    with Sandbox("preload-same") as box:
        preload = Preload(box, lane_size="16MiB")
        preload.create()
        preload.start()
        # The counters live as long as the domain has a session: this one stays.
        stays = Writer(preload)
        stays.must("open", 0, os.path.join(box.folder("stays"), "log.1"), "+c")
        stays.must("write", 0, 100)
        for build in ("same", "same-plain", "same-checked"):
            for case in cases:
                if not wanted or case in wanted:
                    compare(preload, find(default_builddir(), build), case, check)
        if not wanted or "signals" in wanted:
            signals(preload, check)
        if not wanted:
            # The test must be able to notice that the library was not there.
            check(compare(preload, program, "position", check, renamed=True) == 0,
                  "records without the library")
        stays.end()
        preload.stop()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
