# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs a daemon (the one with fake domains, or the real one) under pid1 in a folder of its own."""
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))

TOP = os.path.dirname(os.path.dirname(HERE))
FAKE = os.environ.get("PMEMLOGD_FAKE")
REAL = os.environ.get("PMEMLOGD")
CTL = os.environ.get("PMEMLOGCTL")
PID1 = os.environ.get("PID1")

# sanitizer builds: what is a library's own
os.environ.setdefault("LSAN_OPTIONS", "print_suppressions=0:suppressions="
                      + os.path.join(TOP, "tests", "support", "lsan.supp"))

# Bounds of waiting; a loaded machine or a sanitizer takes its time.
PATIENCE = 30.0


class Folder:
    """A configuration and its folders; removed at the end."""

    def __init__(self, **settings):
        self.path = tempfile.mkdtemp(prefix="pmemlogd-outer.")
        os.chmod(self.path, 0o755)
        self.config = os.path.join(self.path, "pmemlogd.conf")
        self.run_dir = os.path.join(self.path, "run")
        self.socket = os.path.join(self.run_dir, "pmemlogd.sock")
        self.pool = os.path.join(self.path, "pool")
        self.state_dir = os.path.join(self.path, "state")
        self.settings = {"pool": '"%s"' % self.pool, "run_dir": '"%s"' % self.run_dir,
                         "state_dir": '"%s"' % self.state_dir, "emulate": "true",
                         "lane_size": '"1MiB"', "log_level": '"debug"'}
        self.write(**settings)

    def write(self, **settings):
        """The configuration anew, with these settings in addition (values as they stand there)."""
        self.settings.update(settings)
        with open(self.config, "w") as f:
            for kv in self.settings.items():
                f.write("%s = %s;\n" % kv)
        os.chmod(self.config, 0o644)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class Daemon:
    """One run. `lines` are pid1's: (seconds, "NAME=VALUE"); `log` is what the daemon wrote."""

    def __init__(self, folder, program=None, watchdog=None, listen=(), journal=False, env=None,
                 arguments=None, prefix=()):
        command = list(prefix) + [PID1]
        if watchdog:
            command += ["--watchdog", str(int(watchdog * 1e6))]
        for what in listen:
            command += ["--listen", what]
        if journal:
            command.append("--journal")
        command += ["--", program or FAKE] + (arguments or ["-c", folder.config])
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("LISTEN_", "NOTIFY_", "WATCHDOG_", "JOURNAL_"))}
        environment.update(env or {})
        self.folder = folder
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL, env=environment)
        self.lines = []
        self.log = []
        self.pid = None
        self._queue = queue.Queue()
        self._threads = [threading.Thread(target=self._read_lines, daemon=True),
                         threading.Thread(target=self._read_log, daemon=True)]
        for t in self._threads:
            t.start()

    def _read_lines(self):
        for line in self.process.stdout:
            usec, text = line.decode().rstrip("\n").split(" ", 1)
            self._queue.put((int(usec) / 1e6, text))
        self._queue.put(None)

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.decode(errors="replace").rstrip("\n"))

    def wait(self, wanted, timeout=PATIENCE):
        """Reads pid1's lines until one begins with `wanted`; returns it. None: the end came first."""
        end = time.monotonic() + timeout
        while True:
            try:
                line = self._queue.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError("no %r within %g s; log:\n%s"
                                     % (wanted, timeout, "\n".join(self.log)))
            if line is None:
                return None
            self.lines.append(line)
            if line[1].startswith("pid "):
                self.pid = int(line[1].split()[1])
            if wanted and line[1].startswith(wanted):
                return line

    def ready(self):
        if self.wait("READY=1") is None:
            raise AssertionError("ended before it was ready:\n%s" % "\n".join(self.log))
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """Reads on to the end; the exit code (128 + N after a signal)."""
        self.wait(None)
        self.process.wait(PATIENCE)
        for t in self._threads:
            t.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.end()

    def names(self):
        """What was notified, in order, names alone, without repeats and the watchdog's."""
        names = []
        for _, text in self.lines:
            name = text.split("=")[0]
            if "=" in text and name != "WATCHDOG" and (not names or names[-1] != name):
                names.append(name)
        return names

    def kill(self):
        if self.process.poll() is None:
            if self.pid:
                try:
                    os.kill(self.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.kill()
            self.process.wait()
        for t in self._threads:
            t.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()

    def log_has(self, text):
        """Waits until the log has it: log and notifications are two streams."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if any(text in line for line in self.log):
                return True
            time.sleep(0.02)
        return False


class OuterTest(unittest.TestCase):
    """A folder for each test, and an end to whatever it started."""

    program = FAKE

    def setUp(self):
        self.folder = Folder()
        self.addCleanup(self.folder.remove)

    def start(self, **kw):
        kw.setdefault("program", self.program)
        d = Daemon(self.folder, **kw)
        self.addCleanup(d.kill)
        return d

    def assertLog(self, daemon, text):
        self.assertTrue(daemon.log_has(text), "%r not in:\n%s" % (text, "\n".join(daemon.log)))


def connectable(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.connect(path)
            return True
        except OSError:
            return False
