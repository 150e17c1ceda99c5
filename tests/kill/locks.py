# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who has which lock, from the control file (include/abi/control.h; tests/abi/layout.txt holds the numbers)."""
import os
import struct

LANE = 0  # no inode has that number
SYNCS = (74, 75)  # fsync, fdatasync

_HOT, _FILES, _FILE, _FILES_MAX = 4096, 73728, 256, 4096
_INO = 112


def _daemons(word):
    """slot << 48 | generation << 24 | thread; the daemon's slot is 0."""
    return word != 0 and word >> 48 == 0


def held_by_daemon(m):
    """[inode] of the files whose lock the daemon has, LANE for the lane's."""
    held = []
    for name in m.control_files():
        with open(os.path.join(m.product.rundir, "control", name), "rb") as f:
            f.seek(_HOT)
            if _daemons(struct.unpack("=Q", f.read(8))[0]):
                held.append(LANE)
            f.seek(_FILES)
            entries = f.read(_FILE * _FILES_MAX)
        for at in range(0, len(entries), _FILE):
            word, file_id = struct.unpack_from("=Q8xQ", entries, at)
            if file_id and _daemons(word):
                held.append(struct.unpack_from("=Q", entries, at + _INO)[0])
    return held
