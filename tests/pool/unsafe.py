# SPDX-License-Identifier: LGPL-2.1-or-later
"""The device's count of unsafe shutdowns."""
import os

from folder import COUNT, WANT, Folder, gate_with, with_daemon
from cases import DOMAIN, read, require, subprocess
from preloads import build


def unsafe(c):
    """The device's count of unsafe shutdowns, with live records: risen and fallen each in its own words;
    what is not to be had proves nothing and forgets nothing."""
    f = Folder(c)
    library = build(c.box, "tests/pool/usc.c")
    count = os.path.join(c.box.path, "usc")
    env = {"USC_FILE": count}
    risen, fallen = "counted an unsafe shutdown (7 -> 8)", "has fallen"
    rows = [("first seen", ["7"], None), ("the same", ["7", "7"], None), ("risen", ["7", "8"], risen),
            ("fallen", ["7", "6"], fallen), ("to nothing", ["7", "0"], fallen),
            ("not to be had", ["7", ""], None), ("never had", ["", ""], None),
            ("risen behind a gap", ["7", "", "8"], risen), ("told once", ["7", "8", "8"], risen)]
    for what, counts, says in rows:
        for daemon in (False, True):
            COUNT["faults"] += 1
            f.kept.restore()
            for n, value in enumerate(counts):
                with open(count, "w", encoding="ascii") as out:
                    out.write(value)
                last = n == len(counts) - 1
                if daemon and last:
                    status, words = with_daemon(f, library, env, keep=True)
                elif last:
                    status, words = gate_with(f, library, env)
                else:  # opened for writing, its records left alone
                    opened(f, library, env)
            require((status == 0) == (says is None), "%s: gate: exit %d %s", what, status, words)
            if says:
                require(says in words and "recover --apply" in words, "%s: %s", what, words)
                require(says == risen or "unsafe shutdown (" not in words, "%s: %s", what, words)
                require(read(c.path("log.0")) != WANT, "%s: quarantined, and replayed", what)
                r = c.product.command("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
                require(r.returncode == 0, "%s: recover --apply: %s", what, r.stderr)
            f.replayed(what)
            c.product.kill()
    return "%d rows, without and with a daemon" % len(rows)


def opened(f, library, env):
    """Another domain's gate: the pool is opened and closed."""
    p = f.c.product
    r = subprocess.run([p.ctl, "-c", p.config, "gate", "root/nobody"], capture_output=True, text=True,
                       env=dict(os.environ, LD_PRELOAD=library, **env), timeout=60)
    require(r.returncode in (0, 1), "gate of another domain: exit %d %s", r.returncode, r.stderr)
