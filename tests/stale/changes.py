# SPDX-License-Identifier: LGPL-2.1-or-later
"""What somebody else may do to a file of ours: each one real, by calls and tools as they are used, and its
effect on the facts (design.py). A change gets the path and a Place (world.py) and leaves NEW bytes where it
brings bytes of its own."""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import struct
import subprocess

BLOCK = 4096
NEW = b"n" * BLOCK
MARK = "user.pmemlogd.owner"
_libc = ctypes.CDLL(None, use_errno=True)
_FICLONE = 0x40049409
_RENAME_EXCHANGE = 2


class Change:
    """effect: facts that it alters. bytes_: it brings bytes of its own. fs: where it can be made.
    moved: the inode is found under path + this suffix afterwards (None: under its name, "": nowhere).
    beside: can be made while a session has the file open. timeless: file systems that leave ctime as it
    is then."""

    def __init__(self, name, do, effect, bytes_=True, fs=("ext4", "xfs"), moved=None, beside=True,
                 timeless=()):
        self.name, self.do, self.effect, self.bytes, self.fs = name, do, effect, bytes_, fs
        self.moved, self.beside, self.timeless = moved, beside, timeless


CTIME = {"ctime": "later"}
STALE = {"handle": "stale"}


def _write(path, flags=0, sync=os.fsync, data=NEW, at=0):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
    try:
        if os.pwrite(fd, data, at) != len(data):
            raise OSError(errno.EIO, path)
        if sync:
            sync(fd)
    finally:
        os.close(fd)


def _mapped(path, place):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if os.fstat(fd).st_size < BLOCK:
        os.ftruncate(fd, BLOCK)
    with mmap.mmap(fd, BLOCK, mmap.MAP_SHARED) as m:
        m[:] = NEW
        m.flush()
    os.close(fd)


def _direct(path, place):
    m = mmap.mmap(-1, BLOCK)
    m[:] = NEW
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    os.pwritev(fd, [m], 0)
    os.fsync(fd)
    os.close(fd)
    m.close()


def _other(path, place, keep=False):
    """A file with the new bytes, for a restore. keep: with everything that cp -a brings along."""
    other = place.spare(path)
    if keep and os.path.exists(path):
        subprocess.run(["cp", "-a", path, other], check=True)
        _write(other)
        shutil.copystat(path, other)
    else:
        _write(other)
    os.utime(other, ns=(10**18, 10**18))
    return other


def _cp_p(path, place):
    subprocess.run(["cp", "-p", _other(path, place), path], check=True)
    _sync(path)


def _tar(path, place):
    other = _other(path, place)
    folder = os.path.dirname(path)
    archive = place.spare(path) + ".tar"
    subprocess.run(["tar", "-C", os.path.dirname(other), "-cf", archive, "--transform",
                    "s,.*,%s," % os.path.basename(path), os.path.basename(other)], check=True)
    subprocess.run(["tar", "-C", folder, "--overwrite", "-xpf", archive], check=True)
    _sync(path)


def _utimes(path, place):
    st = os.stat(path)
    _write(path)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    _sync(path)


def _sync(path):
    for p in (path, os.path.dirname(path)):
        if os.path.exists(p):
            fd = os.open(p, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def _mv(path, place, keep=False):
    os.replace(_other(path, place, keep), path)
    _sync(path)


def _folder(path, place):
    """The folder from a copy of it, cp -a both ways: marks come along."""
    other = place.spare(path)
    subprocess.run(["cp", "-a", path, other], check=True)
    _write(other)
    os.unlink(path)
    subprocess.run(["cp", "-a", other, path], check=True)
    _sync(path)


def _recreate(path, place):
    os.unlink(path)
    _write(path)
    _sync(path)


def _reuse(path, place):
    """The inode number comes again; only its generation tells."""
    ino = os.stat(path).st_ino
    os.unlink(path)
    _sync(os.path.dirname(path))
    os.sync()  # xfs takes inodes back in the background
    made = []
    try:
        for n in range(4000):
            name = "%s.try%d" % (path, n)
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            made.append(name)
            found = os.fstat(fd).st_ino
            os.close(fd)
            if found == ino:
                os.rename(name, path)
                made.remove(name)
                _write(path)
                return
        raise RuntimeError("inode %d does not come again in 4000 files" % ino)
    finally:
        for name in made:
            os.unlink(name)
        _sync(os.path.dirname(path))


def _exchange(path, place):
    other = _other(path, place)
    target = path + ".moved"
    os.rename(other, target)
    if _libc.renameat2(-100, path.encode(), -100, target.encode(), _RENAME_EXCHANGE) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")
    _sync(path)


def _link_swap(path, place):
    os.link(path, path + ".moved")
    os.unlink(path)
    _sync(os.path.dirname(path))


def _clone(path, place):
    other = _other(path, place)
    a, b = os.open(other, os.O_RDONLY), os.open(path, os.O_RDWR)
    fcntl.ioctl(b, _FICLONE, a)
    os.fsync(b)
    os.close(a)
    os.close(b)


def _unmark(path, place):
    if MARK in os.listxattr(path):
        os.removexattr(path, MARK)
    _sync(path)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def forge(at):
    """A mark that is whole and names another lane (12), pool (16), machine (32), birth (48) or file (64)."""
    def do(path, place):
        value = bytearray(place.mark(path))
        value[at] ^= 1
        value[8:12] = bytes(4)
        value[8:12] = struct.pack("<I", crc32c(value))
        os.setxattr(path, MARK, bytes(value))
        _sync(path)
    return do


def _garbage(path, place):
    os.setxattr(path, MARK, b"zzz")
    _sync(path)


def _punch(path, place):
    fd = os.open(path, os.O_RDWR)
    _libc.fallocate(fd, 3, ctypes.c_long(BLOCK), ctypes.c_long(BLOCK))
    os.fsync(fd)
    os.close(fd)


def _resize(size):
    def do(path, place):
        os.truncate(path, size)
        _sync(path)
    return do


def _chain(*calls):
    def do(path, place):
        for call in calls:
            call(path)
        _sync(path)
    return do


CHANGES = [
    Change("none", lambda path, place: None, {}, bytes_=False),
    Change("pwrite+fsync", lambda path, place: _write(path), CTIME),
    Change("pwrite+fdatasync", lambda path, place: _write(path, sync=os.fdatasync), CTIME),
    Change("pwrite O_DSYNC", lambda path, place: _write(path, os.O_DSYNC, None), CTIME),
    Change("pwrite O_DIRECT", _direct, CTIME),
    Change("mmap store", _mapped, CTIME),
    Change("restore in place, cp -p", _cp_p, CTIME),
    Change("restore in place, tar", _tar, CTIME),
    Change("pwrite, then utimes back", _utimes, CTIME),
    Change("reflink over", _clone, CTIME, fs=("xfs",)),
    Change("punched hole", _punch, CTIME, bytes_=False),
    Change("truncated", _resize(2048), CTIME, bytes_=False),
    Change("truncated to 0", _resize(0), CTIME, bytes_=False),
    Change("extended", lambda path, place: _write(path, at=os.stat(path).st_size), CTIME,
           bytes_=False),
    Change("utimes only", _chain(lambda p: os.utime(p, (1, 1))), CTIME, bytes_=False),
    Change("chmod", _chain(lambda p: os.chmod(p, 0o600)), CTIME, bytes_=False),
    Change("chown", _chain(lambda p: os.chown(p, 12345, 12345)), CTIME, bytes_=False),
    Change("attribute set", _chain(lambda p: os.setxattr(p, "user.other", b"x")), CTIME,
           bytes_=False),
    Change("hard link", _chain(lambda p: os.link(p, p + ".link")), CTIME, bytes_=False),
    Change("hard link, name removed", _link_swap, CTIME, bytes_=False, moved=".moved"),
    Change("renamed away", _chain(lambda p: os.rename(p, p + ".moved")), CTIME, bytes_=False,
           moved=".moved"),
    # xfs: two names of one folder change places, and no inode is touched
    Change("exchanged", _exchange, CTIME, moved=".moved", timeless=("xfs",)),
    Change("restore, mv of a copy", _mv, STALE, moved=""),
    Change("restore, rsync -aX", lambda path, place: _mv(path, place, True), STALE, moved=""),
    Change("restore, cp -a of the folder", _folder, STALE, moved=""),
    Change("renamed over", _mv, STALE, moved=""),
    Change("recreated name", _recreate, STALE, moved=""),
    Change("inode re-used", _reuse, STALE, moved="", beside=False),
    Change("deleted", _chain(os.unlink), STALE, bytes_=False, moved=""),
    Change("mark removed", _unmark, dict(CTIME, mark="none"), bytes_=False),
    Change("mark of another lane", forge(12), dict(CTIME, mark="foreign"), bytes_=False),
    Change("mark of another pool", forge(16), dict(CTIME, mark="foreign"), bytes_=False),
    Change("mark of another machine", forge(32), dict(CTIME, mark="foreign"), bytes_=False),
    Change("mark of another birth", forge(48), dict(CTIME, mark="foreign"), bytes_=False),
    Change("mark of a copy", forge(64), dict(CTIME, mark="foreign"), bytes_=False),
    Change("mark overwritten", _garbage, dict(CTIME, mark="foreign"), bytes_=False),
]
NAMED = {c.name: c for c in CHANGES}


def after(facts, change, told, fs):
    """The facts after a change. told: the system can tell its time from ours (False: a window)."""
    effect = dict(change.effect)
    if facts["handle"] == "stale" or fs in change.timeless:
        return facts  # what lies under the name now is another file
    if effect.get("ctime") == "later" and not told:
        effect["ctime"] = "later" if facts["ctime"] == "later" else "window"
    return dict(facts, **effect)
