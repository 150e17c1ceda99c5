# SPDX-License-Identifier: LGPL-2.1-or-later
"""A stand-in for the daemon's side of the log messages, in memory: for what a real daemon never does.

    Peer(path).start()

`hook(peer, connection, header, body, payload)` is called for each request before it is served: what it returns
takes the place of the answer: None (serve it), "hangup", "silent", or the bytes of packets to send.
"""
import errno
import json
import os
import socket
import threading
import time

from pmemlogd import wire


class MemoryLog:
    def __init__(self, capacity=0):
        self.records = []  # (lsn, data, time_ns)
        self.first = self.end = 0
        self.capacity = capacity

    def append(self, data):
        lsn = self.end
        self.records.append((lsn, data, time.time_ns()))
        self.end += len(data)
        return lsn

    def stream(self):
        return b"".join(data for _, data, _ in self.records)

    def trim(self, lsn):
        self.records = [r for r in self.records if r[0] + len(r[1]) > lsn]
        self.first = self.records[0][0] if self.records else self.end


def frame(lsn, data, time_ns):
    values = dict(length=len(data), lsn=lsn, time_ns=time_ns, log=1)
    data += bytes(-len(data) % 8)
    return wire.FRAME.pack(crc=wire.crc32c(wire.FRAME.pack(**values)[4:] + data), **values) + data


class Peer:
    def __init__(self, path, hook=None):
        self.path, self.hook = path, hook
        self.logs = {}
        self.hellos = []
        self.cond = threading.Condition()
        self.connections = []
        self.s = None

    def start(self):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.bind(self.path)
        self.s.listen(16)
        threading.Thread(target=self._accept, args=[self.s], daemon=True).start()
        return self

    def stop(self):
        """As a daemon that is killed: its connections end, its logs stay."""
        os.unlink(self.path)
        self.s.shutdown(socket.SHUT_RDWR)
        self.s.close()
        for c in self.connections:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.connections = []

    def _accept(self, s):
        while True:
            try:
                c = s.accept()[0]
            except OSError:
                return
            self.connections.append(c)
            threading.Thread(target=self._serve, args=[c], daemon=True).start()

    def _serve(self, c):
        try:
            while True:
                data = c.recv(wire.PACKET_MAX + 1)
                if not data or not self._packet(c, data):
                    break
        except OSError:
            pass
        c.close()

    def _packet(self, c, data):
        h = wire.HEADER.unpack(data)
        name = next(n for n, m in wire.MESSAGES.items() if m[0] == h.type)
        request = wire.MESSAGES[name][1]
        body = request.unpack(data, wire.HEADER.size)
        payload = data[wire.HEADER.size + request.size:]
        if self.hook:
            got = self.hook(self, c, h, body, payload)
            if got == "hangup":
                return False
            if got == "silent":
                return True
            for packet in got or []:
                c.sendall(packet)
            if got is not None:
                return True
        if h.type == wire.LOG_READ and body.timeout_ms:
            # others of the connection go on
            c.sendall(self.answer(h, 0, b"", kind=wire.PENDING))
            threading.Thread(target=self._read, args=[c, h, body], daemon=True).start()
            return True
        return getattr(self, "_" + name.lower())(c, h, body, payload)

    @staticmethod
    def answer(h, status, body, kind=wire.REPLY):
        return wire.HEADER.pack(magic=wire.MAGIC, type=h.type, kind=kind, request_id=h.request_id,
                                status=status, length=len(body)) + body

    def _features(self, c, h, body, payload):
        c.sendall(self.answer(h, 0, wire.FEATURES_REPLY.pack(
            version=1, features=1, packet_max=wire.PACKET_MAX, append_max=wire.PAYLOAD_MAX, outstanding=16,
            logs_max=64)))
        return True

    def _hello(self, c, h, body, payload):
        self.hellos.append(body)
        c.sendall(self.answer(h, 0, b"", kind=wire.PENDING))
        c.sendall(self.answer(h, 0, wire.HELLO_REPLY.pack(version=1)))
        return True

    def _reply(self, c, h, log, status=0, lsn=0, text=""):
        values = dict(lsn=lsn, text=text)
        if log:
            values.update(id=1, first=log.first, disk=log.end, durable=log.end, capacity=log.capacity,
                          record_max=131072)
        c.sendall(self.answer(h, status, wire.LOG_REPLY.pack(**values)))
        return True

    def _find(self, c, h, body):
        log = self.logs.get(body.name)
        if not log:
            reply = wire.LOG_DATA if h.type == wire.LOG_READ else wire.LOG_REPLY
            c.sendall(self.answer(h, -errno.ENOENT, reply.pack(text="no such log")))
        return log

    def _log_open(self, c, h, body, payload):
        if body.name in self.logs and body.flags & wire.LOG_EXCLUSIVE:
            return self._reply(c, h, None, -errno.EEXIST, text="it is there")
        if body.flags & wire.LOG_CREATE:
            self.logs.setdefault(body.name, MemoryLog(body.value))
        log = self._find(c, h, body)
        return self._reply(c, h, log) if log else True

    def _log_append(self, c, h, body, payload):
        log = self._find(c, h, body)
        if not log:
            return True
        if log.capacity and log.end - log.first + len(payload) > log.capacity:
            return self._reply(c, h, log, -errno.ENOSPC, text="the capacity is reached")
        with self.cond:
            lsn = log.append(payload)
            self.cond.notify_all()
        return self._reply(c, h, log, lsn=lsn)

    def _log_read(self, c, h, body, payload):
        self._read(c, h, body)
        return True

    def _read(self, c, h, body):
        log = self._find(c, h, body)
        if not log:
            return
        with self.cond:
            self.cond.wait_for(lambda: body.lsn < log.end, body.timeout_ms / 1000)
        status, data, next_lsn, lsn = 0, b"", body.lsn, body.lsn
        if body.lsn < log.first:
            status = -errno.ERANGE
        elif body.lsn > log.end:
            status = -errno.ENXIO
        elif body.flags & wire.LOG_RECORDS:
            for at, record, time_ns in log.records:
                if at + len(record) <= body.lsn:
                    continue
                more = frame(at, record, time_ns)
                if len(data) + len(more) > body.value:
                    if not data:
                        status, lsn, next_lsn = -errno.EMSGSIZE, at, at + len(record)
                    break
                if not data:
                    lsn = at
                data += more
                next_lsn = at + len(record)
        else:
            data = log.stream()[body.lsn - log.first:][:body.value]
            next_lsn = body.lsn + len(data)
        try:
            c.sendall(self.answer(h, status, wire.LOG_DATA.pack(
                lsn=lsn, next=next_lsn, durable=log.end, length=len(data)) + data))
        except OSError:
            pass

    def _log_trim(self, c, h, body, payload):
        log = self._find(c, h, body)
        if log:
            log.trim(body.lsn)
            self._reply(c, h, log, lsn=log.first)
        return True

    def _log_sync(self, c, h, body, payload):
        log = self._find(c, h, body)
        return self._reply(c, h, log) if log else True

    _log_stat = _log_sync

    def _log_segment(self, c, h, body, payload):
        return self._reply(c, h, None, -errno.ENXIO)

    def _log_remove(self, c, h, body, payload):
        log = self._find(c, h, body)
        if log:
            del self.logs[body.name]
            self._reply(c, h, None)
        return True

    def _log_list(self, c, h, body, payload):
        logs = [dict(domain="default", uid=os.getuid(), name=name, open=True, first=log.first, disk=log.end,
                     durable=log.end, capacity=log.capacity, mode=0o600, segments=1, failing=False, error="")
                for name, log in sorted(self.logs.items())]
        fd = os.memfd_create("peer")
        try:
            os.write(fd, json.dumps({"logs": logs}).encode())
            socket.send_fds(c, [self.answer(h, 0, wire.PLAIN_REPLY.pack())], [fd])
        finally:
            os.close(fd)  # also when the client has gone
        return True
