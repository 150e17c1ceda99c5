# SPDX-License-Identifier: LGPL-2.1-or-later
"""Log files and their names: renamed, linked, copied, removed."""
import ctypes
import os

from harness import Writer, fresh, in_lane

PR_CAPBSET_DROP = 24
libc = ctypes.CDLL(None, use_errno=True)


def names(preload, check):
    """A file that is renamed, truncated and removed by name: the status follows."""
    folder = fresh(preload)
    log, moved = os.path.join(folder, "log.1"), os.path.join(folder, "log.7")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 4096, 0)
    w.must("rename", log, moved)
    w.must("pwrite", 0, 4096, 4096)
    w.must("close", 0)
    w.must("truncate", moved, 100)
    check(os.stat(moved).st_size == 100, "names: truncate")
    w.must("unlink", moved)
    w.must("open", 0, log, "+cx")
    w.must("pwrite", 0, 10, 0)
    check(preload.file(log)["records"] >= 1, "names: new file of the old name")
    w.end()


def by_other_names(preload, check):
    """A registered file renamed, linked, or a copy of it with its mark: who is it?"""
    folder = fresh(preload)
    log, moved, hard = (os.path.join(folder, n) for n in ("log.1", "moved", "hard"))
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 100, 0)
    os.link(log, hard)
    w.must("open", 1, hard, "w")
    w.must("pwrite", 1, 100, 100)
    w.must("rename", log, moved)
    w.must("open", 2, moved, "+")
    w.must("pwrite", 2, 100, 200)
    d = preload.status().domain("preload")
    check(len(d["files"]) == 1 and d["files"][0]["records"] >= 3, "other names: %s", d["files"])
    # a copy with the mark is a file of its own: open to everybody, also when no daemon is there
    copy, log2 = os.path.join(folder, "copy"), os.path.join(folder, "log.2")
    for path in (copy, log2):
        with open(path, "wb"):
            pass
        os.setxattr(path, "user.pmemlogd.owner", os.getxattr(moved, "user.pmemlogd.owner"))
    preload.kill()
    w.kill()
    w = Writer(preload)
    check(w("open", 0, moved, "+")[1] == "EIO", "other names: marked file opened by another name")
    check(w("open", 0, copy, "+")[0] == 0, "other names: a copy of no rule refused")
    check(w("open", 0, log2, "+")[0] == 0, "other names: a copy refused")
    w.end()


def drop_override():
    """Root obeys permissions from the next program on: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH go."""
    for capability in (1, 2):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), "prctl")


def unreadable_folder(preload, check):
    """rename cannot sync a folder that its owner may not read: the program's own fsync is a real one then."""
    folder = fresh(preload)
    log = os.path.join(folder, "log.1")
    w = Writer(preload, trace=os.path.join(preload.box.path, "trace-folder"), before=drop_override)
    w.must("open", 0, log, "+c")
    w.calls("pwrite", 0, 100, 0)
    check(in_lane(preload, log), "folder: not in the lane")
    os.chmod(folder, 0o300)
    calls = w.calls("rename", log, os.path.join(folder, "log.2"))
    check(calls == ["fsync 0"], "folder: rename: %s", calls)
    calls = w.calls("sync", 0)
    check(len(calls) == 1 and "sync" in calls[0], "folder: sync after rename: %s", calls)
    calls = w.calls("sync", 0)
    check(calls == [], "folder: second sync: %s", calls)
    os.chmod(folder, 0o755)
    w.end()
