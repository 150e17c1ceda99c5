# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pool and state folder as a whole, cut off, blank, older, another's: refused, and no byte is changed."""
import os
import shutil

from folder import COUNT, Folder, blank, remedy_of, replace
from cases import DOMAIN, read, require
from kept import RECORDS, patch


def row(f, what, harm, says, remedy):
    """One row of what must be refused as a whole."""
    print("  " + what, flush=True)
    c = f.c
    COUNT["faults"] += 1
    f.kept.restore()
    harm(f)
    before, file = f.sums(), read(c.path("log.0"))
    status, words = c.product.gate()
    code, err = f.try_start()
    try:
        require(status == 1, "%s: gate: exit %d %s", what, status, words)
        require(code not in (0, -11, -7, -6), "%s: daemon: exit %d %s", what, code, err)
        for text in (words, err):
            require(says in text and c.box.path in text, "%s: \"%s\" not in: %s", what, says, text)
        require(f.sums() == before, "%s: refused, and bytes were changed", what)
        require(read(c.path("log.0")) == file, "%s: the file was changed", what)
        if what in ("blank", "older state"):
            f.mapped_away(what)
        if remedy == "put back":
            f.put_back()
        else:
            remedy_of(words)
        status, words = c.product.gate()
        require(status == 0, "%s: the remedy does not help: %s", what, words)
        f.replayed(what)
    except Exception:
        COUNT["wrong"] += 1
        raise


def older_copy(f):
    """The pool as it was before a daemon had it."""
    c = f.c
    older = os.path.join(c.product.memory, "older")
    shutil.rmtree(older, ignore_errors=True)
    shutil.copytree(c.product.pool, older)
    shutil.copyfile(f.state, f.state + "-")
    f.state_set(generation=2)


def machine(f):
    with open(os.path.join(f.c.product.state, "machine-id"), "w") as out:
        out.write("%032x\n" % 0x1234)


def refused(c):
    """Pool and state folder: refused as a whole."""
    f = Folder(c)
    size = os.path.getsize(f.pool)
    back = "put back"
    rows = [("cut to %d" % n, lambda f, n=n: os.truncate(f.pool, n), "cut off" if n >= 8192 else "", back)
            for n in (0, 100, 4096, 8192, 65536, size // 2, size - 1)]
    rows += [
        ("blank", lambda f: blank(f.pool), "blank", back),
        ("gone", lambda f: os.unlink(f.pool), "holds no pool", back),
        ("symlink", lambda f: replace(f.pool, "symlink"), "no regular file", back),
        ("fifo", lambda f: replace(f.pool, "fifo"), "no regular file", back),
        ("folder", lambda f: replace(f.pool, "folder"), "no regular file", back),
        ("older pool", older_copy, "older copy of this pool", back),
        ("older state", lambda f: f.state_set(generation=-2), "older copy", "echo"),
        ("another pool", lambda f: f.state_set(uuid=b"%032x" % 77), "another one is mounted", "echo"),
        ("no mirror", lambda f: os.unlink(f.state), "is missing", "echo"),
        ("damaged mirror", lambda f: patch(f.state, 3, b"\xff"), "is damaged", "echo"),
        ("another machine", machine, "belongs to machine", "echo"),
        ("newer version", lambda f: f.superblock(8, 2), "version 2", back),
        ("older version", lambda f: f.superblock(8, 0), "version 0", back),
        ("incompatible bit", lambda f: f.superblock(32, 1 << 7), "does not know", back),
        ("read-only bit", lambda f: f.superblock(28, 1 << 3), "only read", back),
        ("lane without a domain", lambda f: patch(f.pool, 65536, bytes(1024)), "no domain", back),
        ("another lane without a domain, and an empty one", two_orphans, "no domain", back),
    ]
    for what, harm, says, remedy in rows:
        row(f, what, harm, says, remedy)
    # What its name calls compatible, and what is nobody's, is no matter.
    for what, harm in (("compatible bit", lambda f: f.superblock(24, 1 << 5)),
                       ("foreign file", lambda f: shutil.copyfile(f.lane, f.lane + ".old"))):
        COUNT["faults"] += 1
        f.kept.restore()
        harm(f)
        status, words = c.product.gate()
        require(status == 0, "%s: %s", what, words)
        f.replayed(what)
    two_daemons(f)
    return "%d rows" % len(rows)


def two_orphans(f):
    """What may be removed (nothing was ever appended to it) must still be there after a refusal."""
    lane = os.path.join(os.path.dirname(f.lane), "lane-000002")
    with open(lane, "wb") as out:
        out.truncate(os.path.getsize(f.lane))
    os.chmod(lane, 0o600)
    shutil.copyfile(lane, lane.replace("02", "77"))
    patch(f.pool, 65536, bytes(1024))


def two_daemons(f):
    COUNT["faults"] += 1
    f.kept.restore()
    f.c.product.start()
    code, err = f.try_start()
    require(code not in (0, -7, -11) and str(f.c.product.process.pid) in err,
            "second daemon: exit %d %s", code, err)
    f.replayed("two daemons")
    f.c.product.kill()


def force(c):
    """pool create --force says whose records would go, and wants the path for it."""
    f = Folder(c)
    f.kept.restore()
    before = f.sums()
    for words in ([], ["--yes=" + DOMAIN], ["--yes=" + c.product.pool + "/"]):
        COUNT["faults"] += 1
        r = c.product.command("pool", "create", "--force", *words)
        require(r.returncode == 1, "%s: exit %d %s", words, r.returncode, r.stderr)
        for text in ("root/" + DOMAIN, "uid 0", "%d records" % RECORDS, "log.0", "--yes="):
            require(text in r.stderr, "%s: \"%s\" not in: %s", words, text, r.stderr)
        require(f.sums() == before, "%s: bytes were changed", words)
    os.truncate(f.pool, 4096)
    r = c.product.command("pool", "create", "--force")
    require(r.returncode == 1 and "cannot be told" in r.stderr, "damaged: %d %s", r.returncode, r.stderr)
    r = c.product.command("pool", "create", "--force", "--yes=" + c.product.pool)
    require(r.returncode == 0, "with the path: %s", r.stderr)
    r = c.product.command("pool", "create", "--force")
    require(r.returncode == 0, "without a record: %s", r.stderr)
    os.truncate(f.state, 3)
    os.unlink(f.pool)
    r = c.product.command("pool", "create")
    require(r.returncode == 1 and "pool.state" in r.stderr, "damaged mirror: %s", r.stderr)
    return "named, and asked for"
