#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""libpmemlogd's functions one by one (tests/lib/api.c); cancellation and signal handlers (tests/lib/safety.c)."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from product import Pmemlogd, default_builddir, find  # noqa: E402
from sandbox import ROOT, Sandbox  # noqa: E402


def page():
    """{function: what libpmemlogd(3) says of its cancellation}"""
    with open(os.path.join(ROOT, "man", "libpmemlogd.3"), encoding="ascii") as f:
        return dict(re.findall(r"^\.It (pmemlogd_\w+) Ta .* Ta (.*)$", f.read(), re.M))


def safety(logload, *words):
    """Whether it is so, function by function."""
    r = subprocess.run([logload, "safety", *words], timeout=150, stdout=subprocess.PIPE, text=True)
    print(r.stdout.splitlines()[-1])
    seen = dict(re.findall(r"^cancel (\w+) (.*)$", r.stdout, re.M))
    if seen != page():
        print("cancellation: libpmemlogd(3) differs in %s" % sorted(set(seen.items()) ^ set(page().items())))
    return r.returncode != 0 or seen != page()


def main():
    with Sandbox("lib-api") as box:
        product = Pmemlogd(box, default_builddir(), "api", user="root")
        product.create()
        product.start()
        logload, words = find(default_builddir(), "logload"), [os.path.join(product.rundir, "pmemlogd.sock"), "api"]
        bad = safety(logload, *words)
        r = subprocess.run([logload, "api", *words], timeout=150)
        product.stop()
    return 1 if bad or r.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
