# SPDX-License-Identifier: LGPL-2.1-or-later
"""Small preload libraries of tests and benchmarks, compiled where they are used."""
import os
import shutil

from sandbox import ROOT, run

EATMYDATA = ("/usr/lib/x86_64-linux-gnu/libeatmydata.so", "/usr/lib64/libeatmydata.so")


def build(box, source):
    """Compiles one C file of the tree to a library that any user can load; returns its path."""
    name = os.path.splitext(os.path.basename(source))[0]
    target = os.path.join(box.folder("lib"), "%s.so" % name)
    if not os.path.exists(target):
        run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC",
             "-shared", "-o", target, os.path.join(ROOT, source), "-ldl"])
        os.chmod(target, 0o755)
    return target


def nosync_env(box, engine):
    return {"LD_PRELOAD": build(box, "bench/nosync.c"), "NOSYNC_PATHS": engine.NOSYNC_PATHS}


def lie_env(box, below):
    return {"LD_PRELOAD": build(box, "tests/support/lie.c"), "LIE_BELOW": below}


def eatmydata():
    """Where the library is, or None."""
    return next(filter(os.path.exists, EATMYDATA), None)


def eatmydata_env(box):
    """A copy of the library, since a database may run with another system's /usr: there ld.so would warn only, and
    the server sync. None when it is not installed."""
    path = eatmydata()
    if not path:
        return None
    target = os.path.join(box.folder("lib"), "libeatmydata.so")
    if not os.path.exists(target):
        shutil.copyfile(path, target)
        os.chmod(target, 0o755)
    return {"LD_PRELOAD": target}
