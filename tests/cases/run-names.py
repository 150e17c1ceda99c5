#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files that are deleted, made again under the same name or inode, renamed, linked, shrunk and grown with
undrained records; and names that somebody swaps before a replay by root.

What comes back is what the program made of each file, no more, and no record reaches another file.

Kills of tests/mutants/cases-*: truncate-unfenced, unlinked-kept.
"""
import random
import sys

from cases import (DOMAIN, Agent, block, errno_of, main, os, read, require, run, subprocess, time)

KEEP_SIZE, PUNCH = 1, 2


def undrained(c, **settings):
    return c.begin(destage_age="3600s", **settings)


def sync_dir(a, path):
    fd = a.open(path, os.O_RDONLY)
    a.fsync(fd)
    a.close(fd)


def write_old(c, a, name="log.0"):
    """Ten acknowledged blocks, and the file is deleted. Its inode number."""
    path = c.path(name)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.many(fd, 10, 4096)
    c.accelerated(name)
    ino = os.stat(path).st_ino
    a.unlink(path)
    a.close(fd)
    return ino


def make_again(c, a, path, ino):
    """A new file under this name, with the same inode number if the file system hands it out (not
    as long as a daemon has the old one open); open."""
    others = []
    for i in range(30):
        fd = a.open(path, os.O_RDWR | os.O_CREAT)
        if os.stat(path).st_ino == ino or i == 29:
            break
        a.close(fd)
        time.sleep(0.02)  # xfs lets go of inodes in the background
        others.append(c.path("other.%d" % i))
        a.rename(path, others[-1])
    for other in others:
        a.unlink(other)
    return fd, os.stat(path).st_ino == ino


def again(c, name, reboot=False, daemon=True, next_daemon=False):
    undrained(c)
    a = Agent(c)
    ino = write_old(c, a)
    if not daemon:
        c.product.kill()
    fd, same = make_again(c, a, c.path(name), ino)
    a.write_synced(fd, b"B" * 100, 0)
    if next_daemon:
        c.product.start()
        time.sleep(1.1)  # one try a second
        a.write_synced(fd, b"B" * 100, 0)
        c.in_lane(name)
        a.write_synced(fd, b"C" * 100, 0)
    if daemon or next_daemon:
        c.accelerated(name)
    sync_dir(a, c.image.path)
    c.cut()
    if reboot:
        c.reboot()
    c.recover()
    have = read(c.path(name))
    require(have == (b"C" if next_daemon else b"B") * 100, "%d bytes, first %r", len(have), have[:20])
    require(name == "log.0" or not os.path.exists(c.path("log.0")), "the old file is back")
    return "same inode" if same else "inode not handed out again"


def again_same_name(c):
    """The name again, most likely with the same inode."""
    return again(c, "log.0")


def again_after_reboot(c):
    """The same; the machine loses its memory, too."""
    return again(c, "log.0", reboot=True)


def again_other_name(c):
    """Another name gets the old inode."""
    return again(c, "log.9")


def again_without_daemon(c):
    """Deleted and made again while no daemon runs."""
    return again(c, "log.0", daemon=False)


def again_next_daemon(c):
    """The same, and the next daemon registers the new file beside the old one's live records."""
    return again(c, "log.0", daemon=False, next_daemon=True)


def not_again(c):
    """Deleted for good: its records go, with a line in the log, and nothing comes back."""
    undrained(c)
    a = Agent(c)
    write_old(c, a)
    fd = a.open(c.path("log.1"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(1), 0)
    sync_dir(a, c.image.path)
    c.cut()
    require(c.live() > 40960, "the deleted file's records were not live")
    c.recover()
    require(sorted(n for n in os.listdir(c.image.path) if n != "lost+found") == ["log.1"],
            "names: %s", os.listdir(c.image.path))
    require(read(c.path("log.1")) == block(1), "the other file's record is lost")
    require(c.live() == 0, "%d bytes live after recovery", c.live())
    log = read(os.path.join(c.box.path, "pmemlogd.log")).decode()
    require("records given up" in log, "not a word in the log")


def shrunk(c, how):
    undrained(c)
    path = c.path("log.0")
    a = Agent(c)
    fd = a.open(path, os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, b"a" * 8192, 0)
    a.write_synced(fd, b"x" * 4096, 1 << 20)
    c.accelerated()
    if how == "ftruncate":
        a.ftruncate(fd, 8192)
    elif how == "truncate":
        a.truncate(path, 8192)
    elif how == "open":
        a.close(a.open(path, os.O_WRONLY | os.O_TRUNC))
        a.write_synced(fd, b"a" * 8192, 0)
    elif how == "punch":
        a.fallocate(fd, KEEP_SIZE | PUNCH, 1 << 20, 4096)
        a.ftruncate(fd, 8192)
    elif how == "no daemon":
        c.product.kill()
        b = Agent(c)
        b.truncate(path, 8192)
    a.fdatasync(fd)
    c.cut()
    c.recover()
    require(os.stat(path).st_size == 8192, "%s: size %d", how, os.stat(path).st_size)
    os.truncate(path, 2 << 20)
    have = read(path)
    require(have[:8192] == b"a" * 8192, "%s: the rest is damaged", how)
    require(not have[8192:].strip(b"\0"), "%s: dead data is back", how)
    c.end()
    c.agents, c.stamps, c.product = [], [], None


def shorter(c):
    """An acknowledged block, then a shorter file: the block must not come back."""
    for how in ("ftruncate", "truncate", "open", "punch", "no daemon"):
        shrunk(c, how)


def longer(c):
    """Growth by appends: the length is only in the records."""
    undrained(c)
    a = Agent(c)
    want = {}
    for name, allocate in (("log.0", False), ("log.1", True)):
        fd = a.open(c.path(name), os.O_WRONLY | os.O_APPEND | os.O_DSYNC | os.O_CREAT)
        if allocate:
            a.fallocate(fd, KEEP_SIZE, 0, 1 << 20)
        want[name] = b""
        for n in range(100):
            line = (b"%03d" % n) * 233 + b"\n"
            require(a.write(fd, line) == 700, "short append")
            want[name] += line
        c.accelerated(name)
    c.cut()
    c.recover()
    for name, text in want.items():
        have = read(c.path(name))
        require(have == text, "%s: %d bytes of %d", name, len(have), len(text))


class Model:
    """What files there should be: name -> list of one bytearray (shared by hard links)."""

    def __init__(self):
        self.names = {}
        self.stray = []  # open, without a name


def neighbour(c):
    """The list of the logs, a file of no rule, is replaced by rename and nobody syncs the folder: the sync of a log that
    comes next takes the name along, in the file system's journal. MySQL counts on it with its binlogs."""
    undrained(c)
    a = Agent(c)
    log = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    for how in ("rename", "link"):
        for n in range(3):
            new, path = c.path("list.new"), c.path("list.%s" % how + ("" if how == "rename" else str(n)))
            fd = a.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            a.write(fd, b"%d" % n)
            a.fdatasync(fd)
            a.close(fd)
            getattr(a, how)(new, path)
            a.write(log, b"x" * 512)
            a.fdatasync(log)
            if how == "link":
                a.unlink(new)
    c.accelerated("log.0")
    c.cut()
    c.recover()
    require(read(c.path("list.rename")) == b"2", "the list is an older one: %r", read(c.path("list.rename")))
    require(os.path.exists(c.path("list.link2")) and read(c.path("list.link2")) == b"2", "the last link is gone")


def churn(c):
    """Six names: made, written, appended, renamed over each other, linked, deleted, cut short, by two
    programs, with the daemon killed and started in between. After the cut all is as it was."""
    r = random.Random(c.seed)
    c.begin(destage_age="300ms", lane_size="1MiB")
    folder = c.image.path
    for turn in range(3):
        programs = [Agent(c), Agent(c)]
        model = {n: bytearray(read(c.path(n))) for n in os.listdir(folder) if n.startswith("log.")}
        for _ in range(120):
            one(c, r, r.choice(programs), model)
            if r.random() < 0.02:
                c.product.kill() if c.product.alive() else c.product.start()
        c.cut()
        if turn % 2 and c.product.process is None:
            c.reboot()
        c.recover()
        have = {n: read(c.path(n)) for n in os.listdir(folder) if n.startswith("log.")}
        require(sorted(have) == sorted(model), "turn %d: names %s, expected %s", turn, sorted(have),
                sorted(model))
        for name, text in model.items():
            require(have[name] == text, "turn %d: %s differs: %d bytes of %d, at %s", turn, name,
                    len(have[name]), len(text), next((i for i, (x, y) in enumerate(
                        zip(have[name], text)) if x != y), "its end"))


def one(c, r, a, model):
    """One acknowledged operation of the program a, and the same in the model."""
    name = "log.%d" % r.randrange(6)
    path = c.path(name)
    kind = r.choices(["write", "append", "rename", "link", "unlink", "truncate", "open"],
                     [8, 4, 2, 1, 2, 2, 1])[0]
    if kind in ("write", "append", "open") or name not in model:
        flags = {"append": os.O_APPEND, "open": os.O_TRUNC}.get(kind, 0)
        fd = a.open(path, os.O_RDWR | os.O_CREAT | flags)
        new = name not in model
        data = bytes([r.randrange(1, 256)]) * r.choice((100, 512, 4096, 9000, 200000))
        text = model.setdefault(name, bytearray())
        if kind == "open":
            del text[:]
        at = len(text) if kind == "append" else r.randrange(0, 20000)
        if kind == "append":
            a.write(fd, data)
        else:
            a.pwrite(fd, data, at)
        a.fdatasync(fd)
        text.extend(bytes(max(0, at + len(data) - len(text))))
        text[at:at + len(data)] = data
        if r.random() < 0.7:  # some stay open
            a.close(fd)
        if new:
            sync_dir(a, c.image.path)
        return
    other = "log.%d" % r.randrange(6)
    if kind == "rename" and other != name and model.get(other) is not model[name]:
        a.rename(path, c.path(other))
        model[other] = model.pop(name)
    elif kind == "link" and other not in model:
        a.link(path, c.path(other))
        model[other] = model[name]
    elif kind == "unlink":
        a.unlink(path)
        del model[name]
    elif kind == "truncate":
        n = r.randrange(0, 30000)
        fd = a.open(path, os.O_RDWR)
        a.ftruncate(fd, n)
        a.fdatasync(fd)
        a.close(fd)
        text = model[name]
        text.extend(bytes(max(0, n - len(text))))
        del text[n:]
    sync_dir(a, c.image.path)


def swapped(c):
    """Between the crash and the replay by root somebody puts something else under the name."""
    def link(path, victim):
        os.unlink(path)
        os.symlink(victim, path)

    def moved(path, victim):
        os.rename(path, path + ".away")
        os.symlink(victim, path)

    def hard(path, victim):
        os.unlink(path)
        os.link(victim, path)

    def fifo(path, victim):
        os.unlink(path)
        os.mkfifo(path)

    def folder(path, victim):
        os.unlink(path)
        os.mkdir(path)

    def parent(path, victim):
        up = os.path.dirname(path)
        os.rename(up, up + ".away")
        os.symlink(os.path.dirname(victim), up)

    told = []
    for swap in (link, moved, hard, fifo, folder, parent):
        undrained(c)
        a = Agent(c)
        os.mkdir(c.path("db"))
        os.mkdir(c.path("root"))
        path, victim = c.path("db/log.0"), c.path("root/log.0")
        with open(victim, "wb") as f:
            f.write(b"r" * 8192)
        fd = a.open(path, os.O_RDWR | os.O_CREAT)
        other = a.open(c.path("log.7"), os.O_RDWR | os.O_CREAT)
        a.write_synced(fd, block(1), 0)
        a.write_synced(other, block(2), 0)
        c.accelerated("db/log.0")
        os.sync()
        c.cut()
        swap(path, victim)
        begin = time.monotonic()
        c.product.start()
        status, words = c.product.gate()
        require(time.monotonic() - begin < 20, "%s: it took %.0f s", swap.__name__,
                time.monotonic() - begin)
        require(read(victim) == b"r" * 8192, "%s: ANOTHER FILE WAS CHANGED", swap.__name__)
        if swap in (moved, parent):  # the file itself is there, under another name
            require(status == 0, "%s: gate: %s", swap.__name__, words)
            away = path + ".away" if swap is moved else c.path("db.away/log.0")
            require(read(away) == block(1), "%s: not replayed", swap.__name__)
        else:
            require(status == 1, "%s: gate: exit %d: %s", swap.__name__, status, words)
            apply = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
            require(apply.returncode != 0, "%s: --apply on a file that is gone", swap.__name__)
            require(read(victim) == b"r" * 8192, "%s: ANOTHER FILE WAS CHANGED", swap.__name__)
            give_up = c.product.command("recover", "--discard", "--yes=" + DOMAIN, DOMAIN)
            require(give_up.returncode == 0, "%s: --discard: %s%s", swap.__name__, give_up.stdout,
                    give_up.stderr)
            status, words = c.product.gate()
            require(status == 0, "%s: after --discard: %s", swap.__name__, words)
        told.append(swap.__name__)
        c.end()
        c.agents, c.stamps, c.product = [], [], None
    return ", ".join(told)


if __name__ == "__main__":
    sys.exit(main([again_same_name, again_after_reboot, again_other_name, again_without_daemon,
                   again_next_daemon,                   not_again, shorter, longer, neighbour, churn, swapped]))
