# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the tests of the preload library share: a daemon of their own, and programs under it."""
import fcntl
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from product import Pmemlogd, default_builddir, find  # noqa: E402

DOMAIN = "preload"
RULES = """[preload-test]
program = same*, signals, writer, python3*
path = */log.[0-9]*
exclude = */excluded/*
"""


class Preload(Pmemlogd):
    """A daemon and the environment for programs that take the library."""

    def __init__(self, box, **kw):
        kw.setdefault("user", "root")
        super().__init__(box, default_builddir(), DOMAIN, **kw)
        rules = os.path.join(self.rules, "test.ini")
        with open(rules, "w", encoding="ascii") as f:
            f.write(RULES)
        os.chmod(rules, 0o644)

    def environment(self, renamed=False):
        env = dict(os.environ, **self.env())
        if renamed:
            env["LD_PRELOAD"] = self.library + ".not-there"
        return env

    def file(self, path):
        """Entry of one file in the status, or None."""
        path = os.path.realpath(path)
        for f in self.status().files(DOMAIN):
            if f["path"] == path:
                return f
        return None

    def records(self):
        d = self.status().domain(DOMAIN)
        return d["records"] if d else 0

    def restart(self):
        self.start()


class Writer:
    """tests/preload/writer.c under the library; each method returns (result, error, microseconds)."""

    def __init__(self, preload, trace=None, before=None):
        env = preload.environment()
        argv = [find(default_builddir(), "writer")]
        if trace:
            # the library is for the traced program alone
            env["TRACE_PRELOAD"] = env.pop("LD_PRELOAD")
            argv = [find(default_builddir(), "trace"), trace] + argv
        self.trace = trace
        self.process = subprocess.Popen(argv, text=True, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=before)
        preload.box.children.append(self.process)

    def __call__(self, *words):
        self.send(*words)
        return self.answer()

    def send(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline().split()
        if len(line) != 3:
            raise RuntimeError("writer: ended, exit %s" % self.process.wait())
        return int(line[0]), line[1], int(line[2])

    def must(self, *words):
        result, error, took = self(*words)
        if result < 0:
            raise RuntimeError("%s: %s" % (words, error))
        return took

    def calls(self, *words):
        """The system calls on files that one command makes: a list of "name flags"."""
        with open(self.trace, encoding="ascii") as f:
            f.seek(0, os.SEEK_END)
            self.must(*words)
            return ["%s %s" % (name, flags) for name, _, flags in map(str.split, f)]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def wait_for(what, condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("not within %d s: %s" % (seconds, what))
        time.sleep(0.05)


class Check:
    """Counts what went wrong; a test goes on after it."""

    def __init__(self):
        self.failed = 0

    def __call__(self, good, text, *args):
        if not good:
            self.failed += 1
            print("FAILED: " + text % args if args else "FAILED: " + text, flush=True)
        return good


def token_of(preload, path):
    st = os.stat(path)
    return os.path.join(preload.rundir, "bypass",
                        "%d:%d-%d" % (os.major(st.st_dev), os.minor(st.st_dev), st.st_ino))


def token_held(preload, path):
    try:
        fd = os.open(token_of(preload, path), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def in_lane(preload, path):
    f = preload.file(path)
    return f is not None and f["state"] == "lane"


def keep_writing_until(preload, writer, slot, path, what, seconds=10):
    """A file comes back at a write, so there have to be some."""
    def tried():
        writer.must("pwrite", slot, 100, 0)
        return in_lane(preload, path)
    wait_for("%s: %s in the lane" % (what, os.path.basename(path)), tried, seconds)


def fresh(preload, start=True):
    """A new pool in a running daemon (or none yet); returns a new folder for files."""
    if preload.alive():
        preload.kill()
    preload.create()
    if start:
        preload.start()
    fresh.count += 1
    return preload.box.folder("data", str(fresh.count))


fresh.count = 0
