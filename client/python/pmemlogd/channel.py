# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests to the daemon and their answers, in any order, of any number of threads."""
from __future__ import annotations

import array
import errno
import os
import select
import socket
import sys
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from . import wire
from .errors import Error, ProtocolError, Unreachable, of_status

DEFAULT_SOCKET = "/run/pmemlogd/pmemlogd.sock"
DEFAULT_DOMAIN = "default"
RETRY_SECONDS = 0.05  # between two tries to reach a daemon that is just coming up
FDS_MAX = 4


class Answer(NamedTuple):
    """A final reply: its status (0 or a negative errno), its body, what follows the body, its descriptors (the
    receiver's to close)."""
    status: int
    body: SimpleNamespace
    payload: bytes
    fds: List[int]


_channels: "weakref.WeakSet[Channel]" = weakref.WeakSet()


def close_all(fds: List[int]) -> None:
    for fd in fds:
        os.close(fd)


class Channel:
    """What a Connection is made of: the socket, who waits for which answer, and connecting anew.

    One thread at a time receives, for all: who waits for an answer and finds nobody receiving does it.
    """

    def __init__(self, socket_path: Optional[str] = None, domain: Optional[str] = None,
                 timeout: Optional[float] = 5.0, connecting: bool = True) -> None:
        self.socket_path = socket_path or os.environ.get("PMEMLOGD_SOCKET") or DEFAULT_SOCKET
        self.domain = domain or os.environ.get("PMEMLOGD_DOMAIN") or DEFAULT_DOMAIN
        self.timeout = timeout
        self.features: Optional[SimpleNamespace] = None
        self._hello = wire.HELLO_REQUEST.pack(version=wire.VERSION, want=0, domain=self.domain,
                                              program=self._program())
        self._pid = os.getpid()
        self._connecting = threading.Lock()  # one thread at a time connects anew
        self._sending = threading.Lock()  # taken before _cond
        self._cond = threading.Condition()
        # all below: under _cond
        self._socket: Optional[socket.socket] = None
        self._ready = False  # HELLO succeeded
        self._life = 0  # counts connections: an answer belongs to one of them
        self._next_id = 0
        self._waiting: Set[int] = set()
        self._pending: Set[int] = set()
        self._answers: Dict[int, Answer] = {}
        self._broken: Optional[Error] = None
        self._receiving = 0  # life of the connection that a thread receives from; 0: none does
        self._closed = False
        _channels.add(self)
        if connecting:
            self.reconnect()

    @staticmethod
    def _program() -> str:
        name = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else "python3")
        return name.encode()[:60].decode(errors="ignore").replace("\0", "")

    # ---- life ---------------------------------------------------------------------------------------

    def reconnect(self) -> None:
        """Makes sure that the daemon can be reached, and connects anew where it was restarted. Unreachable if
        it is not there within `timeout`; EBUSY, EACCES, ENOSPC, EPROTO as pmemlogd_connect(3); EOPNOTSUPP: a daemon
        without logs."""
        self._check()
        with self._connecting:
            with self._cond:
                life = self._life if self._ready else None
            if life is not None and self._still_there(life):
                return
            self._drop(Unreachable(errno.ECONNRESET, "the daemon went away"))
            end = None if self.timeout is None else time.monotonic() + self.timeout
            while not self._connect():
                if end is not None and time.monotonic() >= end:
                    raise Unreachable(errno.ETIMEDOUT, "no daemon answers at %s" % self.socket_path)
                time.sleep(RETRY_SECONDS)

    def close(self) -> None:
        """Ends the connection; its logs cannot be used any more. May be called twice."""
        with self._cond:
            self._closed = True
        self._drop(Error(errno.EBADF, "the connection is closed"))

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise Error(errno.ECHILD, "a connection does not outlive fork: connect anew")
        if self._closed:
            raise Error(errno.EBADF, "the connection is closed")

    def _still_there(self, life: int) -> bool:
        try:
            self._features(life)
        except Unreachable:
            return False
        return True

    def _features(self, life: int) -> Answer:
        return self.receive(*self.send(life, wire.FEATURES, wire.FEATURES_REQUEST.pack(version=1)),
                            self.timeout)

    def _connect(self) -> bool:
        """False: nobody listens (yet)."""
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            s.settimeout(self.timeout)  # connect waits while the daemon's queue is full
            s.connect(self.socket_path)
            s.settimeout(None)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError, TimeoutError):
            s.close()
            return False
        except OSError as e:
            s.close()
            raise Error(e.errno or errno.EIO, "%s: %s" % (self.socket_path, e.strerror)) from None
        with self._cond:
            self._socket, self._broken = s, None
            self._life += 1
            life = self._life
        try:
            if not self._greet(life):
                return False
        except BaseException:
            self._drop(Unreachable(errno.ECONNRESET, "the connection could not be made"))
            raise
        with self._cond:
            self._ready = self._socket is not None
        return True

    def _greet(self, life: int) -> bool:
        """FEATURES and HELLO. False: the daemon is just ending."""
        try:
            answer = self._features(life)
        except Unreachable as e:
            if e.errno == errno.ETIMEDOUT:
                raise
            self._drop(e)  # it ended just now; one that knows no FEATURES says EPROTO first
            return False
        if answer.status == -errno.ESHUTDOWN:
            self._drop(of_status(answer.status, ""))
            return False
        if answer.status == -errno.EPROTO or (answer.status == 0
                                              and not answer.body.features & wire.FEATURE_LOGS):
            raise Error(errno.EOPNOTSUPP, "this pmemlogd has no logs")
        if answer.status < 0:
            raise of_status(answer.status, "")
        self.features = answer.body
        try:
            answer = self.receive(*self.send(life, wire.HELLO, self._hello), self.timeout)
        except Unreachable as e:
            if e.errno == errno.ETIMEDOUT:
                raise
            self._drop(e)
            return False
        close_all(answer.fds)
        if answer.status == -errno.ESHUTDOWN:
            self._drop(of_status(answer.status, ""))
            return False
        if answer.status < 0:
            raise of_status(answer.status, answer.body.text)
        return True

    def _drop(self, why: Error) -> None:
        """Ends the socket; whoever waits for an answer learns why."""
        with self._cond:
            if self._socket is None:
                return
            # a thread may be waiting in poll: shutdown wakes it up, close would not
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s, self._socket, life = self._socket, None, self._life
            self._ready, self._broken = False, why
            for answer in self._answers.values():
                close_all(answer.fds)
            self._answers.clear()
            self._waiting.clear()
            self._pending.clear()
            self._cond.notify_all()
            # not for one that receives from the next connection already: that may take long
            while self._receiving == life:
                self._cond.wait()
        with self._sending:  # nobody is in the middle of a call with that number
            s.close()

    # ---- requests -----------------------------------------------------------------------------------

    def request(self, kind: int, body: bytes, payload: bytes = b"", repeat: bool = True,
                timeout: Optional[float] = -1.0, waits: bool = False) -> Answer:
        """Sends one request and returns its final reply, whatever its status; the descriptors in it are the
        caller's. repeat: it changes nothing, or nothing more, if it is done twice, and is sent again after a
        reconnect. timeout: seconds until the daemon says anything, -1: the connection's. waits: the
        answer may take long; such requests leave room for others."""
        if timeout is not None and timeout < 0:
            timeout = self.timeout
        end = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            life = self.need()
            try:
                answer = self.receive(*self.send(life, kind, body, payload, waits), timeout)
            except Unreachable as e:
                if not repeat or e.errno == errno.ETIMEDOUT:
                    raise
                repeat = False
                continue
            # it is just ending, and has done nothing: the next one will
            if answer.status != -errno.ESHUTDOWN or (end is not None and time.monotonic() >= end):
                return answer
            close_all(answer.fds)
            time.sleep(RETRY_SECONDS)

    def need(self) -> int:
        """The number of the connection that is there now, made anew if need be; for `send`."""
        self._check()
        while True:
            with self._cond:
                if self._ready:
                    return self._life
            self.reconnect()

    def ask(self, kind: int, body: bytes, **kw: Any) -> SimpleNamespace:
        """The body of the reply to a request that takes no descriptors; raises what the status says."""
        answer = self.request(kind, body, **kw)
        close_all(answer.fds)
        if answer.status < 0:
            raise of_status(answer.status, getattr(answer.body, "text", ""))
        return answer.body

    def send(self, life: int, kind: int, body: bytes, payload: bytes = b"",
             waits: bool = False) -> Tuple[int, int]:
        """Sends a request on that connection without waiting for its answer; (life, id) for `receive`. Blocks
        while as many as the daemon takes are under way, or one less for a request that may take long."""
        limit = (self.features.outstanding if self.features else 1) or 1
        if waits:
            limit = max(1, limit - 1)
        self._progress(life, None, lambda: len(self._waiting - self._answers.keys()) < limit)
        with self._sending:
            with self._cond:
                s = self._socket
                if s is None or self._life != life:
                    raise self._why()
                self._next_id += 1
                request_id = self._next_id
                self._waiting.add(request_id)
            try:
                s.send(wire.packet(kind, request_id, body, payload), socket.MSG_NOSIGNAL)
                return life, request_id
            except OSError as e:
                error = Unreachable(e.errno or errno.EIO, "the daemon went away")
        with self._cond:
            # answers that came before the end can still be received; the next request connects anew
            self._waiting.discard(request_id)
            self._ready = self._ready and self._life != life
        raise error

    def receive(self, life: int, request_id: int, timeout: Optional[float]) -> Answer:
        """The final reply to what `send` sent. timeout: until the daemon says anything about it."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            if not self._progress(life, end, lambda: (request_id in self._answers
                                                      or request_id in self._pending)):
                raise Unreachable(errno.ETIMEDOUT, "no answer in %g s" % (timeout or 0))
            self._progress(life, None, lambda: request_id in self._answers)
            with self._cond:
                if request_id not in self._answers:
                    raise self._why()
                return self._answers.pop(request_id)
        finally:
            with self._cond:
                # an answer that comes later finds nobody waiting and is thrown away
                self._waiting.discard(request_id)
                self._pending.discard(request_id)
                late = self._answers.pop(request_id, None)
                self._cond.notify_all()
            if late:
                close_all(late.fds)

    def _why(self) -> Error:
        """What ended the connection, to be raised by each that waited."""
        e = self._broken
        if isinstance(e, ProtocolError):
            return ProtocolError(e.strerror)
        return type(e)(e.errno, e.strerror) if e else Unreachable(errno.ECONNRESET, "not connected")

    # ---- receiving: one thread at a time, without the lock -------------------------------------------

    def _progress(self, life: int, end: Optional[float], done: Callable[[], bool]) -> bool:
        """Receives, or lets another thread receive, until done() (called under the lock): True; or until
        `end`: False. Raises what ended the connection."""
        while True:
            with self._cond:
                if self._socket is None or self._life != life:
                    raise self._why()
                if done():
                    return True
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if self._receiving == life:
                    self._cond.wait(left)
                    continue
                self._receiving, s = life, self._socket
            error = None
            try:
                error = self._receive_some(s, end)
            finally:
                with self._cond:
                    if self._receiving == life:
                        self._receiving = 0
                    self._cond.notify_all()
            if error:
                self._drop(error)

    def _receive_some(self, s: socket.socket, end: Optional[float]) -> Optional[Error]:
        """One packet, or until `end`. What is wrong with the connection, or None."""
        poll = select.poll()
        poll.register(s, select.POLLIN)
        left = None if end is None else max(0.0, end - time.monotonic()) * 1000 + 1
        if not poll.poll(left):
            return None
        what = (wire.PACKET_MAX + wire.HEADER.size, socket.CMSG_SPACE(4 * FDS_MAX),
                socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
        try:
            try:
                data, ancillary, flags, _ = s.recvmsg(*what)
            except ConnectionResetError:
                # told once, ahead of the answers that came before
                data, ancillary, flags, _ = s.recvmsg(*what)
        except BlockingIOError:
            return None
        except OSError as e:
            return Unreachable(e.errno or errno.EIO, "the daemon went away")
        fds = array.array("i")
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(raw[:len(raw) // 4 * 4])
        if not data:
            return Unreachable(errno.ECONNRESET, "the daemon went away")
        error = self._take(data, list(fds), flags)
        if error:
            close_all(list(fds))
        return error

    def _take(self, data: bytes, fds: List[int], flags: int) -> Optional[Error]:
        h = wire.HEADER.unpack(data)
        if (len(data) < wire.HEADER.size or h.magic != wire.MAGIC or flags & socket.MSG_TRUNC
                or h.length != len(data) - wire.HEADER.size or h.kind not in (wire.REPLY, wire.PENDING)
                or h.status > 0):
            return ProtocolError("what came from the socket is no answer of pmemlogd's")
        body = wire.REPLY_OF.get(h.type)
        with self._cond:
            if h.request_id not in self._waiting:
                close_all(fds)  # its caller did not want to wait so long
            elif h.kind == wire.PENDING:
                self._pending.add(h.request_id)
            elif body is None or (h.length < body.size and h.status == 0):
                return ProtocolError("an answer that is too short")
            else:
                at = wire.HEADER.size
                self._answers[h.request_id] = Answer(h.status, body.unpack(data, at),
                                                     data[at + body.size:], fds)
            self._cond.notify_all()
        return None


def _after_fork() -> None:
    # the parent's connection must end with the parent; its locks may be held by threads that are not here
    for c in list(_channels):
        if c._socket is not None:
            c._socket.close()


os.register_at_fork(after_in_child=_after_fork)

