#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""pmemlogd-protocol(7) and the Python client against the headers: run-protocol.py ABI_LAYOUT PAGE

ABI_LAYOUT --print says what the compiler makes of abi/wire.h, abi/log.h and messages.def. Both ways: no message and
no field is missing on either side. Last line: `protocol messages N fields N wrong N`.
"""
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "client", "python"))

from pmemlogd import wire  # noqa: E402

WIDTH = {"u8": 1, "char": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8}
wrong = []


def differs(what, page, headers):
    if page != headers:
        wrong.append("%s: %s, headers say %s" % (what, page, headers))


class Headers:
    def __init__(self, program):
        self.fields, self.sizes, self.messages, self.numbers = {}, {}, {}, {}
        for line in subprocess.check_output([program, "--print"], text=True).splitlines():
            words = line.split()
            if line.count(":"):
                wrong.append(line)  # a hole, a field that is not listed
            elif words[0] == "message":
                self.messages[words[1]] = tuple(int(w) for w in words[2:])
            elif words[0] == "struct":
                self.sizes[words[1]] = int(words[2])
            elif "." in words[0]:
                struct, field = words[0].split(".")
                self.fields.setdefault(struct, []).append((field, int(words[1]), int(words[2])))
            elif words[1].isdigit():
                self.numbers[words[0]] = int(words[1])


def type_bytes(kind):
    m = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", kind)
    return WIDTH[m.group(1)] * int(m.group(2) or 1)


def page_tables(text):
    """{struct: [(field, offset, bytes)]}"""
    tables, struct = {}, None
    for line in text.splitlines():
        m = re.match(r"\.Em struct (\w+)$", line)
        if m:
            struct = m.group(1)
            tables.setdefault(struct, [])
        elif line == ".El":
            struct = None
        m = re.match(r"\.It (\d+) Ta (\S+) Ta (\w+) Ta ", line)
        if m and struct:
            tables[struct].append((m.group(3), int(m.group(1)), type_bytes(m.group(2))))
    return {s: rows for s, rows in tables.items() if rows}


def page_messages(text):
    """{name: (number, request, answer, admins)}"""
    rows = re.findall(r"^\.It (\d+) Ta ([A-Z_]+) Ta (wire_\w+) Ta (wire_\w+) Ta (all|admins)$", text, re.M)
    return {name: (int(n), q, a, int(who == "admins")) for n, name, q, a, who in rows}


def check_page(text, h):
    tables = page_tables(text)
    ours = {s for s in h.fields if s.startswith("wire_")} | {"segment_frame"}
    differs("structs", sorted(tables), sorted(ours))
    for struct in sorted(ours & set(tables)):
        differs("struct " + struct, tables[struct], h.fields[struct])
    messages = page_messages(text)
    differs("messages", list(messages), list(h.messages))
    for name, (number, request, answer, admin) in messages.items():
        differs(name, (number, h.sizes.get(request), h.sizes.get(answer), admin), h.messages.get(name))
    n = h.numbers
    for phrase in ["magic Ta 0x%08x: the bytes" % n["WIRE_MAGIC"],
                   "kind Ta %d request, %d reply, %d pending" % (n["WIRE_REQUEST"], n["WIRE_REPLY"],
                                                                  n["WIRE_PENDING"]),
                   "a header of %d bytes" % h.sizes["wire_header"],
                   "version Ta what HELLO has to name: %d" % n["CTL_VERSION"],
                   "features Ta %d: native logs" % n["WIRE_FEATURE_LOGS"],
                   "longest packet: %d" % n["WIRE_LOG_MAX"],
                   "LOG_APPEND takes: %d" % n["WIRE_LOG_PAYLOAD"],
                   "bytes of payload, 1 to %d" % n["WIRE_LOG_PAYLOAD"],
                   "bytes wanted, 1 to %d" % n["WIRE_LOG_PAYLOAD"],
                   "open at a time: %d" % n["CTL_LOGS"],
                   "A packet: %d bytes" % n["WIRE_LOG_MAX"], "their answers: %d" % n["WIRE_MAX"],
                   "LOG_OPEN: %d create, %d exclusive, %d read only. LOG_READ: %d records" % (
                       n["WIRE_LOG_CREATE"], n["WIRE_LOG_EXCLUSIVE"], n["WIRE_LOG_READ_ONLY"],
                       n["WIRE_LOG_RECORDS"]),
                   "a header of %d bytes; frames" % n["SEGMENT_HEADER_BYTES"],
                   "mode Ta %d dry run, %d apply, %d discard, %d adopt" % tuple(
                       n["WIRE_RECOVER_" + x] for x in ("DRY_RUN", "APPLY", "DISCARD", "ADOPT")),
                   "want Ta %d: send the descriptors" % n["WIRE_WANT_LANE"]]:
        if phrase not in text:
            wrong.append("the page does not say %r" % phrase)
    limits = open(os.path.join(TOP, "daemon", "session", "server.h"), encoding="ascii").read()
    for name, phrase in [("SERVER_OUTSTANDING", "A connection: %s requests under way"),
                         ("SERVER_OUTSTANDING", "While %s of a connection are under way"),
                         ("SERVER_OUTSTANDING", "that are under way at a time: %s"),
                         ("SERVER_PEER_CONNECTIONS", "A user: %s connections"),
                         ("SERVER_PEER_DOMAINS", " connections, %s domains")]:
        value = re.search(r"#define %s\s+(\d+)u" % name, limits).group(1)
        if phrase % value not in text:
            wrong.append("the page does not say %r" % (phrase % value))
    return len(messages), sum(len(rows) for rows in tables.values())


def check_example(text):
    """The packet of the page is the one that the client makes."""
    data = wire.packet(wire.LOG_APPEND, 7, wire.APPEND.pack(length=5, name="wal"), b"hello")
    ours = ["%04x  %s" % (i, data[i:i + 16].hex(" ")) for i in range(0, len(data), 16)
            if any(data[i:i + 16])]
    differs("example", re.findall(r"^\d\d[\da-f]{2}  [\da-f ]+$", text, re.M), ours)


def check_client(h):
    for body in wire.BODIES:
        differs("Python " + body.name, body.layout(), h.fields.get(body.name))
        differs("Python " + body.name, body.size, h.sizes.get(body.name))
    for name, (number, request, answer) in wire.MESSAGES.items():
        differs("Python " + name, (number, request.size, answer.size), h.messages.get(name, ())[:3])
    for ours, name in [(wire.MAGIC, "WIRE_MAGIC"), (wire.VERSION, "CTL_VERSION"),
                       (wire.REQUEST, "WIRE_REQUEST"), (wire.REPLY, "WIRE_REPLY"),
                       (wire.PENDING, "WIRE_PENDING"), (wire.FEATURE_LOGS, "WIRE_FEATURE_LOGS"),
                       (wire.LOG_CREATE, "WIRE_LOG_CREATE"), (wire.LOG_EXCLUSIVE, "WIRE_LOG_EXCLUSIVE"),
                       (wire.LOG_READ_ONLY, "WIRE_LOG_READ_ONLY"), (wire.LOG_RECORDS, "WIRE_LOG_RECORDS"),
                       (wire.PACKET_MAX, "WIRE_LOG_MAX"), (wire.PAYLOAD_MAX, "WIRE_LOG_PAYLOAD")]:
        differs("Python " + name, ours, h.numbers.get(name))


def main():
    h = Headers(sys.argv[1])
    with open(sys.argv[2], encoding="ascii") as f:
        text = f.read()
    messages, fields = check_page(text, h)
    check_example(text)
    check_client(h)
    for line in wrong:
        print(line)
    print("protocol messages %d fields %d wrong %d" % (messages, fields, len(wrong)))
    return 1 if wrong or not messages or not fields else 0


if __name__ == "__main__":
    sys.exit(main())
