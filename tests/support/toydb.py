# SPDX-License-Identifier: LGPL-2.1-or-later
"""What toydb's files must hold after a cut, by what it said it did (tests/daemon/toydb.c)."""
import os
from dataclasses import dataclass

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
SECTOR = 512


def pattern(process, seq, n):
    """The bytes of one operation, as toydb makes them."""
    word = (((seq + 1) * GOLDEN) & MASK) ^ (process << 56)
    return (word.to_bytes(8, "little") * (n // 8 + 1))[:n]


@dataclass
class Op:
    seq: int
    kind: str
    file: int
    offset: int
    length: int
    done: int = 0  # ns of CLOCK_MONOTONIC; 0: not acknowledged


def read_ops(path):
    """(started, operations, errors) of one writer: errors as (errno, ns)."""
    ops, errors, started = [], [], False
    if not os.path.exists(path):
        return started, ops, errors
    with open(path) as f:
        for line in f:
            word = line.split()
            if len(word) != 7 or not line.endswith("\n"):
                continue  # the last words of a killed writer
            seq, number, offset, length, ns = int(word[1]), int(word[3]), *map(int, word[4:])
            if word[0] == "S":
                started = True
            elif word[0] == "B":
                ops.append(Op(seq, word[2], number, offset, length))
            elif word[0] == "A":
                assert ops and ops[-1].seq == seq, line
                ops[-1].done = ns
            elif word[0] == "E":
                errors.append((offset, ns))
    return started, ops, errors


class Writer:
    """The files of one writer: name -> bytes."""

    def __init__(self, process, files):
        self.process = process
        self.names = ["toy-%d-%d.log" % (process, i) for i in range(files)]
        self.files = {}
        self.known = False  # nothing acknowledged yet: not even that the files exist

    def start(self):
        """It said that its files are there."""
        self.known = True
        for name in self.names:
            self.files.setdefault(name, bytearray())

    def apply(self, op):
        name = self.names[op.file]
        if op.kind == "W":
            f = self.files[name]
            if len(f) < op.offset:
                f.extend(bytes(op.offset - len(f)))
            f[op.offset:op.offset + op.length] = pattern(self.process, op.seq, op.length)
        elif op.kind == "T":
            f = self.files[name]
            del f[op.offset:]
            f.extend(bytes(op.offset - len(f)))
        elif op.kind == "R":
            self.files[name + ".old"] = self.files[name]
            self.files[name] = bytearray(pattern(self.process, op.seq, op.length))
        elif op.kind == "U":
            self.files.pop(name + ".old", None)

    def check(self, folder, perhaps):
        """List of what is wrong; takes over what a `perhaps` operation turned out to have done."""
        wrong = []
        for i, name in enumerate(self.names):
            mine = [op for op in perhaps if op.file == i]
            found, old = read(folder, name), read(folder, name + ".old")
            if any(op.kind == "R" for op in mine):
                wrong += self.check_rotated(name, found, old, mine)
            else:
                wrong += self.check_file(name, found, [op for op in mine if op.kind in "WT"])
                gone = any(op.kind == "U" for op in mine) and old is None
                wrong += [] if gone else self.check_file(name + ".old", old, [])
            for key, value in ((name, found), (name + ".old", old)):
                if mine and not wrong:
                    self.files.pop(key, None)
                    if value is not None:
                        self.files[key] = bytearray(value)
        return wrong

    def check_file(self, name, found, perhaps):
        want = self.files.get(name)
        if found == want:
            return []
        if found is None:
            return ["%s is gone" % name] if self.known else []
        if want is None:
            # a creation that nobody acknowledged: at the start, or after a rotation was cut off
            return [] if not found and name in self.names else ["%s should not be there" % name]
        ends = [op.offset + op.length for op in perhaps if op.kind == "W"]
        cuts = [op.offset for op in perhaps if op.kind == "T"]
        low = min([len(want)] + cuts)
        high = max([len(want)] + ends + cuts)
        if not low <= len(found) <= high:
            return ["%s: %d bytes long, %d expected" % (name, len(found), len(want))]
        return self.check_bytes(name, found, want, perhaps)

    def check_bytes(self, name, found, want, perhaps):
        want = bytes(want[:len(found)]) + bytes(max(0, len(found) - len(want)))
        writes = [(op.offset, pattern(self.process, op.seq, op.length))
                  for op in perhaps if op.kind == "W"]
        # a truncate under way zeroes the rest of its last block, whether or not the size follows
        cut = min([op.offset for op in perhaps if op.kind == "T"], default=len(found))
        bad = []
        for at in range(0, len(found), SECTOR):  # most are as wanted, or as one write has them
            end = min(at + SECTOR, len(found))
            part = found[at:end]
            if part == want[at:end] or any(part == data[at - offset:end - offset]
                                           for offset, data in writes if offset <= at):
                continue
            bad += [i for i in range(at, end)
                    if found[i] != want[i] and (i < cut or found[i]) and
                    not any(offset <= i < offset + len(data) and data[i - offset] == found[i]
                            for offset, data in writes)]
        if not bad:
            return []
        i = bad[0]
        return ["%s: %d bytes wrong, first at %d: %s, expected %s" %
                (name, len(bad), i, bytes(found[i:i + 8]).hex(), want[i:i + 8].hex())]

    def check_rotated(self, name, found, old, perhaps):
        """A rotation under way: the old bytes are under one of the two names, whole."""
        new = [pattern(self.process, op.seq, op.length) for op in perhaps if op.kind == "R"]
        others = [op for op in perhaps if op.kind in "WT"]
        if not self.check_file(name, found, others) and not self.check_file(name + ".old", old, []):
            return []
        before = Writer(self.process, 0)
        before.known, before.files = True, {name: self.files[name]}
        if before.check_file(name, old, others):
            return ["%s: its bytes are under neither name while it is rotated" % name]
        # the new one: not there yet, or any part of it, in any order of sectors
        if found is None or any(len(found) <= len(n) and
                                all(b in (0, n[i]) for i, b in enumerate(found)) for n in new):
            return []
        return ["%s: other bytes than its first write has" % name]


def read(folder, name):
    try:
        with open(os.path.join(folder, name), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None
