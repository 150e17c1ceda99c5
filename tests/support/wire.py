# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon's socket as a test sees it: messages of abi/wire.h, right or wrong on purpose."""
import array
import json
import os
import socket
import struct

MAGIC = 0x4C4D5031
HELLO, REGISTER, STATUS, FLUSH, GATE, RECOVER = range(1, 7)
REQUEST, REPLY, PENDING = range(3)
HEADER = struct.Struct("=IHHQiI")


def header(kind, n, request_id=1, magic=MAGIC, what=REQUEST, status=0):
    return HEADER.pack(magic, kind, what, request_id, status, n)


def packet(kind, body, request_id=1, **kw):
    return header(kind, kw.pop("length", len(body)), request_id, **kw) + body


def hello(domain="test", program="toy", want=1, version=1):
    return struct.pack("=II64s64s", version, want, domain.encode(), program.encode())


def register(path="/nowhere", flags=0):
    return struct.pack("=II512s", flags, 0, path.encode())


def domain(name="", flags=0):
    return struct.pack("=II128s", flags, 0, name.encode())


def recover(name, mode=0):
    return struct.pack("=II128s", mode, 0, name.encode())


class Reply:
    def __init__(self, data, fds):
        (self.magic, self.type, self.kind, self.id, self.status, self.length) = HEADER.unpack_from(data)
        self.body = data[HEADER.size:]
        self.fds = fds

    def words(self, n):
        """The first n 32-bit words of the body."""
        return struct.unpack_from("=%dI" % n, self.body)

    @property
    def text(self):
        return self.body[-512:].split(b"\0")[0].decode() if len(self.body) >= 512 else ""

    def document(self):
        with os.fdopen(os.dup(self.fds[0]), "rb") as f:
            return json.loads(f.read())

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []


class Client:
    def __init__(self, path, timeout=10):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.settimeout(timeout)
        self.s.connect(path)

    def send(self, data, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.s.sendmsg([data], rights)

    def receive(self):
        """One packet; None: the daemon hung up."""
        try:
            data, ancillary, _, _ = self.s.recvmsg(4096, socket.CMSG_SPACE(16))
        except ConnectionResetError:
            return None
        fds = []
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += array.array("i", raw[: len(raw) // 4 * 4])
        return Reply(data, fds) if data else None

    def ask(self, kind, body, request_id=1, fds=()):
        """The final reply; whatever WIRE_PENDING comes first is checked and left out."""
        self.send(packet(kind, body, request_id), fds)
        while True:
            r = self.receive()
            if r is None:
                return None
            assert r.magic == MAGIC and r.type == kind and r.id == request_id, vars(r)
            if r.kind == REPLY:
                return r
            assert r.kind == PENDING and r.length == 0

    def hung_up(self):
        """True if nothing but the end comes any more."""
        while True:
            try:
                r = self.receive()
            except (ConnectionError, BrokenPipeError):
                return True
            except TimeoutError:
                return False
            if r is None:
                return True
            r.close()

    def close(self):
        self.s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
