# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the design promises about a file found after a crash, written down from its pages: the table of
section 7 in its order, guarantees G3 and G5, and the windows that pmemlogd(8), LIMITS, states. Nothing here
was taken from the program.

A file is a dictionary of facts. Changes and conditions alter facts (changes.py, conditions.py);
verdict() says what has to happen.

    mount   one, none, twice, error (it does not answer), readonly, full; "full, late": after the
            first replayed byte
    handle  good, stale (the inode that was registered is gone)
    unlink  True: its database deleted it and said so
    mark    ours, none, foreign
    ctime   known (not later than a second after our last sign of life), older (than registered),
            later, window (beside a live session, or within the second: it may or may not be told)
    clock   right, behind (before the last record)
"""

GOOD = {"mount": "one", "handle": "good", "unlink": False, "mark": "ours", "ctime": "known",
        "clock": "right"}

HOLD, DROP, QUARANTINE, REPLAY = "hold", "drop", "quarantine", "replay"


class Row:
    """One line of the table. words: what the text for people has to speak of, one of them. apply: may
    `recover --apply` overrule it (refused for damage and stale handles)?"""

    def __init__(self, name, fits, do, words=(), apply=False, remedy=None):
        self.name, self.fits, self.do, self.words, self.apply = name, fits, do, words, apply
        self.remedy = remedy


TABLE = [
    Row("not mounted", lambda f: f["mount"] == "none", HOLD, ["not mounted"]),
    Row("mounted twice", lambda f: f["mount"] == "twice", HOLD, ["two devices", "mounted twice"]),
    Row("I/O error", lambda f: f["mount"] == "error", HOLD, ["cannot be read", "error"]),
    Row("stale, UNLINK seen", lambda f: f["handle"] == "stale" and f["unlink"], DROP),
    Row("stale", lambda f: f["handle"] == "stale", QUARANTINE, ["is gone"]),
    Row("mark missing", lambda f: f["mark"] == "none", QUARANTINE, ["not carry", "missing"], True),
    Row("mark foreign", lambda f: f["mark"] == "foreign", QUARANTINE, ["of another"], True),
    Row("ctime older", lambda f: f["ctime"] == "older", QUARANTINE, ["rolled back"], True),
    Row("ctime later", lambda f: f["ctime"] == "later", QUARANTINE, ["somebody else"], True),
    Row("clock behind", lambda f: f["clock"] == "behind", QUARANTINE, ["clock"], True),
    # "no space" belongs to the first line. It shows when the first byte is written and not before, and
    # so does a file system that has turned read-only: a row that is found by looking comes first.
    Row("no space, late", lambda f: f["mount"] == "full, late", QUARANTINE, ["space"], True,
        ["--apply", "half new"]),
    Row("no space", lambda f: f["mount"] == "full", HOLD, ["space"]),
    Row("read-only", lambda f: f["mount"] == "readonly", HOLD, ["ead-only"]),
    Row("otherwise", lambda f: True, REPLAY),
]

# What a text has to offer, by what was decided.
REMEDY = {
    "apply": ["--apply", "--discard"],
    "no apply": ["--discard", "restore"],
    "hold": ["gain when it changes"],
}


def certain(facts):
    """The worlds that the facts stand for: one, or two where a window leaves it open."""
    if facts["ctime"] != "window":
        return [facts]
    return [dict(facts, ctime=c) for c in ("known", "later")]


def row_of(facts):
    return next(r for r in TABLE if r.fits(facts))


class Verdict:
    """outcome: clean, held, quarantined. row: the one that decided. replayed: indices of the files whose
    records are put back."""

    def __init__(self, files):
        rows = [row_of(f) for f in files]
        bad = [r for r in rows if r.do == QUARANTINE]
        wait = [r for r in rows if r.do == HOLD]
        self.replayed = []
        # which files are in the way, and why: any of them may be named
        self.failing = [(i, r) for i, r in enumerate(rows) if r in (bad or wait)]
        # one that fails quarantines the whole domain: replaying the rest would break G3
        if bad:
            self.outcome, self.row = "quarantined", bad[0]
        elif wait:
            self.outcome, self.row = "held", wait[0]
        else:
            self.outcome = "clean"
            self.row = next((r for r in rows if r.do == DROP), rows[0])
            self.replayed = [i for i, r in enumerate(rows) if r.do == REPLAY]
        self.apply = all(r.apply for r in bad)

    def __str__(self):
        return "%s (%s)" % (self.outcome, self.row.name)


def verdicts(files):
    """What may happen to a domain with these files: one verdict, or two in a window."""
    found = [Verdict([])] if not files else []
    worlds = [[]]
    for f in files:
        worlds = [w + [c] for w in worlds for c in certain(f)]
    for w in worlds:
        v = Verdict(w)
        if str(v) not in [str(x) for x in found]:
            found.append(v)
    return found
