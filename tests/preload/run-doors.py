#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ways into a file (client/preload/doors.def): as without the library, in the lane or in bypass as the table says, and
nothing that was written is undone by the records of others: all programs and the daemon are killed, and recovery runs."""
import ctypes
import difflib
import os
import shutil
import subprocess
import sys

from harness import DOMAIN, RULES, Check, Preload, default_builddir, find
from sandbox import Sandbox, need

INHERITED = 50  # the number that doors.c knows
# Where log.1 is at the end.
BYPASS = ("renamed", "renamed-alone", "exchanged", "unnamed", "made-by-libc", "mapped-before", "made-writable",
          "inherited", "reopened", "by-libc-threads", "spawn-open", "spawn-dup", "crash-words", "given-away",
          "ring-unseen", "ring-inherited")
LANE = {"renamed-closed": 1, "mapped-to-read": 1, "printed": 3, "by-number": 6, "by-openat2": 2, "by-handle": 3,
        "requests": 4, "rings": 2, "flagged": 4, "lock-kept": 2, "side-by-side": 320, "closed-beside": 3, "touched": 24, "touched-by-number": 1, "renamed-often": 8,
        "fenced": 2, "unlinked": 2}
EACH = {"fenced": 11, "unlinked": 7, "given-away": 13}  # so many files, and each of them where log.1 is

RING = 425  # io_uring_setup
LIBURING = "liburing.so.2"


def ring():
    """The descriptor of a ring, or -1 where the kernel has none for us."""
    return ctypes.CDLL(None).syscall(RING, 4, ctypes.create_string_buffer(256))


def start(program, folder, case, env):
    """The program and what it says until it waits."""
    os.makedirs(folder)
    kw = {}
    if case in ("inherited", "ring-inherited"):
        fd = os.open(os.path.join(folder, "log.1"), os.O_RDWR | os.O_CREAT, 0o640) if case == "inherited" else ring()
        os.dup2(fd, INHERITED, inheritable=True)
        os.close(fd)
        kw["pass_fds"] = [INHERITED]
    process = subprocess.Popen([program, folder, case], text=True, env=env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)
    if kw:
        os.close(INHERITED)
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line == "done\n":
            break
    return process, lines


def content(folder):
    """Bytes of log.1; of a case with several files, of all of them."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("log."):
            with open(os.path.join(folder, name), "rb") as f:
                found[name] = f.read()
    return found


def state(preload, folder, case, said, check):
    # In `touched-by-number` it is the kernel who knows which calls there are.
    more = sum(line.endswith(" = 0 ") for line in said) if case == "touched-by-number" else 0
    # Known by the names that they had when they were registered; the newest is the one that is asked for.
    files = [f for f in preload.status().files(DOMAIN) if os.path.dirname(f["path"]) == os.path.realpath(folder)]
    if not check(files, "%s: not registered", case):
        return
    check(len(files) == EACH[case] if case in EACH else True, "%s: %d files", case, len(files))
    for f in files if case in EACH else files[-1:]:
        if case in BYPASS:
            check(f["state"] == "bypass" and f["reason"] and f["live_bytes"] == 0, "%s: %s", case, f)
        else:
            check(f["state"] == "lane" and f["records"] >= LANE[case] + more, "%s: %s", case, f)
    print("%-16s %-6s %4d records" % (case, f["state"], f["records"]), flush=True)


def run(preload, program, case, check):
    """Compares the two runs; the one under the library stays alive."""
    plain_folder = os.path.join(preload.box.path, "plain-" + case)
    plain, expected = start(program, plain_folder, case, dict(os.environ))
    plain.communicate()
    folder = os.path.join(preload.box.path, "shim-" + case)
    env = dict(preload.environment(), RULED="yes")
    if case == "rings":  # so that there is something to keep from it
        env["LD_PRELOAD"] += ":" + LIBURING
    process, seen = start(program, folder, case, env)
    preload.box.children.append(process)
    diff = list(difflib.unified_diff(expected, seen, "without", "with", lineterm="", n=1))
    check(expected and expected[-1] == "done", "%s without the library: %s", case, expected)
    check(not diff, "%s:\n%s", case, "\n".join(diff))
    check(content(folder) == content(plain_folder), "%s: the files differ", case)
    state(preload, folder, case, seen, check)
    return process, folder, content(plain_folder)


def unruled(preload, program, check):
    """`rings` under the library, in a program that no rule names: the kernel's answers."""
    other = os.path.join(preload.box.path, "unruled")
    shutil.copy(program, other)
    env = dict(preload.environment(), RULED="no")
    env["LD_PRELOAD"] += ":" + LIBURING
    process, seen = start(other, os.path.join(preload.box.path, "rings-unruled"), "rings", env)
    process.communicate()
    check(seen and seen[-1] == "done", "rings without a rule: %s", seen)


def main():
    need([], "")
    check = Check()
    program = find(default_builddir(), "doors")
    listed = subprocess.run([program, "list"], text=True, stdout=subprocess.PIPE, check=True).stdout.split()
    check(sorted(listed) == sorted(BYPASS + tuple(LANE)), "cases: %s", listed)
    wanted = sys.argv[1:] or listed
    fd = ring()
    if fd < 0:
        wanted = [case for case in wanted if not case.startswith("ring-")]
        print("no io_uring here: not run: ring-unseen, ring-inherited, rings without a rule")
    else:
        os.close(fd)
    with Sandbox("preload-doors") as box:
        preload = Preload(box, lane_size="16MiB")
        with open(os.path.join(preload.rules, "test.ini"), "w", encoding="ascii") as f:
            f.write(RULES.replace("signals,", "signals, doors,"))
        # What was recorded stays live: it is recovery that must not put it over what came later.
        preload.settings["destage_age"] = "60s"
        preload.create()
        preload.start()
        running = [run(preload, program, case, check) for case in wanted]
        if "rings" in wanted and fd >= 0:
            unruled(preload, program, check)
        live = preload.live_bytes()
        preload.kill()
        for process, _, _ in running:
            process.kill()
            process.wait()
        check(live > 0 or not set(wanted) & set(LANE), "nothing live before the recovery")
        preload.start()
        d = preload.status().domain(DOMAIN)
        check(d is None or d["state"] != "quarantined", "quarantined: %s", d)
        for (_, folder, expected), case in zip(running, wanted):
            found = content(folder)
            for name in sorted(set(found) | set(expected)):
                check(found.get(name) == expected.get(name), "%s: %s after the recovery: %r, not %r", case, name,
                      found.get(name, b"")[:64], expected.get(name, b"")[:64])
        preload.stop()
    print("doors: %d cases, %d failed" % (len(wanted), check.failed))
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
