# SPDX-License-Identifier: LGPL-2.1-or-later
"""What can go wrong. All are OSError: `errno` says what, `strerror` is the daemon's text where it gave one."""
from __future__ import annotations

import errno
import os
from typing import List, Optional


class Error(OSError):
    """The daemon refused; errno as pmemlogd_open(3) and its relatives document."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(number, text or os.strerror(number))


class Unreachable(Error):
    """No daemon, no answer in time, or it went away. What was acknowledged before is safe; requests that change
    nothing may be sent again."""


class ProtocolError(Error):
    """The peer sent what is no answer of pmemlogd's. The connection is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPROTO, text)


class Trimmed(Error):
    """What was to be read has been given up by trim (ERANGE). `first`: the log's oldest record, if known."""

    def __init__(self, text: str = "", first: Optional[int] = None) -> None:
        super().__init__(errno.ERANGE, text)
        self.first = first


class InDoubt(Unreachable):
    """The connection broke between an append and its answer: the record is in the log, whole, or it is not and
    never will be. If it is, its LSN is `at_least` or above."""

    def __init__(self, number: int, text: str, at_least: int) -> None:
        super().__init__(number, text)
        self.at_least = at_least


class AppendManyError(Error):
    """One of several appends failed. `lsns` has an LSN for each record that is durable and None for each that
    is not in the log; `in_doubt` has the indexes of those that nobody answered for (see InDoubt)."""

    def __init__(self, number: int, text: str, lsns: List[Optional[int]], in_doubt: List[int],
                 at_least: int) -> None:
        super().__init__(number, text)
        self.lsns = lsns
        self.in_doubt = in_doubt
        self.at_least = at_least


def of_status(status: int, text: str) -> Error:
    """The exception for a reply's status, below 0."""
    if -status == errno.ERANGE:
        return Trimmed(text)
    if -status in (errno.ESHUTDOWN,):
        return Unreachable(-status, text)
    return Error(-status, text)
