# SPDX-License-Identifier: LGPL-2.1-or-later
"""A connection to one domain, and the logs in it."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from . import wire
from .channel import Channel, close_all
from .errors import ProtocolError, of_status
from .log import Log


class Connection(Channel):
    """A connection to one domain of the calling user.

    socket_path: None for PMEMLOGD_SOCKET, else /run/pmemlogd/pmemlogd.sock. domain: None for PMEMLOGD_DOMAIN, else
    "default"; it is made if it is not there. timeout: seconds within which the daemon has to be reached and
    to say anything at all (None: no limit). connecting: False leaves it to the first request.

    Any number of threads may use it. A child made by fork may not: ECHILD. A daemon that was restarted is
    connected to anew by the next request; what was under way then is repeated where that does no harm, else
    Unreachable is raised (InDoubt for appends).
    """

    def __enter__(self) -> "Connection":
        return self

    def open(self, name: str, create: bool = False, exclusive: bool = False, read_only: bool = False,
             mode: int = 0o600, capacity: int = 0, sole_writer: bool = False) -> Log:
        """Opens a log, as pmemlogd_open(3): created with `mode` (0o600, 0o400) and `capacity` (bytes, 0: no
        limit) if it is not there and `create` is set; `exclusive`: EEXIST if it is there. sole_writer: nobody
        else appends to it while this one does; then an append whose answer was lost is looked for
        before it is made again, and no InDoubt is raised."""
        return Log(self, name, read_only, sole_writer).open(create, exclusive, mode, capacity)

    def remove(self, name: str) -> None:
        """Deletes a log that nobody has open, with all its records. Error ENOENT, EBUSY, EIO."""
        self.ask(wire.LOG_REMOVE, wire.LOG.pack(name=name), repeat=False)

    def logs(self, domain: str = "") -> List[Dict[str, Any]]:
        """All logs of the calling user, or of one domain; an admin sees everybody's. Each a dict, as
        pmemlogd-protocol(7) documents for LOG_LIST."""
        answer = self.request(wire.LOG_LIST, wire.DOMAIN.pack(domain=domain))
        if answer.status < 0:
            close_all(answer.fds)
            raise of_status(answer.status, answer.body.text)
        if len(answer.fds) != 1:
            close_all(answer.fds)
            raise ProtocolError("LOG_LIST: no document came")
        with os.fdopen(answer.fds[0], "rb") as f:
            f.seek(0)
            logs: List[Dict[str, Any]] = json.loads(f.read())["logs"]
        return logs


def connect(socket_path: Optional[str] = None, domain: Optional[str] = None,
            timeout: Optional[float] = 5.0) -> Connection:
    """A connection to a domain of the calling user; see Connection."""
    return Connection(socket_path, domain, timeout)
