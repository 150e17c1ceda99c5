#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every message as bytes, as it goes between programs and daemon, against wire.txt: run-wire.py [--print]

A relay stands between the daemon's socket and its clients. What differs from run to run (incarnation,
file id, paths, words for people) is zeroed before it is compared. Last line: `wire messages N changed N`.
"""
import array
import os
import select
import socket
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cases"))

from cases import DOMAIN, Agent, Case, block, require  # noqa: E402
from sandbox import Sandbox, need  # noqa: E402

HEADER = 24
NAMES = {1: "HELLO", 2: "REGISTER", 3: "STATUS", 4: "FLUSH", 5: "GATE", 6: "RECOVER"}
# (type, kind): [(offset in the body, bytes)] that differ from run to run
VARIES = {(1, 1): [(8, 8), (16, 512)], (2, 0): [(8, 512)], (2, 1): [(8, 8), (16, 512)],
          (3, 1): [(8, 512)], (4, 1): [(8, 512)], (5, 1): [(8, 512)], (6, 1): [(8, 512)],
          (1, 0): [(72, 64)]}
KINDS = ["request", "reply", "pending"]


class Relay(threading.Thread):
    def __init__(self, path, daemon):
        super().__init__(daemon=True)
        self.path, self.to = path, daemon
        self.seen = {}
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.bind(path)
        self.s.listen(8)

    def run(self):
        pairs = {}
        while True:
            for s in select.select([self.s, *pairs], [], [])[0]:
                if s is self.s:
                    client = s.accept()[0]
                    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                    daemon.connect(self.to)
                    pairs[client], pairs[daemon] = daemon, client
                elif s in pairs and not self.pass_on(s, pairs[s]):
                    other = pairs.pop(s)
                    pairs.pop(other)
                    s.close()
                    other.close()

    def pass_on(self, source, target):
        try:
            data, ancillary, _, _ = source.recvmsg(8192, socket.CMSG_SPACE(16))
        except ConnectionResetError:
            return False
        if not data:
            return False
        fds = array.array("i")
        for _, _, raw in ancillary:
            fds.frombytes(raw)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
        # Noted before: who gets the last answer may be read out at once.
        self.note(data, len(fds))
        target.sendmsg([data], rights)
        for fd in fds:
            os.close(fd)
        return True

    def note(self, data, fds):
        data = bytearray(data)
        kind, what = int.from_bytes(data[4:6], "little"), int.from_bytes(data[6:8], "little")
        data[8:16] = bytes(8)  # the client's number for it
        for at, n in VARIES.get((kind, what), []):
            data[HEADER + at:HEADER + at + n] = bytes(len(data[HEADER + at:HEADER + at + n]))
        name = "%s %s, %d bytes, %d descriptors" % (NAMES.get(kind, kind), KINDS[what], len(data), fds)
        self.seen.setdefault(name, dump(data))


def dump(data):
    """Sixteen bytes a line; lines of zeros are left out."""
    return "".join("    %04x  %s\n" % (at, data[at:at + 16].hex(" "))
                   for at in range(0, len(data), 16) if any(data[at:at + 16]))


def collect(c):
    c.begin(start=False)
    ours = os.path.join(c.product.rundir, "pmemlogd.sock")
    there = os.path.join(c.product.rundir, "daemon.sock")
    config = c.product.config
    with open(config, encoding="ascii") as f:
        text = f.read()
    with open(config + ".daemon", "w", encoding="ascii") as f:
        f.write(text + 'socket = "%s";\n' % there)
    c.product.config = config + ".daemon"
    c.product.start()
    relay = Relay(ours, there)
    relay.start()
    c.product.config = config
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(0), 0)
    require(c.status("log.0")["state"] == "lane", "not registered")
    c.must_flush()
    c.product.gate()
    c.product.command("recover", "--dry-run", DOMAIN)
    return "".join("%s\n%s" % (name, relay.seen[name]) for name in
                   sorted(relay.seen, key=lambda n: (list(NAMES.values()).index(n.split()[0]), n)))


def main():
    need(["mkfs.ext4", "losetup"], "e2fsprogs util-linux")
    with Sandbox("wire") as box:
        c = Case(box, "ext4", 1, "wire")
        try:
            now = collect(c)
        finally:
            c.end()
    if sys.argv[1:] == ["--print"]:
        print(now, end="")
        return 0
    with open(os.path.join(HERE, "wire.txt"), encoding="ascii") as f:
        then = f.read()
    a, b = dict(messages(then)), dict(messages(now))
    changed = [n for n in {**a, **b} if a.get(n) != b.get(n)]
    for n in changed:
        print("%s\nwas:\n%sis:\n%s" % (n, a.get(n, "    nothing\n"), b.get(n, "    nothing\n")))
    print("wire messages %d changed %d" % (len(b), len(changed)))
    return 1 if changed or not b else 0


def messages(text):
    name, lines = None, []
    for line in text.splitlines(keepends=True):
        if not line.startswith(" "):
            if name:
                yield name, "".join(lines)
            name, lines = line.strip(), []
        else:
            lines.append(line)
    yield name, "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
