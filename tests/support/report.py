# SPDX-License-Identifier: LGPL-2.1-or-later
"""JSON reports: what ran, from which commit, on which machine."""
import collections
import json
import os
import platform
import subprocess
import sys
import time

from sandbox import ROOT


def _git(*words):
    r = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return r.stdout.strip() if r.returncode == 0 else ""


def machine():
    model = ""
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) // 1024
    return {"cpu": model, "cpus": os.cpu_count(), "memory_mib": memory,
            "kernel": platform.release()}


PLACES = ("--builddir", "--hold", "--json", "--append", "--shim", "--log", "--db", "--poweron", "--folder", "--seconds")


def command():
    """The command without its file arguments: they name places of one machine."""
    words, skip = [os.path.relpath(sys.argv[0], ROOT)], False
    for word in sys.argv[1:]:
        if not skip and word.split("=")[0] not in PLACES:
            words.append(word)
        skip = not skip and word in PLACES
    return " ".join(words)


def head():
    """Fields that every report begins with."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {"command": command(),
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "commit": _git("rev-parse", "HEAD"), "changed_files": len(changed.splitlines()),
            "machine": machine()}


def cycles(done, brief):
    """The cycles of a report: all, or those that failed and how many there were of each kind."""
    if not brief:
        return {"cycles": done}
    kinds = collections.Counter(c["event"] for c in done)
    return {"events": dict(sorted(kinds.items())),
            "cycles": [c for c in done if c["problems"] or c["lost"] or c["quarantined"]
                       or c["unstarted"]]}


def write(path, body):
    with open(path, "w") as f:
        json.dump(body, f, indent=1)
        f.write("\n")
