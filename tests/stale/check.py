# SPDX-License-Identifier: LGPL-2.1-or-later
"""Holds what happened to a cell against what the design promises (design.py): words, bytes, attributes,
records, exit codes, and what the administrator's three ways out do then."""
import json
import os

from design import REMEDY, verdicts
from world import BLOCK, MARK, OLD, Status, Wrong, immutable, lane_live


class Failed(Exception):
    pass


def require(good, text, *args):
    if not good:
        raise Failed(text % args if args else text)


def _ctl(cell, *words):
    r = cell.world.product.command(*words)
    return r.returncode, (r.stdout + r.stderr).strip()


def _gate(cell):
    return _ctl(cell, "gate", "root/" + cell.domain)


def _recover(cell, how):
    return _ctl(cell, "recover", how, "--yes=root/" + cell.domain, "root/" + cell.domain)


def _dry_run(cell):
    r = cell.world.product.command("recover", "--dry-run", "--json", "root/" + cell.domain)
    try:
        return r.returncode, json.loads(r.stdout)
    except ValueError:
        return r.returncode, {}


def _state(cell):
    r = cell.world.product.command("status", "--json", "root/" + cell.domain)
    d = Status(json.loads(r.stdout)).domain(cell.domain)
    return (d["state"], d["reason"]) if d else ("ok", "")


def _kept(cell):
    """Nothing is put back and nothing dropped."""
    if cell.reachable:
        now = cell.look()
        require(now == cell.before, "bytes changed: %s", _difference(cell.before, now))
    live = lane_live(cell.lane())
    require(live == cell.live, "of %d live bytes in the lane %d are left", cell.live, live)


def _difference(a, b):
    for name in sorted(set(a) | set(b)):
        x, y = a.get(name), b.get(name)
        if x is None or y is None:
            return "%s is %s" % (name, "gone" if y is None else "new")
        if x != y:
            at = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
            return "%s: %d bytes, were %d; at %d %r, was %r" % (name, len(y), len(x), at,
                                                               y[at:at + 4], x[at:at + 4])
    return "no"


def _replayed(cell, which, text):
    """The records of these files (and of no others) are in the bytes now, and nothing else."""
    want = dict(cell.before)
    for i in which:
        name = os.path.basename(cell.inode[i])
        data = bytearray(want[name])
        for at in cell.world.at:
            data.extend(bytes(max(0, at - len(data))))
            data[at:at + BLOCK] = OLD.encode() * BLOCK
        for n in (name, name + ".link"):  # a second name of it, too
            if n in want:
                want[n] = bytes(data)
    now = cell.look()
    require(now == want, "%s: %s", text, _difference(want, now))


def _released(cell):
    """Nothing of ours is left on files and in the lane; the gate is open."""
    code, words = _gate(cell)
    require(code == 0, "gate afterwards: exit %d: %s", code, words)
    require(lane_live(cell.lane()) == 0 or not os.path.exists(cell.lane()), "live records afterwards")
    for i, path in enumerate(cell.inode):
        if path and os.path.exists(path):
            require(not immutable(path), "%s is still immutable", os.path.basename(path))
            require(MARK not in os.listxattr(path), "%s is still marked", os.path.basename(path))
    require(_state(cell)[0] == "ok", "status afterwards: %s", _state(cell))


def _words(cell, verdict, text, where):
    remedy = "hold" if verdict.outcome == "held" else "apply" if verdict.apply else "no apply"
    for word in verdict.row.remedy or REMEDY[remedy]:
        require(word in text, "%s does not say %r: %s", where, word, text)
    for i, row in verdict.failing:
        if cell.paths[i][-40:] in text and any(w in text for w in row.words):
            return
    reasons = ["%s: %s" % (cell.paths[i][-40:], " or ".join(row.words)) for i, row in verdict.failing]
    raise Failed("%s does not name file and reason (%s): %s" % (where, "; ".join(reasons), text))


def _stands(cell, verdict):
    """Held or quarantined: everything is kept, is said, and the gate is shut."""
    state, reason = _state(cell)
    require(state == verdict.outcome, "status says %s (%s)", state, reason)
    _words(cell, verdict, reason, "status")
    code, words = _gate(cell)
    require(code == 1, "gate: exit %d: %s", code, words)
    _words(cell, verdict, words, "gate")
    code, report = _dry_run(cell)
    # what shows at the first byte is not seen by looking
    if verdict.row.name not in ("no space", "no space, late", "read-only"):
        require(code == 1 and report.get("outcome") == verdict.outcome,
                "recover --dry-run: exit %d, %s", code, report.get("outcome"))
    require(report["records"] == len(cell.paths) * len(cell.world.at), "dry run knows of %s records",
            report["records"])
    _kept(cell)
    for i, path in enumerate(cell.inode):
        if path and cell.reachable and cell.sealable:
            require(immutable(path) == (verdict.outcome == "quarantined"), "%s is%s immutable",
                    os.path.basename(path), "" if immutable(path) else " not")
    here = set(os.path.basename(p) for p in cell.inode if p)
    for name in set(cell.before) - here:
        path = os.path.join(cell.folder, name)
        if not name.endswith(".link") and cell.reachable:
            require(not immutable(path), "%s, which is none of ours, is immutable", name)


def _discard(cell):
    code, words = _recover(cell, "--discard")
    require(code == 0, "--discard: exit %d: %s", code, words)
    now = cell.look()
    require(now == cell.before, "--discard changed bytes: %s", _difference(cell.before, now))
    folder = os.path.join(cell.world.product.state, "quarantine")
    kept = [n for n in os.listdir(folder) if n.startswith(cell.domain + "-")]
    require(len(kept) == 1, "--discard kept %s", kept)
    live = lane_live(os.path.join(folder, kept[0], "lane"))
    require(live == cell.live, "the kept lane has %d of %d bytes", live, cell.live)
    require(os.path.exists(os.path.join(folder, kept[0], "report.json")), "no report is kept")
    _released(cell)


def _decide(cell, verdict, apply):
    """The administrator's turn."""
    if int(cell.domain[1:]) % 8 == 0:
        code, words = _ctl(cell, "recover", "--apply", "--yes=other", "root/" + cell.domain)
        require(code == 1, "--apply with a wrong name: exit %d: %s", code, words)
        _kept(cell)
    if not verdict.apply:
        code, words = _recover(cell, "--apply")
        require(code == 1, "--apply is not refused: exit %d: %s", code, words)
        _kept(cell)
        require(_state(cell)[0] == "quarantined", "after a refused --apply: %s", _state(cell))
        _discard(cell)
        return "--apply refused, --discard"
    if not apply:
        _discard(cell)
        return "--discard"
    code, words = _recover(cell, "--apply")
    require(code == 0, "--apply: exit %d: %s", code, words)
    _replayed(cell, range(len(cell.paths)), "--apply")
    _released(cell)
    return "--apply"


def _outcome(cell):
    state, _ = _state(cell)
    return {"ok": "clean"}.get(state, state)


def examine(cell, apply=True, decide=True, lifted=False):
    """Returns what happened, in words; raises Failed. What stands in the way of all (decide False) is taken
    away by the caller, who then calls again: nothing may be decided for good before."""
    allowed = verdicts(cell.facts)
    if lifted:
        _gate(cell)  # a hold is tried again then, or within some seconds
    found = _outcome(cell)
    verdict = next((v for v in allowed if v.outcome == found), None)
    require(verdict, "%s: %s", found, _state(cell)[1])
    if verdict.outcome == "clean":
        _replayed(cell, verdict.replayed, "after recovery")
        _released(cell)
        return "replayed" if verdict.replayed else "dropped"
    _stands(cell, verdict)
    if verdict.outcome == "held" or not decide:
        return str(verdict)
    return "quarantined (%s); %s" % (verdict.row.name, _decide(cell, verdict, apply))


def refused(cell):
    """The pool is another machine's: nothing is touched, and the gate stays shut."""
    for words in (("gate",), ("recover", "--dry-run"), ("recover", "--apply", "--yes=root/" + cell.domain)):
        code, text = _ctl(cell, *words, "root/" + cell.domain)
        require(code != 0, "%s: exit %d: %s", words[0], code, text)
        require("belongs to machine" in text, "%s does not say why: %s", words[0], text)
    _kept(cell)
    return "pool refused"


def expected(cell):
    found = verdicts(cell.facts)
    return ("window: " if len(found) > 1 else "") + " or ".join(str(v) for v in found)


__all__ = ["Failed", "Wrong", "examine", "expected", "refused",
           "require"]
