# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pool with live records, kept as it was after the cut and put back as often as wanted."""
import hashlib
import shutil

from cases import Agent, Image, block, os, read, run, struct, time

RECORDS = 20
HEADER = 4096


class Kept:
    """Everything at the moment after a cut, to be put back as often as wanted."""

    PARTS = ("pool", "rundir", "state")

    def __init__(self, c):
        self.c = c
        self.restores = 0
        c.image.umount()
        self.folder = c.box.folder("kept-" + c.name)
        run(["cp", "--sparse=always", c.image.file, os.path.join(self.folder, "image")])
        for part in self.PARTS:
            run(["cp", "-a", getattr(c.product, part), os.path.join(self.folder, part)])
        c.image.mount()

    def restore(self):
        c = self.c
        self.restores += 1
        c.product.kill()
        c.image.umount()
        run(["cp", "--sparse=always", os.path.join(self.folder, "image"), c.image.file])
        for part in self.PARTS:
            shutil.rmtree(getattr(c.product, part))
            run(["cp", "-a", os.path.join(self.folder, part), getattr(c.product, part)])
        c.image.mount()


def records(c):
    """Twenty records of 512 bytes, the last one after the daemon's death: no heartbeat covers it."""
    c.begin(image=Image(c.box, c.fs, name=c.name, size=(64 if c.fs == "ext4" else 320) << 20),
            destage_age="3600s", lane_size="1MiB")
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    for n in range(RECORDS - 1):
        a.write_synced(fd, block(n, 512), n * 512)
    c.accelerated()
    time.sleep(0.25)  # heartbeats
    c.product.kill()
    a.write_synced(fd, block(RECORDS - 1, 512), (RECORDS - 1) * 512)
    c.cut()
    kept = Kept(c)
    lane = c.product.lanes()[0]
    tail = struct.unpack_from("<Q", read(lane), 64)[0]
    return kept, lane, [HEADER + tail + n * 576 for n in range(RECORDS)]


def patch(path, at, data):
    with open(path, "r+b") as f:
        f.seek(at)
        f.write(data)


def tree_hash(folder):
    h = hashlib.sha256()
    for top, _, files in sorted(os.walk(folder)):
        for name in sorted(files):
            h.update(read(os.path.join(top, name)))
    return h.hexdigest()
