#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""libpmemlogd's functions one by one (tests/lib/api.c), and what the library shows of itself."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from product import Pmemlogd, default_builddir, find  # noqa: E402
from sandbox import ROOT, Sandbox  # noqa: E402


def lines(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


def library():
    """Soname, what it needs, and that it exports what the header declares, with a version, and no more."""
    path = find(default_builddir(), "libpmemlogd.so.0")
    dynamic = "\n".join(lines("readelf", "-d", path))
    wrong = []
    if re.findall(r"NEEDED\).*\[(.*)\]", dynamic) != ["libc.so.6"]:
        wrong.append("needs more than libc: " + dynamic)
    if re.findall(r"SONAME\).*\[(.*)\]", dynamic) != ["libpmemlogd.so.0"]:
        wrong.append("soname: " + dynamic)
    shown = {s.split()[-1] for s in lines("nm", "-D", "--defined-only", path)} - {"PMEMLOGD_0"}
    with open(os.path.join(ROOT, "include", "pmemlogd.h"), encoding="ascii") as f:
        header = f.read()
    declared = set(re.findall(r"\b(pmemlogd_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))
    if shown != {name + "@@PMEMLOGD_0" for name in declared}:
        wrong.append("exports and pmemlogd.h differ: %s" % sorted(
            {s.split("@")[0] for s in shown} ^ declared))
    return wrong


def main():
    wrong = library()
    for text in wrong:
        print(text)
    with Sandbox("lib-api") as box:
        product = Pmemlogd(box, default_builddir(), "api", user="root")
        product.create()
        product.start()
        r = subprocess.run([find(default_builddir(), "logload"), "api",
                            os.path.join(product.rundir, "pmemlogd.sock"), "api"], timeout=150)
        product.stop()
    return 1 if wrong or r.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
