# SPDX-License-Identifier: LGPL-2.1-or-later
"""What earlier versions left behind: kept/VERSION/, made once by make-keep and never changed.

    about.json          ABI, what the files of the pool must hold after recovery
    pool.tar.xz         pool and state folder, and the disk (ext4) with its files, as after a power cut
    preload.so.xz       that version's preload library
    control-head        the first 64 bytes of its control file, frozen for ever
"""
import json
import lzma
import os
import shutil
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cases"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from cases import Image  # noqa: E402

FOLDER = os.path.join(HERE, "kept")
MACHINE_ID = "6b6570742d6f6e2d6e6f2d6d61636869"  # pools belong to a machine; theirs is this one
HEAD_BYTES = 64
CONTROL_VERSION = 8  # offset of the version in them


def versions():
    return [Kept(name) for name in sorted(os.listdir(FOLDER))]


class Kept:
    def __init__(self, name):
        self.name = name
        self.folder = os.path.join(FOLDER, name)
        with open(self.path("about.json"), encoding="ascii") as f:
            self.about = json.load(f)

    def path(self, name):
        return os.path.join(self.folder, name)

    def library(self, target):
        with lzma.open(self.path("preload.so.xz")) as f, open(target, "wb") as out:
            shutil.copyfileobj(f, out)

    def unpack(self, target):
        with tarfile.open(self.path("pool.tar.xz")) as t:
            t.extractall(target, numeric_owner=True)


class KeptDisk(Image):
    """The kept image: identity of the files (handle, birth time, file system) is in it."""

    def __init__(self, box, source, name):
        super().__init__(box, "ext4", name=name)
        self.source = source

    def make(self):
        shutil.copyfile(self.source, self.file)
        self.mount()


def control_file(product):
    folder = os.path.join(product.rundir, "control")
    names = os.listdir(folder)
    assert len(names) == 1, names
    return os.path.join(folder, names[0])
