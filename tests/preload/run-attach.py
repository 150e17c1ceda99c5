#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""With, without and between daemons: who is accelerated, who is in bypass, who is not opened (DESIGN 5, Attach)."""
import ctypes
import fcntl
import os
import signal
import sys
import time

from harness import Check, Preload, Writer, wait_for
from sandbox import Sandbox, need

MS = 1000  # microseconds
PR_CAPBSET_DROP = 24
libc = ctypes.CDLL(None, use_errno=True)


def token_of(preload, path):
    st = os.stat(path)
    return os.path.join(preload.rundir, "bypass",
                        "%d:%d-%d" % (os.major(st.st_dev), os.minor(st.st_dev), st.st_ino))


def token_held(preload, path):
    try:
        fd = os.open(token_of(preload, path), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def in_lane(preload, path):
    f = preload.file(path)
    return f is not None and f["state"] == "lane"


def keep_writing_until(preload, writer, slot, path, what, seconds=10):
    """A file comes back at a write, so there have to be some."""
    def tried():
        writer.must("pwrite", slot, 100, 0)
        return in_lane(preload, path)
    wait_for("%s: %s in the lane" % (what, os.path.basename(path)), tried, seconds)


def fresh(preload, start=True):
    """A new pool in a running daemon (or none yet); returns a new folder for files."""
    if preload.alive():
        preload.kill()
    preload.create()
    if start:
        preload.start()
    fresh.count += 1
    return preload.box.folder("data", str(fresh.count))


fresh.count = 0


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


def without_daemon(preload, check, folder_exists):
    """No daemon yet: bypass; the daemon comes: accelerated, without a restart of the program."""
    folder = fresh(preload, start=folder_exists)
    if folder_exists:
        preload.kill()
    w = Writer(preload)
    log = os.path.join(folder, "log.1")
    took = w.must("open", 0, log, "+c")
    check(took < 50 * MS, "no daemon: open took %d us", took)
    w.must("pwrite", 0, 4096, 0)
    w.must("sync", 0)
    check(token_held(preload, log) == folder_exists, "no daemon: token")
    preload.start()
    keep_writing_until(preload, w, 0, log, "daemon has come")
    wait_for("token released", lambda: not token_held(preload, log))
    w.must("pwrite", 0, 100, 4096)
    check(preload.file(log)["records"] > 0, "daemon has come: no records")
    w.end()


def unsupported(preload, check):
    """A file system that cannot be trusted with a replay: to the disk as asked, and in sight."""
    log = os.path.join(preload.box.folder("memory", "files"), "log.1")
    fresh(preload)
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 100, 0)
    f = preload.file(log)
    check(f and f["state"] == "bypass" and "not registered" in f["reason"], "unsupported: %s", f)
    w.end()
    wait_for("the session's end", lambda: preload.file(log) is None)


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


def forked_in_bypass(preload, check):
    """Two processes write one file with a token: neither may go over to the lane."""
    folder = fresh(preload)
    preload.kill()
    w = Writer(preload)
    log = os.path.join(folder, "log.1")
    w.must("open", 0, log, "+c")
    w.must("fork")
    preload.start()
    for _ in range(30):
        w.must("pwrite", 0, 100, 0)
        time.sleep(0.05)
    check(preload.file(log) is None, "forked with a token: %s", preload.file(log))
    check(token_held(preload, log), "forked: token lost")
    w.end()


def marked(preload, check):
    """Killed with live records, no daemon: not opened for writing, until a daemon has recovered."""
    folder = fresh(preload)
    log, other = os.path.join(folder, "log.1"), os.path.join(folder, "log.2")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 5000, 0)
    preload.kill()
    w.kill()
    check(preload.live_bytes() > 0, "marked: nothing live")
    w = Writer(preload)
    check(w("open", 0, log, "+")[1] == "EIO", "marked: opened")
    check(w("open", 0, log, "wt")[1] == "EIO", "marked: opened with O_TRUNC")
    check(os.stat(log).st_size == 5000, "marked: truncated")
    os.symlink("log.1", os.path.join(folder, "by-another-name"))
    check(w("open", 0, os.path.join(folder, "by-another-name"), "wt")[1] == "EIO", "marked: symlink")
    check(os.stat(log).st_size == 5000, "marked: truncated by symlink")
    w.must("open", 1, other, "+c")
    w.must("write", 1, 100)
    preload.start()
    w.must("open", 0, log, "+")
    w.must("pwrite", 0, 10, 5000)
    check(in_lane(preload, log), "marked: recovered, not accelerated")
    w.end()


def joined(preload, check):
    """No daemon, but a living session: a second process joins it through the control folder."""
    folder = fresh(preload)
    log, new = os.path.join(folder, "log.1"), os.path.join(folder, "log.2")
    first = Writer(preload)
    first.must("open", 0, log, "+c")
    first.must("pwrite", 0, 100, 0)
    preload.kill()
    second = Writer(preload)
    took = second.must("open", 0, log, "+")
    check(took < 200 * MS, "joined: open took %d us", took)
    before = preload.live_bytes()
    second.must("pwrite", 0, 10000, 100)
    check(preload.live_bytes() >= before + 10000, "joined: second process not in the lane")
    second.must("open", 1, new, "+c")
    second.must("pwrite", 1, 100, 0)
    check(token_held(preload, new), "joined: new file without a token")
    preload.start()
    keep_writing_until(preload, second, 1, new, "joined")
    check(preload.status().domain("preload")["sessions"] == 2, "joined: sessions")
    # the first ends, the second goes on
    first.kill()
    second.must("pwrite", 0, 100, 0)
    second.end()


def stopped(preload, check):
    """A stopped daemon: writes go on in the lane, a new file costs one short wait."""
    folder = fresh(preload)
    log = os.path.join(folder, "log.1")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 100, 0)
    preload.process.send_signal(signal.SIGSTOP)
    longest = w.must("load", 0, 200, 4096)
    check(longest < 200 * MS, "stopped: a write took %d us", longest)
    took = [w.must("open", 1 + i, os.path.join(folder, "log.%d" % (2 + i)), "+c") for i in range(3)]
    check(took[0] < 300 * MS, "stopped: first open took %d us", took[0])
    check(max(took[1:]) < 100 * MS, "stopped: later opens took %s us", took)
    w.must("pwrite", 1, 100, 0)
    w.must("sync", 1)
    # the lane fills up: one wait, then bypass
    longest = w.must("load", 0, 1200, 4096)
    check(longest < 2000 * MS, "stopped, lane full: a write took %d us", longest)
    preload.process.send_signal(signal.SIGCONT)
    keep_writing_until(preload, w, 1, os.path.join(folder, "log.2"), "continued")
    keep_writing_until(preload, w, 0, log, "continued")
    w.end()


def killed(preload, check):
    """The daemon killed under load and started again: no error, no long wait, back in the lane."""
    folder = fresh(preload)
    log = os.path.join(folder, "log.1")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.send("load", 0, 3000, 4096)
    preload.kill()
    result, error, longest = w.answer()
    check(result == 3000, "killed: %s", error)
    check(longest < 2000 * MS, "killed: a write took %d us", longest)
    preload.start()
    keep_writing_until(preload, w, 0, log, "restarted")
    longest = w.must("load", 0, 500, 4096)
    w.must("open", 1, os.path.join(folder, "log.2"), "+c")
    w.must("pwrite", 1, 100, 0)
    check(in_lane(preload, os.path.join(folder, "log.2")), "restarted: new file not accelerated")
    w.end()


def storm(preload, check):
    """Six threads on one file while the daemon comes, stops, dies and comes back."""
    folder = fresh(preload)
    preload.kill()
    log = os.path.join(folder, "log.1")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.send("storm", 0, 6, 12000)
    for _ in range(2):
        time.sleep(0.3)
        preload.start()
        time.sleep(1.5)
        preload.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        preload.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        check(in_lane(preload, log), "storm: not in the lane")
        preload.kill()
    preload.start()
    result, error, longest = w.answer()
    check(result == 6 * 12000, "storm: %d %s", result, error)
    check(longest < 2000 * MS, "storm: a call took %d us", longest)
    w.end()


def quarantined(preload, check):
    """Somebody else wrote the file while nobody had it: the domain stays closed."""
    folder = fresh(preload)
    log, other = os.path.join(folder, "log.1"), os.path.join(folder, "log.2")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    w.must("pwrite", 0, 5000, 0)
    preload.kill()
    w.kill()
    time.sleep(1.5)
    with open(log, "r+b") as f:
        f.write(b"foreign")
    preload.start()
    if not check(preload.status().domain("preload")["state"] == "quarantined", "not quarantined"):
        return
    w = Writer(preload)
    check(w("open", 0, log, "+")[1] in ("EIO", "EPERM"), "quarantined: opened")
    check(w("open", 0, other, "+c")[1] == "EIO", "quarantined: another file of the domain opened")
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


CASES = {
    "normal": normal,
    "folder": lambda p, c: without_daemon(p, c, True),
    "no-folder": lambda p, c: without_daemon(p, c, False),
    "closes-all": closes_all,
    "past-us": past_us,
    "unsupported": unsupported,
    "reused": reused,
    "forked": forked,
    "forked-token": forked_in_bypass,
    "calls": system_calls,
    "folder-unread": unreadable_folder,
    "marked": marked,
    "joined": joined,
    "stopped": stopped,
    "killed": killed,
    "names": names,
    "other-names": by_other_names,
    "storm": storm,
    "quarantined": quarantined,
}


def main():
    need([], "")
    check = Check()
    with Sandbox("preload-attach") as box:
        preload = Preload(box, lane_size="4MiB")
        for name, case in CASES.items():
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            before, began = check.failed, time.monotonic()
            try:
                case(preload, check)
            except RuntimeError as e:
                check(False, "%s: %s", name, e)
            if check.failed > before:
                box.tails(30)
            print("%-12s %-6s %.1f s" % (name, "ok" if check.failed == before else "FAILED",
                                        time.monotonic() - began), flush=True)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
