# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon that is not there yet, stops, dies, comes back; and the files it left."""
import os
import signal
import time

from harness import Writer, fresh, in_lane, keep_writing_until, token_held, token_of, wait_for

MS = 1000  # microseconds


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
    if not folder_exists:
        # a daemon may have made it that has not come to us yet: before the next write, not a second later
        os.mkdir(os.path.dirname(token_of(preload, log)), 0o1777)
        w.must("pwrite", 0, 4096, 0)
        check(token_held(preload, log), "no daemon: no token at the first write that could take one")
    preload.start()
    keep_writing_until(preload, w, 0, log, "daemon has come")
    wait_for("token released", lambda: not token_held(preload, log))
    w.must("pwrite", 0, 100, 4096)
    check(preload.file(log)["records"] > 0, "daemon has come: no records")
    w.end()


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
    """Six threads on one file while the daemon comes, stops, dies and comes back. As many beside them, on a
    file without a rule, show what machine and disk make a call wait."""
    folder = fresh(preload)
    preload.kill()
    log = os.path.join(folder, "log.1")
    w = Writer(preload)
    w.must("open", 0, log, "+c")
    plain = Writer(preload)
    plain.must("open", 0, os.path.join(folder, "plain"), "+c")
    plain.send("storm", 0, 6, 12000)
    w.send("storm", 0, 6, 12000)
    for _ in range(2):
        time.sleep(0.3)
        preload.start()
        time.sleep(1.5)
        preload.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        preload.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        # as long as it takes: the threads are at it all the while, and a busy machine takes its time
        wait_for("storm: in the lane", lambda: in_lane(preload, log), 30)
        preload.kill()
    preload.start()
    result, error, longest = w.answer()
    check(result == 6 * 12000, "storm: %d %s", result, error)
    usual = plain.answer()[2]
    check(longest < 2000 * MS + usual, "storm: a call took %d us, %d without pmemlogd", longest, usual)
    plain.end()
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
