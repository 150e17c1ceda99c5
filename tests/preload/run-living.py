#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The library beside others and in processes that are hard on it: the same output as without it, no hang, and the
records that there should be."""
import glob
import os
import subprocess
import sys

from harness import RULES, Check, Preload, Writer, default_builddir, find
from sandbox import Sandbox, need

# case: records at least (None: it must make none)
CASES = {"plain": 50, "opens": 1050, "limit": 50, "cancelled": 200, "before-us": None, "no-socket": None}
# libraries that come before or after ours
NEIGHBOURS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libeatmydata.so")


def run_case(program, folder, case, env):
    os.makedirs(folder)
    if case == "before-us":
        env = dict(env, EARLY=os.path.join(folder, "log.1"))
    r = subprocess.run([program, folder, case], env=env, text=True, timeout=100, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, check=False)
    return r.returncode, r.stdout


def compare(preload, program, case, check, name, least, libraries=None):
    plain = run_case(program, os.path.join(preload.box.path, "plain-" + name), case, dict(os.environ))
    env = preload.environment()
    if libraries:
        env["LD_PRELOAD"] = " ".join(libraries)
    before = preload.records()
    ours = run_case(program, os.path.join(preload.box.path, "shim-" + name), case, env)
    records = preload.records() - before
    check(plain[0] == 0 and ours == plain, "%s: without %s\nwith %s", name, plain, ours)
    check(records == 0 if least is None else records >= least, "%s: %d records", name, records)
    print("%-40s %6d records" % (name, records), flush=True)


def neighbours(preload, program, check):
    for name in NEIGHBOURS:
        found = glob.glob("/usr/lib/*/" + name) + glob.glob("/usr/lib/*/*/" + name)
        if not check(found or not os.environ.get("CI"), "%s is not installed", name) or not found:
            print("%s is not installed: left out" % name, flush=True)
            continue
        for way, libraries in (("before", [found[0], preload.library]), ("after", [preload.library, found[0]])):
            compare(preload, program, "plain", check, "%s-%s" % (name, way), 50, libraries)


def main():
    need([], "")
    check = Check()
    program = find(default_builddir(), "living")
    with Sandbox("preload-living") as box:
        preload = Preload(box, lane_size="16MiB")
        with open(os.path.join(preload.rules, "test.ini"), "w", encoding="ascii") as f:
            f.write(RULES.replace("signals,", "signals, living,"))
        preload.create()
        preload.start()
        # The counters live as long as the domain has a session: this one stays.
        stays = Writer(preload)
        stays.must("open", 0, os.path.join(box.folder("stays"), "log.1"), "+c")
        for case, least in CASES.items():
            if len(sys.argv) == 1 or case in sys.argv[1:]:
                compare(preload, program, case, check, case, least)
        if len(sys.argv) == 1:
            neighbours(preload, program, check)
        stays.end()
        preload.stop()
    print("living: %d failed" % check.failed)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
