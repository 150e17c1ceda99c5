# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pages that cannot be read, at the start and while sessions live."""
import os

from folder import COUNT, Folder, gate_with, with_daemon
from cases import Agent, block, read, require, time, wait_for
from preloads import build


def poison(c):
    """A page that cannot be read: harmless where it holds nothing, else named; nothing crashes."""
    f = Folder(c)
    library = build(c.box, "tests/pool/poison.c")
    size = os.path.getsize(f.pool)
    pages = [("pool/pool", n) for n in (0, 4096, 8192, 65536, 65536 + 4096, 327680, 327680 + 4096,
                                        size - 4096)]
    pages += [("lane-000001", n) for n in (0, 4096, 8192, 12288, 16384, 20480, 524288, 1048576)]
    named = 0
    for name, at in pages + [("pool/pool", None), ("lane-000001", None)]:
        for daemon in (False, True):
            COUNT["faults"] += 1
            f.kept.restore()
            where = "%s:%d:%d" % (name, at or 0, 4096 if at is not None else 1 << 30)
            env = {"POISON": where}
            before, file = f.sums(), read(c.path("log.0"))
            if daemon:
                status, words = with_daemon(f, library, env)
            else:
                status, words = gate_with(f, library, env)
            if status == 0:
                f.replayed(where)
                continue
            named += 1
            require(status == 1, "%s: exit %d %s", where, status, words)
            require("lane" in words or "file id" in words or c.product.pool in words,
                    "%s: not named: %s", where, words)
            require(read(c.path("log.0")) == file, "%s: the file was changed", where)
            if "nothing was changed" in words:
                require(f.sums() == before, "%s: bytes were changed", where)
    require(named >= 8, "only %d of the pages were noticed", named)
    return "%d pages, %d times named" % (len(pages), named)


def running(c):
    """Poison that comes while sessions live: the daemon stays, its domain is named; a client that stores
    into it dies by SIGBUS and has got no acknowledgement."""
    library = build(c.box, "tests/pool/poison.c")
    for where in (0, 4096, 8192, 16384):
        for victim in ("daemon", "client"):
            COUNT["faults"] += 1
            when = os.path.join(c.box.path, "now-%d-%s" % (where, victim))
            env = {"POISON": "lane-000001:%d:%d" % (where, 1 << 30), "POISON_WHEN": when}
            survive(c, library, env, when, victim)
            c.end()
    c.begin(destage_age="3600s", lane_size="1MiB")
    return "4 places, daemon and client"


def survive(c, library, env, when, victim):
    c.begin(start=False, destage_age="200ms", lane_size="1MiB")
    if victim == "daemon":
        c.product.preload, c.product.preload_env = library, env
    c.product.start()
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    done = 0
    for n in range(40):
        if n == 10:
            with open(when, "w"):
                pass
            if victim == "client":  # beyond the file's end: for daemon and client alike
                os.truncate(c.product.lanes()[0], int(env["POISON"].split(":")[1]))
            time.sleep(0.1)
        try:
            a.write_synced(fd, block(n, 512), n * 512)
            done += 1
        except (EOFError, OSError, BrokenPipeError):
            break
        except Exception as e:
            require(victim == "client", "%s: %s", env, e)
            break
        time.sleep(0.02)
    require(c.product.alive(), "%s: the daemon died", env)
    if victim == "client":
        require(done < 40, "%s: stores into poison were acknowledged", env)
        require(a.process.wait() == -7, "%s: exit %s", env, a.process.returncode)
    else:
        require(done == 40, "the client was stopped after %d", done)
        if env["POISON"].split(":")[1] != "0":
            return  # what its files hold already it need not read
        d = wait_for("the lane is named", lambda: c.status()["state"] != "ok" and c.status())
        require("lane" in d["reason"] or "damaged" in d["reason"], "not named: %s", d)
    b = Agent(c)
    other = b.open(c.path("other.0"), os.O_RDWR | os.O_CREAT)
    b.write_synced(other, b"x", 0)
    b.kill()
    require(c.product.alive(), "%s: the daemon died", env)
    have = read(c.path("log.0"))
    require(have[:done * 512] == b"".join(block(n, 512) for n in range(done)), "bytes are missing")
