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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# case: records at least (None: it must make none)
CASES = {"plain": 50, "opens": 1050, "limit": 50, "cancelled": 200, "before-us": None, "no-socket": None,
         "threads-fork": 400, "old-names": 4}
# libraries that come before or after ours; the allocators are linked in as well, as databases do it
ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")
NEIGHBOURS = ALLOCATORS + ("libeatmydata.so",)


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


def linked(preload, allocator, target):
    """The program with that allocator among the libraries that it needs; same name, so that the rule fits."""
    early = find(default_builddir(), "libearly.so")
    os.makedirs(os.path.dirname(target))
    subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-O2", "-I", ROOT, "-I", os.path.join(ROOT, "include"), "-o", target,
                    os.path.join(ROOT, "tests", "preload", "living.c"), "-Wl,--no-as-needed", allocator, early,
                    "-Wl,-rpath," + os.path.dirname(early), "-pthread"], check=True)
    needed = subprocess.run(["readelf", "-d", target], text=True, stdout=subprocess.PIPE, check=True).stdout
    if os.path.basename(allocator) not in needed:
        raise RuntimeError("%s is not linked in" % allocator)


def neighbours(preload, program, check):
    for name in NEIGHBOURS:
        found = glob.glob("/usr/lib/*/" + name) + glob.glob("/usr/lib/*/*/" + name)
        if not check(found or not os.environ.get("CI"), "%s is not installed", name) or not found:
            print("%s is not installed: left out" % name, flush=True)
            continue
        for way, libraries in (("before", [found[0], preload.library]), ("after", [preload.library, found[0]])):
            compare(preload, program, "plain", check, "%s-%s" % (name, way), 50, libraries)
        if name in ALLOCATORS:
            own = os.path.join(preload.box.path, "linked-" + name, "living")
            linked(preload, found[0], own)
            for case in ("plain", "threads-fork"):
                compare(preload, own, case, check, "%s-linked-%s" % (name, case), CASES[case])


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
