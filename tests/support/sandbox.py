# SPDX-License-Identifier: LGPL-2.1-or-later
"""A place of its own for a test: folder, mount namespace, processes that end with it.

Nothing outside is touched: mounts are private and vanish with the process, every child gets SIGKILL
when the harness dies (PR_SET_PDEATHSIG), the folder is removed at the end.
"""
import ctypes
import importlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIP = 77  # exit status of a test that could not run here; meson and make test know it

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x4000 | 0x40000


def skip(reason):
    """Ends the program as 'skipped'; the reason is what make test prints."""
    print("SKIP: %s" % reason, flush=True)
    sys.exit(SKIP)


def need(programs, packages):
    """Skips when we are not root or a program is missing (packages: what brings them)."""
    if os.geteuid() != 0:
        skip("needs root (loop devices, mounts, another user's processes)")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    os.environ["PATH"] = path
    missing = [p for p in programs if not shutil.which(p, path=path)]
    if missing:
        skip("missing %s (packages: %s)" % (", ".join(missing), packages))


def engine(name):
    """The module tests/support/NAME.py of a database; skips when what it needs of python is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        skip("python3-%s is not installed" % e.name)


def die_with_parent():
    """For preexec_fn: the kernel kills the child when the harness (its main thread) ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def private_mounts():
    """Moves this process into a mount namespace whose mounts nobody else sees."""
    if _libc.unshare(_CLONE_NEWNS) != 0:
        skip("no mount namespace: %s" % os.strerror(ctypes.get_errno()))
    if _libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None) != 0:
        skip("mounts cannot be made private: %s" % os.strerror(ctypes.get_errno()))


def run(argv, **kw):
    """Runs a command to its end; on failure raises with its output in the message."""
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.STDOUT)
    kw.setdefault("stdin", subprocess.DEVNULL)
    r = subprocess.run(argv, text=True, **kw)
    if r.returncode:
        raise RuntimeError("%s: exit %d\n%s" % (" ".join(argv), r.returncode, r.stdout or ""))
    return r.stdout


def wait_end(process, seconds, *others):
    """Returns when the process has ended: its exit status; or None when one of the other descriptors
    can be read before. Popen.wait(timeout) sleeps, up to 50 ms at a time; this does not."""
    if process.poll() is None:
        fd = os.pidfd_open(process.pid)
        poll = select.poll()
        for one in (fd, *others):
            poll.register(one, select.POLLIN)
        try:
            ready = poll.poll(max(0, seconds) * 1000)
        finally:
            os.close(fd)
        if not ready:
            raise subprocess.TimeoutExpired(process.args, seconds)
        if fd not in [one for one, _ in ready]:
            return None
    return process.wait()


class Child:
    """A forked python function, with as much of Popen's face as is needed here."""

    def __init__(self, pid):
        self.pid = pid
        self.returncode = None

    def poll(self, flags=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        return self.poll(0)

    def send_signal(self, sig):
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Sandbox:
    """`with Sandbox("powercut") as box:` - box.path is the folder, on a real disk by default."""

    def __init__(self, name, base="/var/tmp", keep=False):
        self.keep = keep
        self.children = []
        self.mounts = []
        private_mounts()
        self.path = tempfile.mkdtemp(prefix="pmemlogd-%s." % name, dir=base)
        os.chmod(self.path, 0o755)  # the database runs as another user
        # SIGTERM (make, CI, timeout) unwinds like ^C, so that the folder goes
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind not in (None, SystemExit, KeyboardInterrupt):
            self.tails()
        self.close()

    def folder(self, *names, mode=0o755, owner=None):
        path = os.path.join(self.path, *names)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        if owner:
            shutil.chown(path, owner, owner)
        return path

    def tmpfs(self, name, size="512m"):
        """A tmpfs of our own: the emulated pool, acknowledgements, run folders."""
        path = self.folder(name)
        run(["mount", "-t", "tmpfs", "-o", "mode=0755,size=%s" % size, "tmpfs", path])
        self.mounts.append(path)
        return path

    def spawn(self, argv, log=None, enter=None, **kw):
        """Starts a program whose output goes to the file `log` in the folder. enter: called in the
        child first."""
        def before():
            if enter:
                enter()
            die_with_parent()

        out = open(os.path.join(self.path, log), "ab") if log else subprocess.DEVNULL
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                             preexec_fn=before, **kw)
        if log:
            out.close()
        self.children.append(p)
        return p

    def fork(self, function, *args):
        """Runs function(*args) in a forked child, which ends when the function returns."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                die_with_parent()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                status = function(*args) or 0
            except KeyboardInterrupt:
                pass
            except BaseException as e:  # the child must never run the parent's cleanup
                print("%s: %r" % (function.__name__, e), file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        child = Child(pid)
        self.children.append(child)
        return child

    def forget(self, child):
        if child in self.children:
            self.children.remove(child)

    def tails(self, lines=15):
        """Prints the ends of all logs in the folder: what one needs after a failure."""
        for name in sorted(os.listdir(self.path)):
            if not name.endswith(".log"):
                continue
            with open(os.path.join(self.path, name), errors="replace") as f:
                text = f.read().splitlines()[-lines:]
            if text:
                print("---- %s\n%s" % (name, "\n".join(text)), file=sys.stderr)

    def close(self):
        for c in self.children:
            try:
                c.send_signal(signal.SIGCONT)
                c.kill()
                c.wait()
            except (OSError, ChildProcessError):
                pass
        self.children = []
        if self.keep:  # what lies in memory would go with the mounts
            for m in self.mounts:
                subprocess.run(["cp", "-a", m, m + ".kept"], stderr=subprocess.DEVNULL)
        for m in reversed(self.mounts):
            for _ in range(50):
                if subprocess.run(["umount", m], stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.05)
            else:
                subprocess.run(["umount", "-l", m], stderr=subprocess.DEVNULL)
        self.mounts = []
        if self.keep:
            print("kept: %s" % self.path, file=sys.stderr)
        else:
            # A quarantine seals its files: they would stay.
            subprocess.run(["chattr", "-R", "-f", "-i", self.path], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
            shutil.rmtree(self.path, ignore_errors=True)


class Inner:
    """A folder within a sandbox, with the sandbox's face."""

    def __init__(self, box, name):
        self._box = box
        self.path = box.folder(name)
        self._mounts = []

    def folder(self, *names, **kw):
        return self._box.folder(os.path.basename(self.path), *names, **kw)

    def tmpfs(self, name, size="512m"):
        path = self._box.tmpfs(os.path.join(os.path.basename(self.path), name), size)
        self._mounts.append(path)
        return path

    def spawn(self, argv, log=None, **kw):
        return self._box.spawn(argv, log and os.path.join(os.path.basename(self.path), log), **kw)

    def __getattr__(self, name):
        return getattr(self._box, name)

    def leave(self):
        for path in reversed(self._mounts):
            subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL)
            self._box.mounts.remove(path)
        subprocess.run(["rm", "-rf", self.path])


def cpu_seconds(pid):
    """User and system time of a process, its threads and the children that it has waited for, from /proc
    (10 ms steps)."""
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return sum(int(n) for n in fields[11:15]) / os.sysconf("SC_CLK_TCK")
