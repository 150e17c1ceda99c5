# SPDX-License-Identifier: LGPL-2.1-or-later
"""The socket's messages as bytes: pmemlogd-protocol(7), native byte order, no padding.

Each body is a `Body`, a list of fields with their types; names, order and sizes are those of the page.
"""
from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

MAGIC = 0x4C4D5031
VERSION = 1

HELLO = 1
FEATURES = 7
LOG_OPEN = 8
LOG_APPEND = 9
LOG_READ = 10
LOG_TRIM = 11
LOG_SYNC = 12
LOG_STAT = 13
LOG_SEGMENT = 14
LOG_REMOVE = 15
LOG_LIST = 16

REQUEST, REPLY, PENDING = 0, 1, 2

FEATURE_LOGS = 1

LOG_CREATE = 1
LOG_EXCLUSIVE = 2
LOG_READ_ONLY = 4
LOG_RECORDS = 16

PACKET_MAX = 65536
PAYLOAD_MAX = 61440
FOREVER = 0xFFFFFFFF


class Body:
    """A body of fixed size. Types: u32, u64, i32, ... and char[N], u8[N]; as in the page's tables."""

    _CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i"}

    def __init__(self, name: str, *fields: Tuple[str, str]) -> None:
        self.name = name
        self.fields: List[Tuple[str, str]] = list(fields)
        self._struct = struct.Struct("=" + "".join(self._code(t) for _, t in fields))
        self.size = self._struct.size

    @classmethod
    def _code(cls, kind: str) -> str:
        if kind in cls._CODES:
            return cls._CODES[kind]
        element, _, count = kind.rstrip("]").partition("[")
        if element not in ("char", "u8"):
            raise ValueError(kind)
        return count + "s"

    def layout(self) -> List[Tuple[str, int, int]]:
        """(field, offset, bytes) of each field."""
        rows, at = [], 0
        for name, kind in self.fields:
            n = struct.calcsize("=" + self._code(kind))
            rows.append((name, at, n))
            at += n
        return rows

    def pack(self, **values: Any) -> bytes:
        """The body with these values; what is not named is zero. Text that does not fit, with a zero behind
        it, is a ValueError: cut off it would be another name."""
        out = []
        for (name, kind), (_, _, n) in zip(self.fields, self.layout()):
            if "[" not in kind:
                out.append(values.pop(name, 0))
                continue
            value = values.pop(name, b"")
            raw = value.encode() if isinstance(value, str) else bytes(value)
            if kind.startswith("char") and (len(raw) >= n or b"\0" in raw):
                raise ValueError("%s: at most %d bytes, none of them zero" % (name, n - 1))
            if len(raw) > n:
                raise ValueError("%s: at most %d bytes" % (name, n))
            out.append(raw)
        if values:
            raise TypeError("%s has no %s" % (self.name, ", ".join(values)))
        return self._struct.pack(*out)

    def unpack(self, data: bytes, offset: int = 0) -> SimpleNamespace:
        """The fields by name. Bytes that are missing at the end (an older peer) count as zero."""
        raw = bytes(data[offset:offset + self.size]).ljust(self.size, b"\0")
        fields: Dict[str, Any] = {}
        for (name, kind), value in zip(self.fields, self._struct.unpack(raw)):
            if kind.startswith("char"):
                value = value.split(b"\0")[0].decode(errors="replace")
            fields[name] = value
        return SimpleNamespace(**fields)


TEXT = ("text", "char[512]")

HEADER = Body("wire_header", ("magic", "u32"), ("type", "u16"), ("kind", "u16"),
              ("request_id", "u64"), ("status", "i32"), ("length", "u32"))
HELLO_REQUEST = Body("wire_hello", ("version", "u32"), ("want", "u32"), ("domain", "char[64]"),
                     ("program", "char[64]"))
HELLO_REPLY = Body("wire_hello_reply", ("version", "u32"), ("lane", "u32"), ("incarnation", "u64"), TEXT)
DOMAIN = Body("wire_domain", ("flags", "u32"), ("reserved", "u32"), ("domain", "char[128]"))
PLAIN_REPLY = Body("wire_reply", ("exit", "u32"), ("reserved", "u32"), TEXT)
FEATURES_REQUEST = Body("wire_features", ("version", "u32"), ("want", "u32"))
FEATURES_REPLY = Body("wire_features_reply", ("version", "u32"), ("features", "u32"),
                      ("packet_max", "u32"), ("append_max", "u32"), ("outstanding", "u32"),
                      ("logs_max", "u32"), ("reserved", "u8[40]"))
LOG = Body("wire_log", ("flags", "u32"), ("mode", "u32"), ("lsn", "u64"), ("value", "u64"),
           ("timeout_ms", "u32"), ("reserved", "u32"), ("name", "char[64]"), ("domain", "char[128]"))
APPEND = Body("wire_log_append", ("flags", "u32"), ("length", "u32"), ("name", "char[64]"),
              ("domain", "char[128]"))
LOG_REPLY = Body("wire_log_reply", ("id", "u64"), ("lsn", "u64"), ("first", "u64"), ("disk", "u64"),
                 ("durable", "u64"), ("capacity", "u64"), ("record_max", "u32"), ("entry", "u32"),
                 ("slot", "u32"), ("failing", "u32"), TEXT)
LOG_DATA = Body("wire_log_data", ("lsn", "u64"), ("next", "u64"), ("durable", "u64"),
                ("length", "u32"), ("reserved", "u32"), TEXT)
FRAME = Body("segment_frame", ("crc", "u32"), ("length", "u32"), ("lsn", "u64"), ("time_ns", "u64"),
             ("log", "u32"), ("reserved", "u32"))

BODIES = [HEADER, HELLO_REQUEST, HELLO_REPLY, DOMAIN, PLAIN_REPLY, FEATURES_REQUEST, FEATURES_REPLY, LOG,
          APPEND, LOG_REPLY, LOG_DATA, FRAME]

# message: (id, body of the request, body of the reply)
MESSAGES: Dict[str, Tuple[int, Body, Body]] = {
    "HELLO": (HELLO, HELLO_REQUEST, HELLO_REPLY),
    "FEATURES": (FEATURES, FEATURES_REQUEST, FEATURES_REPLY),
    "LOG_OPEN": (LOG_OPEN, LOG, LOG_REPLY),
    "LOG_APPEND": (LOG_APPEND, APPEND, LOG_REPLY),
    "LOG_READ": (LOG_READ, LOG, LOG_DATA),
    "LOG_TRIM": (LOG_TRIM, LOG, LOG_REPLY),
    "LOG_SYNC": (LOG_SYNC, LOG, LOG_REPLY),
    "LOG_STAT": (LOG_STAT, LOG, LOG_REPLY),
    "LOG_SEGMENT": (LOG_SEGMENT, LOG, LOG_REPLY),
    "LOG_REMOVE": (LOG_REMOVE, LOG, LOG_REPLY),
    "LOG_LIST": (LOG_LIST, DOMAIN, PLAIN_REPLY),
}
REPLY_OF = {number: reply for number, _, reply in MESSAGES.values()}


def packet(kind: int, request_id: int, body: bytes, payload: bytes = b"") -> bytes:
    """A request as it goes over the socket."""
    return HEADER.pack(magic=MAGIC, type=kind, kind=REQUEST, request_id=request_id,
                       length=len(body) + len(payload)) + body + payload


def _crc_table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC32C (RFC 3720) of data; crc: that of what stood before it."""
    crc ^= 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
