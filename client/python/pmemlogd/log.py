# SPDX-License-Identifier: LGPL-2.1-or-later
"""One log: what pmemlogd_append(3) and its relatives do, over the socket."""
from __future__ import annotations

import errno
import os
import time
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from . import wire
from .channel import RETRY_SECONDS, Channel
from .errors import AppendManyError, Error, InDoubt, ProtocolError, Unreachable, of_status

WINDOW = 8  # appends under way at a time; picked: half of what the daemon takes of one connection
FOLLOW_SLICE_MS = 10000  # one waiting read; picked


class Record(NamedTuple):
    """One record as it was appended. time_ns: CLOCK_REALTIME of appending; 0 for one that is longer than an
    answer, whose time is not told."""
    lsn: int
    data: bytes
    time_ns: int

    @property
    def next_lsn(self) -> int:
        """LSN of the record behind it."""
        return self.lsn + len(self.data)


class Stat(NamedTuple):
    """What a log is like: LSNs and bytes, as struct pmemlogd_stat."""
    first: int
    disk: int
    durable: int
    capacity: int
    record_max: int
    failing: bool


class Log:
    """A log of the connection's domain. Made by Connection's `open`; nothing has to be closed: the daemon keeps
    nothing for it but the connection."""

    def __init__(self, connection: Channel, name: str, read_only: bool = False,
                 sole_writer: bool = False, domain: str = "") -> None:
        self.connection = connection
        self.name = name
        self.domain = domain
        self.read_only = read_only
        self.sole_writer = sole_writer
        self._end = 0  # the log's end when we last heard of it

    def __repr__(self) -> str:
        return "<pmemlogd.Log %s>" % self.name

    def _body(self, **values: Any) -> bytes:
        return wire.LOG.pack(name=self.name, domain=self.domain, **values)

    def _ask(self, kind: int, **values: Any) -> Any:
        kw = {k: values.pop(k) for k in ("timeout", "waits", "repeat") if k in values}
        r = self.connection.ask(kind, self._body(**values), **kw)
        self._end = max(self._end, r.durable)
        return r

    def open(self, create: bool = False, exclusive: bool = False, mode: int = 0o600,
             capacity: int = 0) -> "Log":
        """Opens the log, as pmemlogd_open(3); returns self."""
        flags = ((wire.LOG_CREATE if create else 0) | (wire.LOG_EXCLUSIVE if exclusive else 0)
                 | (wire.LOG_READ_ONLY if self.read_only else 0))
        self._ask(wire.LOG_OPEN, flags=flags, mode=mode if create else 0, value=capacity if create else 0,
                  repeat=not exclusive)
        return self

    def stat(self) -> Stat:
        """What the log is like now."""
        r = self._ask(wire.LOG_STAT)
        return Stat(r.first, r.disk, r.durable, r.capacity, r.record_max, bool(r.failing))

    # ---- appending ----------------------------------------------------------------------------------

    def append(self, data: bytes) -> int:
        """Appends one record, 1 byte to `append_max` of the daemon's features; its LSN. When it returns the
        record is durable, and so are all before it. Waits without limit for room and for a daemon that is
        stopped. Error as pmemlogd_append(3). InDoubt: the daemon went away before it answered; with
        sole_writer that is found out after a reconnect, and the record is there once in any case."""
        return self.append_many([data])[0]

    def append_many(self, records: Iterable[bytes]) -> List[int]:
        """Appends records in this order, each as `append`, without waiting for one before the next is sent;
        their LSNs. On the first failure the rest is not sent; AppendManyError says for each what became of
        it (a single record: InDoubt, or Error)."""
        todo = [self._checked(r) for r in records]
        lsns: List[Optional[int]] = [None] * len(todo)
        at = 0
        while at < len(todo):
            known = self._end if self.sole_writer and self._end else self._known_end()
            done, error, lost = self._burst(todo[at:])
            for i, lsn in enumerate(done):
                lsns[at + i] = lsn
            if error is None:
                break
            if isinstance(error, Unreachable) and (self.sole_writer or not lost):
                # nothing is in doubt, or that can be found out: go on with the daemon that comes next
                if error.errno == errno.ESHUTDOWN:
                    time.sleep(RETRY_SECONDS)
                at += self._resolve(todo, lsns, at, known) if lost else len([x for x in done if x is not None])
                continue
            doubts = [at + i for i in lost]
            if len(todo) == 1 and doubts:
                raise InDoubt(error.errno, error.strerror, known)
            if len(todo) == 1:
                raise error
            raise AppendManyError(error.errno, error.strerror, lsns, doubts, known)
        return [lsn for lsn in lsns if lsn is not None]

    def _checked(self, data: bytes) -> bytes:
        data = bytes(data)
        if not data:
            raise Error(errno.EINVAL, "a record has one byte at least")
        f = self.connection.features
        limit = f.append_max if f else wire.PAYLOAD_MAX
        if len(data) > limit:
            raise Error(errno.EMSGSIZE, "a record over the socket has %d bytes at most" % limit)
        if self.read_only:
            raise Error(errno.EBADF, "the log is opened read-only")
        return data

    def _known_end(self) -> int:
        """An end of the log that what is appended from now on cannot lie below."""
        return self._end or self.stat().durable

    def _burst(self, records: List[bytes]) -> Tuple[List[Optional[int]], Optional[Error], List[int]]:
        """Sends records, some at a time: the LSN of each that was acknowledged, the first error, and the
        indexes of those that nobody answered for."""
        c = self.connection
        done: List[Optional[int]] = []
        under_way: List[Tuple[int, int]] = []
        error: Optional[Error] = None
        sent = 0
        life = c.need()
        while under_way or (sent < len(records) and not error):
            while not error and sent < len(records) and len(under_way) < WINDOW:
                body = wire.APPEND.pack(length=len(records[sent]), name=self.name, domain=self.domain)
                try:
                    under_way.append(c.send(life, wire.LOG_APPEND, body, records[sent]))
                except Unreachable as e:
                    error = e  # it has not gone; what was sent before may have been answered
                else:
                    sent += 1
            if not under_way:
                break
            try:
                answer = c.receive(*under_way.pop(0), None)
            except Unreachable as e:
                # none of them will be answered any more
                return done, error or e, list(range(len(done), sent))
            if answer.status == 0:
                self._end = max(self._end, answer.body.lsn + len(records[len(done)]))
                done.append(answer.body.lsn)
            else:
                done.append(None)
                error = error or of_status(answer.status, answer.body.text)
        return done, error, []

    def _resolve(self, records: List[bytes], lsns: List[Optional[int]], at: int, known: int) -> int:
        """Nobody else writes: what stands behind the last record that was acknowledged are our own records,
        in order. Notes them; how many records from `at` on need not be sent again."""
        begin = at
        while at < len(records) and lsns[at] is not None:
            known = lsns[at] + len(records[at])  # type: ignore[operator]
            at += 1
        for record in self.records(known):
            if at >= len(records) or record.data != records[at]:
                raise Error(errno.EBUSY, "somebody else writes %s: LSN %d is not ours" % (self.name,
                                                                                        record.lsn))
            lsns[at] = record.lsn
            self._end = max(self._end, record.next_lsn)
            at += 1
        return at - begin

    # ---- reading ------------------------------------------------------------------------------------

    def read(self, lsn: int, n: int) -> bytes:
        """Up to n bytes of the stream from lsn on, whatever the records' bounds are; less than n only at the
        log's end. Trimmed; Error ENXIO: beyond the end."""
        out = bytearray()
        while len(out) < n:
            want = min(n - len(out), wire.PAYLOAD_MAX)
            body, data = self._read(lsn + len(out), want, 0, 0)
            out += data
            if body.length == 0:
                break
        return bytes(out)

    def _read(self, lsn: int, n: int, flags: int, timeout_ms: int) -> Tuple[Any, bytes]:
        answer = self.connection.request(
            wire.LOG_READ, self._body(lsn=lsn, value=n, flags=flags, timeout_ms=timeout_ms),
            waits=timeout_ms > 0)
        if answer.status == -errno.EMSGSIZE and flags & wire.LOG_RECORDS and answer.body.next > answer.body.lsn:
            return answer.body, b""
        if answer.status < 0:
            raise of_status(answer.status, answer.body.text)
        if answer.body.length != len(answer.payload) or answer.body.length > n:
            raise ProtocolError("LOG_READ: %d bytes announced, %d came" % (answer.body.length,
                                                                           len(answer.payload)))
        return answer.body, answer.payload

    def _some(self, lsn: int, timeout_ms: int) -> List[Record]:
        """Records from the one at lsn on: some, or none (the end; timeout)."""
        body, data = self._read(lsn, wire.PAYLOAD_MAX, wire.LOG_RECORDS, timeout_ms)
        if not data and body.next > body.lsn:
            # longer than an answer
            return [Record(body.lsn, self.read(body.lsn, body.next - body.lsn), 0)]
        out, at = [], 0
        while at < len(data):
            frame = wire.FRAME.unpack(data, at)
            end = at + wire.FRAME.size + frame.length
            if len(data) < end or frame.length == 0:
                raise ProtocolError("LOG_READ: a record is cut off")
            if out and frame.lsn != out[-1].next_lsn:
                raise ProtocolError("LOG_READ: LSN %d follows %d" % (frame.lsn, out[-1].next_lsn))
            if wire.crc32c(data[at + 4:end + -frame.length % 8]) != frame.crc:
                raise Error(errno.EBADMSG, "the CRC of the record at LSN %d does not hold" % frame.lsn)
            out.append(Record(frame.lsn, data[at + wire.FRAME.size:end], frame.time_ns))
            at = end + -frame.length % 8
        return out

    def records(self, lsn: Optional[int] = None) -> Iterator[Record]:
        """The records from lsn on (None: the oldest; one inside a record: that record) up to the log's end of
        now. Trimmed; Error EBADMSG: a CRC does not hold."""
        stat = self.stat()
        at = stat.first if lsn is None else lsn
        while at < stat.durable:
            got = self._some(at, 0)
            if not got:
                return
            yield from got
            at = got[-1].next_lsn

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def follow(self, lsn: Optional[int] = None, timeout: Optional[float] = None,
               from_end: bool = False) -> Iterator[Record]:
        """The records from lsn on (None: the oldest; from_end: the next one that is appended), and then each
        new one as it becomes durable: each once, in order, whatever is restarted meanwhile. Ends when none
        came for `timeout` seconds (None: never). While the daemon is away, or holds the domain, it waits, as long.
        Trimmed: what comes next was given up."""
        at: Optional[int] = lsn
        last = time.monotonic()
        while True:
            left = None if timeout is None else timeout - (time.monotonic() - last)
            ms = FOLLOW_SLICE_MS if left is None else max(0, min(FOLLOW_SLICE_MS, int(left * 1000)))
            try:
                if at is None:
                    stat = self.stat()
                    at = stat.durable if from_end else stat.first
                got = self._some(at, ms)
            except Error as e:
                # EBUSY: the daemon lets go of the domain at its end, or holds it
                if not isinstance(e, Unreachable) and e.errno != errno.EBUSY:
                    raise
                if left is not None and left <= 0:
                    raise
                time.sleep(RETRY_SECONDS)
                continue
            for record in got:
                at = record.next_lsn
                yield record
                last = time.monotonic()
            if not got and left is not None and left <= 0:
                return

    # ---- the rest -----------------------------------------------------------------------------------

    def sync(self, lsn: Optional[int] = None, timeout: Optional[float] = None) -> Stat:
        """Waits until the record at lsn (None: the last one), and all before it, are on disk. Error ETIMEDOUT;
        EBUSY: the disk fails or is full, the records are safe in the pool."""
        if lsn is None:
            stat = self.stat()
            if stat.disk >= stat.durable:
                return stat
            lsn = stat.durable - 1
        ms = wire.FOREVER if timeout is None else min(wire.FOREVER - 1, max(0, int(timeout * 1000)))
        r = self._ask(wire.LOG_SYNC, lsn=lsn, timeout_ms=ms, waits=True)
        return Stat(r.first, r.disk, r.durable, r.capacity, r.record_max, bool(r.failing))

    def trim(self, lsn: int) -> int:
        """Gives up all records that end at or below lsn; the LSN of the first one that is left. Durable."""
        if self.read_only:
            raise Error(errno.EBADF, "the log is opened read-only")
        return int(self._ask(wire.LOG_TRIM, lsn=lsn, waits=True).lsn)

    def segment(self, lsn: int) -> Tuple[int, int]:
        """The segment that lsn lies in: a read-only descriptor (the caller's to close) and its first LSN.
        Error ENXIO: not on disk yet."""
        answer = self.connection.request(wire.LOG_SEGMENT, self._body(lsn=lsn))
        if answer.status == 0 and len(answer.fds) == 1:
            return answer.fds[0], int(answer.body.lsn)
        for fd in answer.fds:
            os.close(fd)
        raise of_status(answer.status or -errno.EPROTO, answer.body.text)
