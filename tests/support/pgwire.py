# SPDX-License-Identifier: LGPL-2.1-or-later
"""As much of PostgreSQL's protocol as the tests need: a connection without password over a unix socket, one
statement at a time as text."""
import os
import socket
import struct

_INTEGERS = (20, 21, 23, 26)  # the types int8, int2, int4, oid


class Error(Exception):
    """What the server answered: .code is the SQLSTATE."""

    def __init__(self, fields):
        self.code = fields.get("C")
        super().__init__("%s %s: %s" % (fields.get("S"), self.code, fields.get("M")))


class Connection:
    """execute() returns the rows: integers as such, all else as text. Also its own cursor."""

    def __init__(self, folder, port=5432, user="postgres", database="postgres", **settings):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.buffer = b""
        try:
            self.socket.connect(os.path.join(folder, ".s.PGSQL.%d" % port))
            words = dict(settings, user=user, database=database)
            body = struct.pack(">I", 196608) + b"".join(
                k.encode() + b"\0" + v.encode() + b"\0" for k, v in words.items()) + b"\0"
            self.socket.sendall(struct.pack(">I", len(body) + 4) + body)
            self._until_ready()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _exactly(self, n):
        while len(self.buffer) < n:
            more = self.socket.recv(1 << 18)
            if not more:
                raise ConnectionError("the server has hung up")
            self.buffer += more
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def _message(self):
        kind, length = struct.unpack(">cI", self._exactly(5))
        return kind, self._exactly(length - 4)

    def _until_ready(self):
        rows, types, error = [], [], None
        while True:
            kind, body = self._message()
            if kind == b"Z":
                break
            if kind == b"R" and body != bytes(4):
                raise ConnectionError("the server asks for a password")
            if kind == b"T":
                types = _types(body)
            elif kind == b"D":
                rows.append(_row(body, types))
            elif kind == b"E":
                error = Error({f[:1].decode(): f[1:].decode(errors="replace")
                               for f in body.split(b"\0") if f})
                if error.code.startswith(("57", "53", "28", "3D")) or error.code == "XX000":
                    raise error  # it hangs up, or nobody can go on from there
        if error:
            raise error
        return rows

    def execute(self, sql):
        body = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack(">I", len(body) + 4) + body)
        return self._until_ready()

    def close(self):
        self.socket.close()


def _types(body):
    n, at, out = struct.unpack_from(">H", body)[0], 2, []
    for _ in range(n):
        at = body.index(b"\0", at) + 1
        out.append(struct.unpack_from(">I", body, at + 6)[0])
        at += 18
    return out


def _row(body, types):
    n, at, out = struct.unpack_from(">H", body)[0], 2, []
    for i in range(n):
        length = struct.unpack_from(">i", body, at)[0]
        at += 4
        if length < 0:
            out.append(None)
            continue
        text = body[at:at + length].decode()
        out.append(int(text) if types[i] in _INTEGERS else text)
        at += length
    return tuple(out)
