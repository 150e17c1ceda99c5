# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a program does with descriptors of its log files, and what reaches the kernel."""
import os
import time

from harness import Writer, fresh, in_lane, keep_writing_until, wait_for


def normal(preload, check):
    folder = fresh(preload)
    w = Writer(preload)
    log, plain = os.path.join(folder, "log.1"), os.path.join(folder, "plain")
    excluded = os.path.join(preload.box.folder("data", "excluded"), "log.1")
    w.must("open", 0, log, "+cds")
    w.must("open", 1, plain, "+c")
    w.must("open", 2, excluded, "+c")
    for slot in (0, 1, 2):
        w.must("pwrite", slot, 4096, 0)
        w.must("sync", slot)
    f = preload.file(log)
    check(f and f["state"] == "lane" and f["records"] == 1, "normal: %s", f)
    check(preload.file(plain) is None and preload.file(excluded) is None, "normal: too many files")
    # opened again while it is open: one entry
    w.must("open", 3, log, "+")
    w.must("pwrite", 3, 100, 5000)
    check(preload.file(log)["records"] == 2, "normal: second open")
    check(w.end() == 0, "normal: exit")
    wait_for("mark removed", lambda: "user.pmemlogd.owner" not in os.listxattr(log))


def system_calls(preload, check):
    """What reaches the kernel: no sync in the lane; in bypass just the sync that was asked for."""
    folder = fresh(preload, start=False)
    logs = [os.path.join(folder, "log.%d" % i) for i in range(4)]
    w = Writer(preload, trace=os.path.join(preload.box.path, "trace"))
    for slot, flags in enumerate(("+c", "+cs", "+cd", "+cS")):
        w.must("open", slot, logs[slot], flags)
    # pwritev2's flags: RWF_DSYNC is 2, RWF_SYNC 4
    for slot, flags in enumerate((0, 2, 2, 4)):
        calls = w.calls("pwrite", slot, 100, 0)
        check(calls == ["pwritev2 %d" % flags], "bypass, file %d: %s", slot, calls)
        calls = w.calls("write", slot, 100)
        check(calls == ["pwritev2 %d" % flags], "bypass, file %d: %s", slot, calls)
    check(w.calls("sync", 0) == ["fdatasync 0"], "bypass: no fdatasync")
    preload.start()
    for slot in range(4):
        keep_writing_until(preload, w, slot, logs[slot], "traced")
    for slot in range(4):
        w.must("sync", slot)  # what bypass left
        calls = w.calls("pwrite", slot, 100, 0)
        check(calls == ["pwritev2 0"], "lane, file %d: %s", slot, calls)
        calls = w.calls("sync", slot)
        check(calls == [], "lane, file %d: %s", slot, calls)
    w.calls("pwrite", 0, 100, 0)  # live, however long the loop above took
    calls = w.calls("truncate", logs[0], 50)
    check(calls.count("fsync 0") == 2, "truncate of a live file: %s", calls)
    calls = w.calls("rename", logs[1], os.path.join(folder, "log.9"))
    check(calls.count("fsync 0") == 2, "rename: file and folder: %s", calls)
    # beyond what one record may hold: RULE F, on a file that has a record not destaged yet
    w.calls("pwrite", 2, 100, 0)
    calls = w.calls("pwrite", 2, 2 << 20, 0)
    check(calls == ["fsync 0", "pwritev2 0", "fsync 0"], "big write: %s", calls)
    w.end()


def closes_all(preload, check):
    """A program that closes everything keeps its session: its slot hangs on a descriptor of ours."""
    folder = fresh(preload)
    log = os.path.join(folder, "log.1")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 100, 0)
    w.must("close-all")
    check(preload.status().domain("preload")["sessions"] == 1, "closed all: session lost")
    w.must("open", 0, log, "+")
    w.must("pwrite", 0, 100, 100)
    check(preload.file(log)["records"] == 2, "closed all: %s", preload.file(log))
    w.end()


def past_us(preload, check):
    """Ways to write past the library take the file out of the lane, and say so."""
    folder = fresh(preload)
    w = Writer(preload)
    for slot, way in enumerate(("map", "stream", "keep", "fopen r+", "fopen a", "fopen w")):
        log = os.path.join(folder, "log.%d" % slot)
        w.must("open", slot, log, "+c")
        w.must("pwrite", slot, 5000, 0)
        check(in_lane(preload, log), "%s: not in the lane before", way)
        if way.startswith("fopen"):
            w.must("close", slot)
            w.must("fopen", log, way.split()[1])
        else:
            w.must(way, slot)
        f = preload.file(log)
        check(f and f["state"] == "bypass" and f["live_bytes"] == 0 and f["reason"], "%s: %s", way, f)
        if way == "map" or way == "keep":
            w.must("pwrite", slot, 100, 0)
            check(preload.file(log)["records"] == f["records"], "%s: a record in bypass", way)
    # reading makes no difference
    log = os.path.join(folder, "log.9")
    w.must("open", 9, log, "+c")
    w.must("pwrite", 9, 100, 0)
    w("fopen", log, "r")
    check(in_lane(preload, log), "fopen for reading: not in the lane")
    w.end()


def reused(preload, check):
    """A descriptor that was closed unseen and means another file now: that one's calls are real."""
    folder = fresh(preload)
    log, plain = os.path.join(folder, "log.1"), os.path.join(folder, "plain")
    w = Writer(preload, trace=os.path.join(preload.box.path, "trace"))
    for call in (("sync", 1), ("write", 1, 100), ("pwrite", 1, 100, 0)):
        w.must("open", 0, log, "+c")
        w.must("pwrite", 0, 100, 0)
        w.must("raw-close", 0)
        w.must("raw-open", 1, plain)
        calls = w.calls(*call)
        name = {"sync": "fdatasync", "write": "pwritev2", "pwrite": "pwritev2"}[call[0]]
        check(calls == [name + " 0"], "reused, %s: %s", call[0], calls)
        check(w.calls("sync", 1) == ["fdatasync 0"], "reused: sync after %s", call[0])
        w.must("close", 1)
    check(preload.file(log)["records"] == 3, "reused: a record of another file's write")
    w.end()


def forked(preload, check):
    """A child takes a session of its own at its first write, and keeps the domain alive."""
    folder = fresh(preload)
    log = os.path.join(folder, "log.1")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 100, 0)
    check(preload.status().domain("preload")["sessions"] == 1, "forked: sessions before")
    w.must("fork")
    w.must("pwrite", 0, 100, 100)
    check(preload.status().domain("preload")["sessions"] == 2, "forked: sessions after")
    w.kill()  # the parent, in its wait: the child goes on alone
    time.sleep(0.5)
    check(preload.status().domain("preload")["sessions"] == 1, "forked: parent killed")
    check(in_lane(preload, log), "forked: parent killed: not in the lane")
    w.must("pwrite", 0, 100, 200)
    check(preload.file(log)["records"] == 3, "forked: %s", preload.file(log))
