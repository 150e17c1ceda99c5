# SPDX-License-Identifier: LGPL-2.1-or-later
"""Copies of the tree that are broken, built, tested and mended again; one for each job.

They lie in BUILDDIR-mutants/N and stay there, so that the next run builds only what has changed since. (Not in
BUILDDIR: tests look for their programs anywhere below it.) One run at a time has them (a lock).
"""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
BUILD_LIMIT = 600  # seconds for one build
RUN_LIMIT = 300  # seconds for one command on the unbroken tree

running = set()  # process groups of ours
stopping = threading.Event()


def stop():
    """Nothing that was begun outlives us, and nothing more is begun."""
    stopping.set()
    for group in list(running):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass


def place():
    """Where the copies lie; nobody else's while this process lives."""
    path = Path(str(Path(os.environ.get("BUILDDIR") or TOP / "build").resolve()) + "-mutants")
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{path}: another run of mutants is at work there; BUILDDIR=DIR takes another place")
    return path


def files_of_the_tree():
    """Names, relative to TOP: what git knows, and what it would not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode()
    return sorted(name for name in set(listed.split("\0")) if name and (TOP / name).is_file())


class Copy:
    """A tree and its build folder, whole again at the start whatever an earlier run has left there."""

    def __init__(self, top, targets=()):
        """targets: of all the mutants to come, so that no command fails for want of a program that its own does
        not name."""
        self.tree = top / "tree"
        self.build = top / "build"
        self.dirty = set()  # targets that hold, or may hold, a mutant's code
        self.tree.mkdir(parents=True, exist_ok=True)
        self.mend()
        if not (self.build / "build.ninja").exists():
            # a mutant may leave a function or a variable that nothing uses
            options = ["-Dtests=enabled", "-Dwerror=false"]
            setup = ["meson", "setup", str(self.build), str(self.tree), *options]
            self.must(setup)
        if targets:
            self.must(["ninja", "-C", str(self.build), *sorted(targets)])

    def must(self, argv):
        code, output = self.call(argv, 4 * BUILD_LIMIT, self.environ())
        if code:
            raise RuntimeError("the unbroken tree does not build:\n" + output[-2000:])

    def mend(self):
        """Each file as in TOP, and no other. What differs is written anew: its time must be later than what was built of it."""
        names = files_of_the_tree()
        for name in names:
            source, target = TOP / name, self.tree / name
            content, mode = source.read_bytes(), source.stat().st_mode & 0o777
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            target.chmod(mode)
        known = {self.tree / name for name in names}
        for path in self.tree.rglob("*"):
            if path.is_file() and path not in known and "__pycache__" not in path.parts:
                path.unlink()

    def call(self, argv, limit, env=None):
        """Exit code (124: not done in time) and output; its process group does not outlive it."""
        if stopping.is_set():
            raise RuntimeError("stopped")
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(
                argv,
                cwd=self.tree,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            running.add(process.pid)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = 124
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            running.discard(process.pid)
            out.seek(0)
            return code, out.read()

    def environ(self):
        """Tests run this copy's build: a BUILDDIR exported by the caller would win, and nothing be broken.
        The copies share what a compiler cache holds."""
        return dict(
            os.environ, BUILD=str(self.build), BUILDDIR=str(self.build), CCACHE_NOHASHDIR="1"
        )

    def make(self, targets):
        """Exit code and output of a build of these targets."""
        argv = ["ninja", "-C", str(self.build), *sorted(targets)]
        return self.call(argv, BUILD_LIMIT, self.environ())

    def try_command(self, build, command, limit=RUN_LIMIT, broken=False):
        """('passed' | 'failed' | 'late' | 'skipped' | 'no build', last words). broken: a mutant is in the tree."""
        targets = set(build.split())
        if not broken:
            code, output = self.make(targets | self.dirty)
            self.dirty.clear()
        else:
            self.dirty |= targets
            code, output = self.make(targets)
        if code:
            return "no build", output
        argv = [word.replace("$BUILD", str(self.build)) for word in shlex.split(command)]
        code, output = self.call(argv, limit, self.environ())
        return {0: "passed", 77: "skipped", 124: "late"}.get(code, "failed"), output

    def clean(self, build):
        """What an earlier mutant has left in programs that this one does not build is built anew, unbroken."""
        rest = self.dirty - set(build.split())
        if rest:
            code, output = self.make(rest)
            if code:
                raise RuntimeError("the mended tree does not build:\n" + output[-2000:])
            self.dirty -= rest

    def patch(self, path, *options):
        """Exit code and output. No fuzz: a mutant that has to guess its place is one that no longer applies."""
        argv = ["patch", "-p1", "-F0", "--no-backup-if-mismatch", *options, "-i", str(path)]
        return self.call(argv, 10)
