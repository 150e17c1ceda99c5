#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pool folder as a whole, with live records in it: cut off, blank, older, swapped, another machine's, another
version's, not its owner's; pages that cannot be read. The real daemon and pmemlogctl.

Each row of the tables: what is done to the folder, what the message must say, and the remedy that it names,
which is then followed. Refused: no byte changed, exit not 0, the daemon does not serve, the gate is shut.

    tests/pool/run-folder.py [--fs ext4|xfs] [--seed N] [CASE...]
    cases: refused, force, lanes, idle, unsafe, poison, running

Prints `pool faults N wrong N silent N` before the last line.
"""
import hashlib
import os
import re
import shutil
import stat
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cases"))

from cases import DOMAIN, Agent, block, main, read, require, subprocess, time, wait_for  # noqa: E402
from kept import RECORDS, patch, records  # noqa: E402
from preloads import build  # noqa: E402

WANT = b"".join(block(n, 512) for n in range(RECORDS))
COUNT = {"faults": 0, "wrong": 0, "silent": 0}
CRC_TABLE = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82F63B78 if _c & 1 else 0)
    CRC_TABLE.append(_c)


def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = c >> 8 ^ CRC_TABLE[(c ^ byte) & 255]
    return c ^ 0xFFFFFFFF


class Folder:
    def __init__(self, c):
        self.c = c
        self.kept, self.lane, _ = records(c)
        self.pool = os.path.join(c.product.pool, "pool")
        self.state = os.path.join(c.product.state, "pool.state")

    def sums(self):
        p = self.c.product
        pid = os.path.join(p.state, "pool.pid")
        if os.path.exists(pid):
            os.unlink(pid)
        paths = [os.path.join(d, n) for d in (p.pool, p.state) for n in sorted(os.listdir(d))]
        # a FIFO would be waited for
        return [(n, hashlib.sha256(read(n)).digest() if stat.S_ISREG(os.lstat(n).st_mode) else None)
                for n in paths]

    def superblock(self, offset, value):
        """A field (u32) of both copies, with a good CRC: as another release would write it."""
        for copy in (0, 4096):
            sb = bytearray(read(self.pool)[copy:copy + 4096])
            struct.pack_into("<II", sb, offset, value, *struct.unpack_from("<I", sb, offset + 4)) \
                if offset != 8 else struct.pack_into("<I", sb, 8, value)
            struct.pack_into("<I", sb, 12, 0)
            struct.pack_into("<I", sb, 12, crc32c(bytes(sb)))
            patch(self.pool, copy, bytes(sb))

    def state_set(self, generation=0, uuid=None):
        words = read(self.state).split()
        words[2] = uuid or words[2]
        words[3] = b"%d" % (int(words[3]) + generation)
        with open(self.state, "wb") as f:
            f.write(b" ".join(words) + b"\n")

    def put_back(self):
        p = self.c.product
        for part, where in (("pool", p.pool), ("state", p.state)):
            shutil.rmtree(where)
            subprocess.run(["cp", "-a", os.path.join(self.kept.folder, part), where], check=True)

    def replayed(self, what):
        have = read(self.c.path("log.0"))
        if have != WANT:
            COUNT["silent"] += 1
        require(have == WANT, "%s: %d bytes, not what was acknowledged", what, len(have))

    def try_start(self):
        """Exit status and last words of a daemon that must not serve."""
        p = self.c.product
        r = subprocess.run([p.daemon, "-c", p.config], capture_output=True, text=True, timeout=60)
        return r.returncode, r.stderr

    def mapped_away(self, what):
        """A database that comes up without a daemon gets EIO on its marked file."""
        a = Agent(self.c)
        try:
            a.open(self.c.path("log.0"), os.O_RDWR)
        except OSError as e:
            require(e.errno == 5, "%s: open: %s", what, e)
        else:
            require(False, "%s: a marked file was opened for writing without its pool", what)
        finally:
            a.kill()


def remedy_of(text):
    """The command that a message gives: echo WHAT > WHERE."""
    m = re.search(r"(echo .+? > \S+)", text)
    require(m, "no remedy in: %s", text)
    subprocess.run(["sh", "-c", m.group(1).rstrip(".;,")], check=True)


def row(f, what, harm, says, remedy):
    """One row of what must be refused as a whole."""
    print("  " + what, flush=True)
    c = f.c
    COUNT["faults"] += 1
    f.kept.restore()
    harm(f)
    before, file = f.sums(), read(c.path("log.0"))
    status, words = c.product.gate()
    code, err = f.try_start()
    try:
        require(status == 1, "%s: gate: exit %d %s", what, status, words)
        require(code not in (0, -11, -7, -6), "%s: daemon: exit %d %s", what, code, err)
        for text in (words, err):
            require(says in text and c.box.path in text, "%s: \"%s\" not in: %s", what, says, text)
        require(f.sums() == before, "%s: refused, and bytes were changed", what)
        require(read(c.path("log.0")) == file, "%s: the file was changed", what)
        if what in ("blank", "older state"):
            f.mapped_away(what)
        if remedy == "put back":
            f.put_back()
        else:
            remedy_of(words)
        status, words = c.product.gate()
        require(status == 0, "%s: the remedy does not help: %s", what, words)
        f.replayed(what)
    except Exception:
        COUNT["wrong"] += 1
        raise


def replace(path, how):
    aside = path + "-aside"
    os.rename(path, aside)
    if how == "symlink":
        os.symlink(aside, path)
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        os.mkdir(path)


def blank(path):
    size = os.path.getsize(path)
    os.truncate(path, 0)
    os.truncate(path, size)


def older_copy(f):
    """The pool as it was before a daemon had it."""
    c = f.c
    older = os.path.join(c.product.memory, "older")
    shutil.rmtree(older, ignore_errors=True)
    shutil.copytree(c.product.pool, older)
    shutil.copyfile(f.state, f.state + "-")
    f.state_set(generation=2)


def machine(f):
    with open(os.path.join(f.c.product.state, "machine-id"), "w") as out:
        out.write("%032x\n" % 0x1234)


def refused(c):
    """Pool and state folder: refused as a whole."""
    f = Folder(c)
    size = os.path.getsize(f.pool)
    back = "put back"
    rows = [("cut to %d" % n, lambda f, n=n: os.truncate(f.pool, n), "cut off" if n >= 8192 else "", back)
            for n in (0, 100, 4096, 8192, 65536, size // 2, size - 1)]
    rows += [
        ("blank", lambda f: blank(f.pool), "blank", back),
        ("gone", lambda f: os.unlink(f.pool), "holds no pool", back),
        ("symlink", lambda f: replace(f.pool, "symlink"), "no regular file", back),
        ("fifo", lambda f: replace(f.pool, "fifo"), "no regular file", back),
        ("folder", lambda f: replace(f.pool, "folder"), "no regular file", back),
        ("older pool", older_copy, "older copy of this pool", back),
        ("older state", lambda f: f.state_set(generation=-2), "older copy", "echo"),
        ("another pool", lambda f: f.state_set(uuid=b"%032x" % 77), "another one is mounted", "echo"),
        ("no mirror", lambda f: os.unlink(f.state), "is missing", "echo"),
        ("damaged mirror", lambda f: patch(f.state, 3, b"\xff"), "is damaged", "echo"),
        ("another machine", machine, "belongs to machine", "echo"),
        ("newer version", lambda f: f.superblock(8, 2), "version 2", back),
        ("older version", lambda f: f.superblock(8, 0), "version 0", back),
        ("incompatible bit", lambda f: f.superblock(32, 1 << 7), "does not know", back),
        ("read-only bit", lambda f: f.superblock(28, 1 << 3), "only read", back),
        ("lane without a domain", lambda f: patch(f.pool, 65536, bytes(1024)), "no domain", back),
        ("another lane without a domain, and an empty one", two_orphans, "no domain", back),
    ]
    for what, harm, says, remedy in rows:
        row(f, what, harm, says, remedy)
    # What its name calls compatible, and what is nobody's, is no matter.
    for what, harm in (("compatible bit", lambda f: f.superblock(24, 1 << 5)),
                       ("foreign file", lambda f: shutil.copyfile(f.lane, f.lane + ".old"))):
        COUNT["faults"] += 1
        f.kept.restore()
        harm(f)
        status, words = c.product.gate()
        require(status == 0, "%s: %s", what, words)
        f.replayed(what)
    two_daemons(f)
    return "%d rows" % len(rows)


def two_orphans(f):
    """What may be removed (nothing was ever appended to it) must still be there after a refusal."""
    lane = os.path.join(os.path.dirname(f.lane), "lane-000002")
    with open(lane, "wb") as out:
        out.truncate(os.path.getsize(f.lane))
    os.chmod(lane, 0o600)
    shutil.copyfile(lane, lane.replace("02", "77"))
    patch(f.pool, 65536, bytes(1024))


def two_daemons(f):
    COUNT["faults"] += 1
    f.kept.restore()
    f.c.product.start()
    code, err = f.try_start()
    require(code not in (0, -7, -11) and str(f.c.product.process.pid) in err,
            "second daemon: exit %d %s", code, err)
    f.replayed("two daemons")
    f.c.product.kill()


def lanes(c):
    """A domain's lane: held or quarantined by name, and the remedy works."""
    f = Folder(c)
    held = [
        ("owner", lambda p: os.chown(p, 12345, -1), "chown 0", lambda p: os.chown(p, 0, -1)),
        ("mode", lambda p: os.chmod(p, 0o644), "chmod 600", lambda p: os.chmod(p, 0o600)),
    ] + [(how, lambda p, how=how: replace(p, how), "put the lane's own file back", None)
         for how in ("symlink", "fifo", "folder")]
    gone = [
        ("missing", os.unlink, "put the lane's own file back"),
        ("blank", blank, "damaged"),
        ("cut", lambda p: os.truncate(p, os.path.getsize(p) - 4096), "cut off"),
        ("cut short", lambda p: os.truncate(p, 100), "cut off"),
        ("another incarnation", other_lane, "older copy"),
        ("older and empty", older_lane, "older copy"),
    ]
    for what, harm, says, heal in held + [g + (None,) for g in gone]:
        for daemon in (False, True):
            COUNT["faults"] += 1
            f.kept.restore()
            harm(f.lane)
            file = read(c.path("log.0"))
            if daemon:
                c.product.start()
            status, words = c.product.gate()
            require(status == 1 and says in words, "%s: gate: exit %d %s", what, status, words)
            require(read(c.path("log.0")) == file, "%s: the file was changed", what)
            if heal:
                heal(f.lane)
            else:
                if os.path.isdir(f.lane) and not os.path.islink(f.lane):
                    os.rmdir(f.lane)
                elif os.path.lexists(f.lane):
                    os.unlink(f.lane)
                subprocess.run(["cp", "-a", os.path.join(f.kept.folder, "pool",
                                                         os.path.basename(f.lane)), f.lane], check=True)
            if what not in [h[0] for h in held]:
                r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
                require(r.returncode == 0, "%s: recover --apply: %s", what, r.stderr)
            status, words = c.product.gate()
            require(status == 0, "%s: the remedy does not help: %s", what, words)
            f.replayed(what)
            c.product.kill()
    return "%d rows, without and with a daemon" % (len(held) + len(gone))


def force(c):
    """pool create --force says whose records would go, and wants the path for it."""
    f = Folder(c)
    f.kept.restore()
    before = f.sums()
    for words in ([], ["--yes=" + DOMAIN], ["--yes=" + c.product.pool + "/"]):
        COUNT["faults"] += 1
        r = c.product.command("pool", "create", "--force", *words)
        require(r.returncode == 1, "%s: exit %d %s", words, r.returncode, r.stderr)
        for text in ("root/" + DOMAIN, "uid 0", "%d records" % RECORDS, "log.0", "--yes="):
            require(text in r.stderr, "%s: \"%s\" not in: %s", words, text, r.stderr)
        require(f.sums() == before, "%s: bytes were changed", words)
    os.truncate(f.pool, 4096)
    r = c.product.command("pool", "create", "--force")
    require(r.returncode == 1 and "cannot be told" in r.stderr, "damaged: %d %s", r.returncode, r.stderr)
    r = c.product.command("pool", "create", "--force", "--yes=" + c.product.pool)
    require(r.returncode == 0, "with the path: %s", r.stderr)
    r = c.product.command("pool", "create", "--force")
    require(r.returncode == 0, "without a record: %s", r.stderr)
    os.truncate(f.state, 3)
    os.unlink(f.pool)
    r = c.product.command("pool", "create")
    require(r.returncode == 1 and "pool.state" in r.stderr, "damaged mirror: %s", r.stderr)
    return "named, and asked for"


def other_lane(path):
    """The same lane of another life: a good header and good records, of another incarnation."""
    data = bytearray(read(path))
    old = data[24:32]
    new = bytes(b ^ 0x5A for b in old)
    for at in (0, 2048):
        data[at + 24:at + 32] = new
        data[at + 12:at + 16] = bytes(4)
        data[at + 12:at + 16] = struct.pack("<I", crc32c(bytes(data[at:at + 64])))
    at, chain = struct.unpack_from("<Q", data, 64)[0] + 4096, struct.unpack_from("<I", data, 80)[0]
    while data[at + 8:at + 16] == old:
        length = struct.unpack_from("<I", data, at + 40)[0]
        data[at + 8:at + 16] = new
        struct.pack_into("<I", data, at + 44, chain)
        chain = crc32c(bytes(data[at + 4:at + 64 + length]))
        struct.pack_into("<I", data, at, chain)
        at += 64 + (length + 63) // 64 * 64
    patch(path, 0, bytes(data))


def older_lane(path):
    """The lane as it was in an earlier life, when it was empty: a good header, no record, no heartbeat."""
    other_lane(path)
    patch(path, 64, bytes(2048 - 64))
    patch(path, 4096, bytes(os.path.getsize(path) - 4096))


def idle(c):
    """A catalog page is cleared while sessions live on an idle lane: the lane stays, and what they write from
    then on is replayed once the page is back."""
    c.begin(destage_age="100ms", lane_size="1MiB")
    COUNT["faults"] += 1
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(0, 512), 0)
    c.accelerated()
    c.must_flush()
    c.product.kill()
    pool, lane = os.path.join(c.product.pool, "pool"), c.product.lanes()[0]
    page = read(pool)[65536:65536 + 4096]
    patch(pool, 65536, bytes(4096))
    r = subprocess.run([c.product.daemon, "-c", c.product.config], capture_output=True, text=True,
                       timeout=60)
    require(r.returncode > 0 and lane in r.stderr and "entry was lost" in r.stderr, "daemon: exit %d %s",
            r.returncode, r.stderr)
    require(os.path.exists(lane), "the lane of living sessions was removed")
    for n in range(1, RECORDS):
        a.write_synced(fd, block(n, 512), n * 512)
    c.cut()
    patch(pool, 65536, page)
    c.recover()
    have = read(c.path("log.0"))
    if have != WANT:
        COUNT["silent"] += 1
    require(have == WANT, "%d bytes, not what was acknowledged", len(have))
    c.end()

    # The remedy that the refusal names, of a lane that holds nothing: the database ended.
    c.begin(destage_age="100ms", lane_size="1MiB")
    COUNT["faults"] += 1
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(0, 512), 0)
    c.must_flush()
    c.product.kill()
    a.kill()
    patch(os.path.join(c.product.pool, "pool"), 65536, bytes(4096))
    status, words = c.product.gate()
    require(status == 1 and "setfattr -x user.pmemlogd.owner" in words, "gate: exit %d %s", status, words)
    os.unlink(c.product.lanes()[0])
    c.product.start()
    os.removexattr(c.path("log.0"), "user.pmemlogd.owner")
    b = Agent(c)
    fd = b.open(c.path("log.0"), os.O_RDWR)
    b.write_synced(fd, block(1, 512), 512)
    c.in_lane()
    b.kill()
    c.end()
    return "kept, and the remedy helps"


def unsafe(c):
    """The device's count of unsafe shutdowns, with live records: risen and fallen each in its own words;
    what is not to be had proves nothing and forgets nothing."""
    f = Folder(c)
    library = build(c.box, "tests/pool/usc.c")
    count = os.path.join(c.box.path, "usc")
    env = {"USC_FILE": count}
    risen, fallen = "counted an unsafe shutdown (7 -> 8)", "has fallen"
    rows = [("first seen", ["7"], None), ("the same", ["7", "7"], None), ("risen", ["7", "8"], risen),
            ("fallen", ["7", "6"], fallen), ("to nothing", ["7", "0"], fallen),
            ("not to be had", ["7", ""], None), ("never had", ["", ""], None),
            ("risen behind a gap", ["7", "", "8"], risen), ("told once", ["7", "8", "8"], risen)]
    for what, counts, says in rows:
        for daemon in (False, True):
            COUNT["faults"] += 1
            f.kept.restore()
            for n, value in enumerate(counts):
                with open(count, "w", encoding="ascii") as out:
                    out.write(value)
                last = n == len(counts) - 1
                if daemon and last:
                    status, words = with_daemon(f, library, env, keep=True)
                elif last:
                    status, words = gate_with(f, library, env)
                else:  # opened for writing, its records left alone
                    opened(f, library, env)
            require((status == 0) == (says is None), "%s: gate: exit %d %s", what, status, words)
            if says:
                require(says in words and "recover --apply" in words, "%s: %s", what, words)
                require(says == risen or "unsafe shutdown (" not in words, "%s: %s", what, words)
                require(read(c.path("log.0")) != WANT, "%s: quarantined, and replayed", what)
                r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
                require(r.returncode == 0, "%s: recover --apply: %s", what, r.stderr)
            f.replayed(what)
            c.product.kill()
    return "%d rows, without and with a daemon" % len(rows)


def gate_with(f, library, env):
    p = f.c.product
    r = subprocess.run([p.ctl, "-c", p.config, "gate", "root/" + DOMAIN], capture_output=True, text=True,
                       env=dict(os.environ, LD_PRELOAD=library, **env), timeout=60)
    return r.returncode, r.stdout + r.stderr


def opened(f, library, env):
    """Another domain's gate: the pool is opened and closed."""
    p = f.c.product
    r = subprocess.run([p.ctl, "-c", p.config, "gate", "root/nobody"], capture_output=True, text=True,
                       env=dict(os.environ, LD_PRELOAD=library, **env), timeout=60)
    require(r.returncode in (0, 1), "gate of another domain: exit %d %s", r.returncode, r.stderr)


def poison(c):
    """A page that cannot be read: harmless where it holds nothing, else named; nothing crashes."""
    f = Folder(c)
    library = build(c.box, "tests/pool/poison.c")
    size = os.path.getsize(f.pool)
    pages = [("pool/pool", n) for n in (0, 4096, 8192, 65536, 65536 + 4096, 327680, 327680 + 4096,
                                        size - 4096)]
    pages += [("lane-000001", n) for n in (0, 4096, 8192, 12288, 16384, 20480, 524288, 1048576)]
    named = 0
    for name, at in pages + [("pool/pool", None), ("lane-000001", None)]:
        for daemon in (False, True):
            COUNT["faults"] += 1
            f.kept.restore()
            where = "%s:%d:%d" % (name, at or 0, 4096 if at is not None else 1 << 30)
            env = {"POISON": where}
            before, file = f.sums(), read(c.path("log.0"))
            if daemon:
                status, words = with_daemon(f, library, env)
            else:
                status, words = gate_with(f, library, env)
            if status == 0:
                f.replayed(where)
                continue
            named += 1
            require(status == 1, "%s: exit %d %s", where, status, words)
            require("lane" in words or "file id" in words or c.product.pool in words,
                    "%s: not named: %s", where, words)
            require(read(c.path("log.0")) == file, "%s: the file was changed", where)
            if "nothing was changed" in words:
                require(f.sums() == before, "%s: bytes were changed", where)
    require(named >= 8, "only %d of the pages were noticed", named)
    return "%d pages, %d times named" % (len(pages), named)


def with_daemon(f, library, env, keep=False):
    """Gate's status through a daemon with that library, or the refusal to start: 1 and its words. keep: it
    goes on."""
    p = f.c.product
    p.preload, p.preload_env, old = library, env, (p.preload, p.preload_env)
    try:
        p.start()
    except RuntimeError:
        code = p.process.poll()
        require(code is not None and code > 0, "%s: daemon: %s", env, code)
        return 1, read(os.path.join(f.c.box.path, "pmemlogd.log")).decode()[-600:]
    finally:
        p.preload, p.preload_env = old
    status, words = p.gate()
    require(p.alive(), "%s: the daemon died", env)
    if not keep:
        p.kill()
    return status, words


def running(c):
    """Poison that comes while sessions live: the daemon stays, its domain is named; a client that stores
    into it dies by SIGBUS and has got no acknowledgement."""
    library = build(c.box, "tests/pool/poison.c")
    for where in (0, 4096, 8192, 16384):
        for victim in ("daemon", "client"):
            COUNT["faults"] += 1
            when = os.path.join(c.box.path, "now-%d-%s" % (where, victim))
            env = {"POISON": "lane-000001:%d:%d" % (where, 1 << 30), "POISON_WHEN": when}
            survive(c, library, env, when, victim)
            c.end()
    c.begin(destage_age="3600s", lane_size="1MiB")
    return "4 places, daemon and client"


def survive(c, library, env, when, victim):
    c.begin(start=False, destage_age="200ms", lane_size="1MiB")
    if victim == "daemon":
        c.product.preload, c.product.preload_env = library, env
    c.product.start()
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    done = 0
    for n in range(40):
        if n == 10:
            with open(when, "w"):
                pass
            if victim == "client":  # beyond the file's end: for daemon and client alike
                os.truncate(c.product.lanes()[0], int(env["POISON"].split(":")[1]))
            time.sleep(0.1)
        try:
            a.write_synced(fd, block(n, 512), n * 512)
            done += 1
        except (EOFError, OSError, BrokenPipeError):
            break
        except Exception as e:
            require(victim == "client", "%s: %s", env, e)
            break
        time.sleep(0.02)
    require(c.product.alive(), "%s: the daemon died", env)
    if victim == "client":
        require(done < 40, "%s: stores into poison were acknowledged", env)
        require(a.process.wait() == -7, "%s: exit %s", env, a.process.returncode)
    else:
        require(done == 40, "the client was stopped after %d", done)
        if env["POISON"].split(":")[1] != "0":
            return  # what its files hold already it need not read
        d = wait_for("the lane is named", lambda: c.status()["state"] != "ok" and c.status())
        require("lane" in d["reason"] or "damaged" in d["reason"], "not named: %s", d)
    b = Agent(c)
    other = b.open(c.path("other.0"), os.O_RDWR | os.O_CREAT)
    b.write_synced(other, b"x", 0)
    b.kill()
    require(c.product.alive(), "%s: the daemon died", env)
    have = read(c.path("log.0"))
    require(have[:done * 512] == b"".join(block(n, 512) for n in range(done)), "bytes are missing")


if __name__ == "__main__":
    result = main([refused, force, lanes, idle, unsafe, poison, running])
    print("pool faults %d wrong %d silent %d" % (COUNT["faults"], COUNT["wrong"] or result,
                                                  COUNT["silent"]))
    sys.exit(result)
