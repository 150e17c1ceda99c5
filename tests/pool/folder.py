# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool folder with live records in it, and what is done to it."""
import hashlib
import os
import re
import shutil
import stat
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cases"))

from cases import DOMAIN, Agent, block, read, require, subprocess  # noqa: E402
from kept import RECORDS, patch, records  # noqa: E402

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


def gate_with(f, library, env):
    p = f.c.product
    r = subprocess.run([p.ctl, "-c", p.config, "gate", "root/" + DOMAIN], capture_output=True, text=True,
                       env=dict(os.environ, LD_PRELOAD=library, **env), timeout=60)
    return r.returncode, r.stdout + r.stderr


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
