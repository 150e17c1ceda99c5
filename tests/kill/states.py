# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the jobs of jobs.py find: records that nobody has destaged, after a power cut or a kill, beside a foreign
change, quarantined. Each returns what must be in the files that no stamp checks, {name: bytes}."""
import os

from cases import Agent, Stamp, block
from scene import DOMAIN, require, signal, wait_for


def left_behind(m):
    """Records of four files that nobody has destaged, and one that is unlinked; all programs are dead.

    Returns what must be in the files that no stamp checks."""
    a = Agent(m)
    want = {}
    for name in ("log.7", "log.8", "log.9"):
        fd = a.open(m.path(name), os.O_RDWR | os.O_CREAT)
        a.write_synced(fd, block(1) * 2, 0)
        if name == "log.9":  # a FENCE, and records behind it
            a.ftruncate(fd, 4096)
            a.write_synced(fd, block(2, 512), 1024)
            want[name] = block(1)[:1024] + block(2, 512) + block(1)[1536:]
        elif name == "log.8":
            a.unlink(m.path(name))
        else:
            want["log.6"] = block(1) * 2
            a.rename(m.path(name), m.path("log.6"))
    m.accelerated("log.9")
    s = Stamp(m, threads=2, files=2, count=8)
    m.product.process.send_signal(signal.SIGSTOP)
    s.done()
    require(m.live() > 0, "nothing is live")
    return want


def state_power(m):
    want = left_behind(m)
    m.cut()
    m.reboot()
    return want


def state_killed(m):
    """All processes died and the machine runs on: the control file is there."""
    want = left_behind(m)
    for a in m.agents:
        a.kill()
    m.agents = []
    m.product.kill()
    return want


LOG = "kill"
LINES = "".join("%05d %s\n" % (n, "x" * (n * 37 % 900)) for n in range(60))


def with_log(m):
    """A native log: some records in its segment, some in the lane only."""
    part = len(LINES) // 3
    for data, flushed in ((LINES[:part], True), (LINES[part:], False)):
        r = m.product.command("log", "append", "--create", "--lines", "--domain", DOMAIN, LOG, text=data)
        require(r.returncode == 0, "log append: %s", r.stderr)
        if flushed:
            m.must_flush()


def state_logs(m):
    with_log(m)
    return state_power(m)


def state_logs_killed(m):
    with_log(m)
    return state_killed(m)


def state_foreign(m):
    """Somebody else wrote, more than a second after the last record."""
    want = state_power(m)
    ctime = os.stat(m.path("log.0")).st_ctime

    def foreign():
        fd = os.open(m.path("log.0"), os.O_RDWR)
        os.pwrite(fd, b"foreign" * 100, 60 << 16)
        os.fsync(fd)
        os.close(fd)
        return os.stat(m.path("log.0")).st_ctime > ctime + 2.5
    wait_for("a later ctime", foreign)
    return want


def state_quarantined(m):
    want = state_foreign(m)
    status, words = m.ctl(*m.gate_words())
    require(status == 1 and "quarantined" in words, "gate: exit %d: %s", status, words)
    return want


def state_other_pool(m):
    """A file with the mark of a pool that is gone."""
    want = state_power(m)
    p = m.product
    for folder in (p.pool, p.state):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                os.unlink(path)
    status, words = m.ctl("pool", "create", "--emulate")
    require(status == 0, "pool create: %s", words)
    require(m.marked(), "no file has a mark")
    return want


def state_no_pool(m):
    return {}


def state_old_pool(m):
    """A pool with records, and a lane whose domain has gone on."""
    return state_power(m)
