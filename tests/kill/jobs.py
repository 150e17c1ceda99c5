# SPDX-License-Identifier: LGPL-2.1-or-later
"""Commands that recover or make a pool, and what must hold when one was killed and run again."""
import os

from cases import read
from scene import DOMAIN, PATIENCE, Failed, differs
from states import (LINES, LOG, state_foreign, state_killed, state_logs, state_logs_killed, state_no_pool, state_old_pool, state_other_pool, state_power,
                    state_quarantined)


class Job:
    begin = 0  # part of the events that is left out
    varies = False  # threads: not each run has as many events

    def __init__(self, name, state, words, again=None, start=True, status=0):
        self.name, self.state, self.words, self.start = name, state, words, start
        self.again = again or words
        self.status = status

    def first(self, m, at):
        """The run that is killed there: exit status and words."""
        return m.ctl(*self.words, at=at)

    def complete(self, m, want, base):
        """What is wrong after the last run; base: the contents that an undisturbed run leaves."""
        wrong = m.left_over()
        differing = differs(m.contents(), base)
        if differing:
            wrong.append(differing)
        for name, data in want.items():
            if read(m.path(name)) != data:
                wrong.append("%s is not what was acknowledged" % name)
        try:
            m.check()
        except Failed as e:
            wrong.append(str(e))
        return wrong + self.gate(m)

    def after(self, m):
        """After the undisturbed run."""

    @staticmethod
    def gate(m):
        status, words = m.ctl(*m.gate_words())
        return ["gate: exit %d: %s" % (status, words)] if status else []

    def run_again(self, m, r):
        """The second run, to its end: words for what is wrong."""
        status, words = m.ctl(*self.again)
        return [] if status == self.status else ["run again: exit %d: %s" % (status, words)]


class Quarantine(Job):
    """The gate that finds a foreign change: it stays shut, and the files are protected."""

    def complete(self, m, want, base):
        wrong = []
        # log.6 and log.9, log.0 and log.1: all that have an entry and a name
        if len(m.immutable()) != 4:
            wrong.append("immutable: %s" % m.immutable())
        status, words = m.ctl(*m.gate_words())
        if status != 1 or "somebody else" not in words and "changed" not in words:
            wrong.append("gate: exit %d: %s" % (status, words))
        status, words = m.ctl("recover", "--apply", "--yes=" + DOMAIN, DOMAIN)
        if status:
            wrong.append("apply: exit %d: %s" % (status, words))
        return wrong + super().complete(m, want, m.contents())


class Apply(Job):
    """The next start's gate may come first, or the daemon: they open only when all is in the files."""

    def run_again(self, m, r):
        first = r.choice(("apply", "gate", "daemon"))
        if first == "apply":
            return super().run_again(m, r)
        if first == "daemon":
            m.product.start(PATIENCE)
            status, words = m.product.gate()
            m.product.stop(PATIENCE)
        else:
            status, words = m.ctl(*m.gate_words())
        if status == 0:
            return []
        if "--apply" not in words:  # not decided yet
            return ["gate: exit %d: %s" % (status, words)]
        return super().run_again(m, r)


class ApplyEnd(Apply):
    """Its last steps, and the daemon comes next."""

    begin = 0.95

    def run_again(self, m, r):
        m.product.start(PATIENCE)
        status, words = m.product.gate()
        m.product.stop(PATIENCE)
        return ["gate: exit %d: %s" % (status, words)] if status else []


class Discard(Job):
    def complete(self, m, want, base):
        wrong = m.left_over()
        differing = differs(m.contents(), base)
        kept = os.path.join(m.product.state, "quarantine")
        if not os.path.isdir(kept) or not any(
                os.path.exists(os.path.join(kept, d, "lane")) for d in os.listdir(kept)):
            wrong.append("no copy of the records was kept")
        return wrong + ([differing] if differing else []) + self.gate(m)


class Adopt(Job):
    def complete(self, m, want, base):
        return ["log.6 still has a mark"] if "log.6" in m.marked() else []


class Create(Job):
    """Made by the first run, or by the second; refused in clear words where it is there already."""

    def run_again(self, m, r):
        status, words = m.ctl(*self.again)
        if status == 0 or status == 1 and "holds a pool already" in words:
            return []
        return ["run again: exit %d: %s" % (status, words)]

    def complete(self, m, want, base):
        wrong = []
        status, words = m.ctl("pool", "check")
        if status:
            wrong.append("pool check: exit %d: %s" % (status, words))
        wrong += self.gate(m)
        extra = [n for n in os.listdir(m.product.pool) if n not in m.pool_files]
        if extra:
            wrong.append("left in the pool's folder: %s" % extra)
        return wrong


class CreateForce(Create):
    def run_again(self, m, r):
        status, words = m.ctl(*self.again)
        return [] if status == 0 else ["run again: exit %d: %s" % (status, words)]


class Logs(Job):
    """A native log's records, too, all of them and once; and it goes on."""

    def complete(self, m, want, base):
        wrong = super().complete(m, want, base)
        m.product.start(PATIENCE)
        for data, more in ((LINES, "more\n"), (LINES + "more\n", "")):
            found = m.product.command("log", "cat", "--domain", DOMAIN, LOG).stdout
            if found != data:
                wrong.append("log: %d bytes, %d acknowledged" % (len(found), len(data)))
            if more:
                r = m.product.command("log", "append", "--domain", DOMAIN, LOG, text=more)
                wrong += ["log append: %s" % r.stderr] if r.returncode else []
        r = m.product.command("log", "verify", "--domain", DOMAIN)
        wrong += ["log verify: %s" % (r.stdout + r.stderr)] if r.returncode else []
        m.product.stop(PATIENCE)
        return wrong


class Start(Job):
    """The daemon's start, until every domain is decided."""

    varies = True

    def first(self, m, at):
        m.traced_daemon(at, wait=False)
        ready = m.wait_ready_or_dead()
        m.end_daemon()  # also one that is dying: it may have said that it is ready just before
        return (0 if ready else 137), ""

    def run_again(self, m, r):
        m.product.start(PATIENCE)
        status, words = m.product.gate()
        m.product.stop(PATIENCE)
        return [] if status == self.status else ["gate: exit %d: %s" % (status, words)]


class StartLogs(Start, Logs):
    """The same with a native log."""


class StartQuarantine(Start, Quarantine):
    """The same where it finds a foreign change."""


YES = "--yes=" + DOMAIN
JOBS = [
    Job("gate-power", state_power, ["gate", "root/" + DOMAIN]),
    Job("gate-killed", state_killed, ["gate", "root/" + DOMAIN]),
    Quarantine("gate-foreign", state_foreign, ["gate", "root/" + DOMAIN], status=1),
    Logs("gate-logs", state_logs, ["gate", "root/" + DOMAIN]),
    Apply("apply", state_quarantined, ["recover", "--apply", YES, DOMAIN]),
    ApplyEnd("apply-end", state_quarantined, ["recover", "--apply", YES, DOMAIN]),
    Discard("discard", state_quarantined, ["recover", "--discard", YES, DOMAIN]),
    Adopt("adopt", state_other_pool, ["recover", "--adopt", "LOG6", DOMAIN]),
    Create("create", state_no_pool, ["pool", "create", "--emulate"], start=False),
    Start("start-power", state_power, []),
    Start("start-killed", state_killed, []),
    StartLogs("start-logs", state_logs_killed, []),
    StartQuarantine("start-foreign", state_foreign, [], status=1),
    CreateForce("create-force", state_old_pool, ["pool", "create", "--emulate", "--force", "YES-POOL"]),
]
