# SPDX-License-Identifier: LGPL-2.1-or-later
"""A disk that really loses what is written to some files, as long as it is told to.

The image lies on a tmpfs. lose(paths): the files' blocks are punched out of it and the rest of the
tmpfs is filled, so that the loop device fails each write to them, and the journal's go through.
The kernel then does what it does on every failing disk: the error is reported once to each open
description, and the pages are clean from there on, though no disk has them. find() ends it.
"""
import os

from extents import extents
from fsimage import MKFS, Image
from sandbox import run


class LosingDisk(Image):
    SIZES = {"ext4": 64, "xfs": 320}  # MiB; the least that mkfs.xfs takes is 300

    def __init__(self, box, fs, name="losing"):
        super().__init__(box, fs, name=name, size=self.SIZES[fs] << 20)
        self.memory = box.tmpfs(name + "-memory", "%dm" % (self.SIZES[fs] + 8))
        self.file = os.path.join(self.memory, "image")
        self.ballast = os.path.join(self.memory, "ballast")

    def make(self):
        """As Image.make. Blocks of a page, whatever the size: half a page cannot be punched out, and
        the loop device calls a write that came short a good one."""
        run(["fallocate", "-l", str(self.size), self.file])
        run(MKFS[self.fs] + (["-b", "4096"] if self.fs == "ext4" else []) + [self.file])
        self.mount()

    def mount(self):
        # everything that is not punched out later is there, the journal above all
        run(["fallocate", "-l", str(self.size), self.file])
        super().mount()

    def lose(self, *paths):
        for path in paths:
            for at, length in extents(path):
                run(["fallocate", "-p", "-o", str(at), "-l", str(length), self.file])
        with open(self.ballast, "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(1 << 16))
            except OSError:
                pass
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass

    def find(self):
        os.unlink(self.ballast)
