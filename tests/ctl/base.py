# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the tests of pmemlogctl share: running it, and a pool as a crash leaves it."""
import json
import os
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "daemon"))
import outer
import wire

USER = "root" if os.geteuid() == 0 else str(os.geteuid())


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class CtlTest(outer.OuterTest):
    program = outer.REAL

    def ctl(self, *words, expect=None, config=True, text=None):
        command = [outer.CTL] + (["-c", self.folder.config] if config else []) + list(words)
        kw = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
        r = subprocess.run(command, capture_output=True, text=True, timeout=120, **kw)
        if expect is not None:
            self.assertEqual(r.returncode, expect, r.stdout + r.stderr)
        return r

    def create(self):
        self.ctl("pool", "create", expect=0)

    def daemon(self, **kw):
        self.create()
        return self.start(**kw).ready()


class Left(CtlTest):
    """A lane with a record that its file lacks, as a daemon and a client that died leave it."""

    def leave_record(self, domain="toy", payload=b"committed"):
        d = self.daemon()
        self.file = os.path.join(self.folder.path, "file")
        fd = os.open(self.file, os.O_RDWR | os.O_CREAT)
        os.write(fd, b"old old old old")
        with wire.Client(self.folder.socket) as c:
            r = c.ask(wire.HELLO, wire.hello(domain))
            lane = r.words(2)[1]
            a = c.ask(wire.REGISTER, wire.register(self.file), fds=[fd])
            self.assertEqual(a.status, 0, a.text)
            _, _, low, high = a.words(4)
            os.kill(d.pid, signal.SIGKILL)
            d.end()
            self.put_record(r.fds[1], low | high << 32, payload)
            r.close()
        os.close(fd)
        self.lane = lane
        self.control = os.path.join(self.folder.run_dir, "control", str(lane))
        self.assertTrue(os.path.exists(self.control))

    def put_record(self, lane_fd, file_id, payload):
        ring, incarnation = struct.unpack("<QQ", os.pread(lane_fd, 16, 16))
        tail, = struct.unpack("<Q", os.pread(lane_fd, 8, 64))
        chain, = struct.unpack("<I", os.pread(lane_fd, 4, 80))
        header = struct.pack("<HHQQQQIIQQ", 1, 0, incarnation, tail, file_id, 0, len(payload), chain,
                             time.time_ns(), tail)
        record = struct.pack("<I", crc32c(header + payload)) + header + payload
        os.pwrite(lane_fd, record, 4096 + tail % ring)

    def contents(self):
        with open(self.file, "rb") as f:
            return f.read()


WRITER = """
import os, select, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.write(1, b"open\\n")
n = 0
while not select.select([0], [], [], float(sys.argv[2]))[0]:
    os.pwrite(fd, b"%08d" % n, n % 4096 * 8)
    n += 1
"""


class Shimmed(CtlTest):
    """Programs with the library, under a rule of their own."""

    def rules(self, path, program="python3*"):
        folder = os.path.join(self.folder.path, "preload.d")
        os.makedirs(folder, mode=0o755, exist_ok=True)
        name = os.path.join(folder, "test.ini")
        with open(name, "w") as f:
            f.write("[test]\nprogram = %s\npath = %s\n" % (program, path))
        os.chmod(name, 0o644)
        return folder

    def writer(self, path, pause=0.02, shim=True, rules=None, **env):
        """A process that has `path` open and writes it now and then, until its standard input ends."""
        environment = dict(os.environ, PMEMLOGD_SOCKET=self.folder.socket, PMEMLOGD_DOMAIN="toy",
                           PMEMLOGD_PRELOAD_CONFIG=rules or self.rules(path))
        environment.update(env)
        if shim:
            environment["LD_PRELOAD"] = os.environ["PRELOAD"]
        p = subprocess.Popen([sys.executable, "-c", WRITER, path, str(pause)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.addCleanup(self.end_writer, p)
        self.assertEqual(p.stdout.readline(), b"open\n")
        return p

    def end_writer(self, p):
        if p.poll() is None:
            p.kill()
        p.wait()
        for f in (p.stdin, p.stdout):
            if not f.closed:
                f.close()

    def in_lane(self, path, seconds=60):
        """Until the file is in the lane: on a loaded machine a first attempt to attach may be given up."""
        end = time.monotonic() + seconds
        files = []
        while time.monotonic() < end:
            o = json.loads(self.ctl("status", "--json").stdout)
            files = [(f["path"], f["state"]) for d in o["domains"] for f in d["files"]]
            if (path, "lane") in files:
                return
            time.sleep(0.1)
        self.fail("%s is not in the lane: %s" % (path, files))
