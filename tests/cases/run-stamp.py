#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The checker of stamp.c sees each kind of tampering, and only that.

Plan `overlap` with one file: writes 3, 6, ... cover a block of 64 units, 4, 7, ... its first 8 units, 5, 8,
... its last 8. The block is made up here as deaths and recoveries leave it, and as they may not.
Plan `wide`: a write over several pages, each of which would pass alone.
"""
import os
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from product import default_builddir, find  # noqa: E402

SEED, UNITS = 7, 64
OVERLAP, WIDE = 1, 2
WIDE_UNITS, PAGE = 1024, 64
MAGIC = 0x7374616D70303031
ALL, HEAD, MIDDLE, TAIL = range(64), range(8), range(8, 56), range(56, 64)
WORD = (1 << 64) - 1


def hashed(a, b, c):
    x = a * 0x9E3779B97F4A7C15 ^ b * 0xC2B2AE3D27D4EB4F ^ c * 0x165667B19E3779F9
    x &= WORD
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def unit(n, at):
    """What write n leaves at a unit; nothing: 0."""
    if n == 0:
        return bytes(64)
    return struct.pack("<QQQIIII24s", MAGIC, SEED, n, 0, 0, at, hashed(n, at, 0) & 0xFFFFFFFF,
                       bytes([ord("a") + n % 26]) * 24)


def said(program, acked, issued, block, cut=None, dead=True, plan=OVERLAP):
    """Exit status of the check. block: number of the write for each unit; cut: acked before the power cut."""
    shared = bytearray(8192)
    struct.pack_into("<QQIIIII", shared, 0, SEED, 0, 0, 1, 1, plan, 0)
    struct.pack_into("<QQ", shared, 128, issued, acked)
    if cut is not None:
        struct.pack_into("<QQ", shared, 1152, 1, cut)
    struct.pack_into("<I", shared, 1688, dead)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "log.0"), "wb") as f:
            f.write(b"".join(unit(n, at) if isinstance(n, int) else n for at, n in enumerate(block)))
        path = os.path.join(folder, "shared")
        with open(path, "wb") as f:
            f.write(shared)
        return subprocess.run([program, "check", folder, path], stdout=subprocess.DEVNULL).returncode


def blocks(*parts):
    """(write, units) laid over each other."""
    block = [0] * UNITS
    for n, units in parts:
        for at in units:
            block[at] = n
    return block


FIVE = ((1, HEAD), (2, TAIL), (3, ALL), (4, HEAD), (5, TAIL))
CASES = [
    # acked, issued, the block, power cut, good?
    ("all that is acknowledged", 5, 6, blocks(*FIVE), None, True),
    ("and the write under way", 5, 6, blocks(*FIVE, (6, ALL)), None, True),
    ("live records laid over it: 5", 5, 6, blocks(*FIVE, (6, ALL), (5, TAIL)), 5, True),
    ("live records laid over it: 4 and 5", 5, 6, blocks((6, ALL), (4, HEAD), (5, TAIL)), 5, True),
    ("4 without 5: none that is live is left out", 5, 6, blocks((6, ALL), (4, HEAD)), 5, False),
    ("torn behind its head", 5, 6, blocks(*FIVE, (6, HEAD)), 5, False),
    ("torn in the middle", 5, 6, blocks(*FIVE, (6, range(32))), 5, False),
    ("its tail alone", 5, 6, blocks(*FIVE, (6, TAIL)), 5, False),
    ("a piece of its middle", 5, 6, blocks(*FIVE, (6, range(8, 30))), 5, False),
    ("one unit is missing", 5, 6, blocks(*FIVE, (6, ALL), (3, [20])), 5, False),
    ("laid over by nothing", 2, 3, blocks((3, ALL), (0, range(8, 30))), 2, False),
    ("an older write in place of an acknowledged one", 5, 5, blocks(*FIVE, (3, [60])), 5, False),
    ("the same under a newer one", 5, 6, blocks(*FIVE, (6, HEAD), (6, MIDDLE), (3, TAIL)), 5, False),
    ("an acknowledged write laid over", 6, 6, blocks(*FIVE, (6, ALL), (5, TAIL)), 6, False),
    ("acknowledged while the power went", 6, 6, blocks(*FIVE, (6, ALL), (5, TAIL)), 5, True),
    ("a write that nobody made", 5, 5, blocks(*FIVE, (9, TAIL)), None, False),
    ("a unit of another place", 5, 5, [*blocks(*FIVE)[:10], unit(3, 11), *blocks(*FIVE)[11:]], None, False),
    ("a byte of nobody's", 5, 5, [b"x" * 64, *blocks(*FIVE)[1:]], None, False),
]


def wide_piece(n):
    """The units of plan wide's n-th write."""
    h = hashed(SEED, 0, n)
    units = 1 + (h >> 40) % (16 if (h >> 32 & 0xFFFFFFFF) % 100 < 50 else WIDE_UNITS)
    at = (h >> 16 & 0xFFFFFFFF) % (WIDE_UNITS - units + 1)
    return range(at, at + units)


def two_pages(good):
    """(n, block): write n lies over all of one page, and the newest record of another page lies over it there.
    good: that record is newer than all that n lies over."""
    model = [0] * WIDE_UNITS
    for n in range(1, 1000):
        piece = wide_piece(n)
        pages = [range(max(p, piece.start), min(p + PAGE, piece.stop))
                 for p in range(0, WIDE_UNITS, PAGE) if p < piece.stop and p + PAGE > piece.start]
        whole = max(model[at] for at in pages[0])
        for page in pages[1:]:
            newest = max(model[at] for at in page)
            if newest == 0 or all(model[at] == newest for at in page) or (newest > whole) != good:
                continue
            block = list(model)
            for at in pages[0]:
                block[at] = n
            for at in page:
                block[at] = newest if model[at] == newest else n
            return n, block
        for at in piece:
            model[at] = n
    raise AssertionError("no such write")


def main():
    program = find(default_builddir(), "stamp")
    bad = 0
    for good in (True, False):
        n, block = two_pages(good)
        status = said(program, n - 1, n, block, n - 1, plan=WIDE)
        if (status == 0) != good:
            bad += 1
            print("FAILED: two pages, %s: exit %d" % (good, status))
    for name, acked, issued, block, cut, good in CASES:
        status = said(program, acked, issued, block, cut)
        if (status == 0) != good:
            bad += 1
            print("FAILED: %s: exit %d" % (name, status))
    print("%d cases, %d failed" % (len(CASES) + 2, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
