# SPDX-License-Identifier: LGPL-2.1-or-later
"""A domain's lane: missing, cut, of another life, not its owner's."""
import os
import struct

from folder import COUNT, Folder, blank, crc32c, replace
from cases import DOMAIN, read, require, subprocess
from kept import patch


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
