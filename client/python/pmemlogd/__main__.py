# SPDX-License-Identifier: LGPL-2.1-or-later
"""python3 -m pmemlogd: lists, appends to and reads logs; pmemlogctl(1) does more."""
from __future__ import annotations

import argparse
import sys
from typing import Iterator, List, Optional

from . import Connection, Error, Record, Unreachable


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python3 -m pmemlogd", description=(__doc__ or "").split(": ")[1])
    p.add_argument("--socket", help="the daemon's socket")
    p.add_argument("--domain", help="default: PMEMLOGD_DOMAIN, else \"default\"")
    verbs = p.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="the logs of the domain: name, first LSN, end")
    for name, text in (("append", "standard input as one record; prints its LSN"),
                       ("cat", "the bytes of all records"), ("follow", "the same, and new ones as they come"),
                       ("stat", "first, disk, durable, capacity")):
        v = verbs.add_parser(name, help=text)
        v.add_argument("log")
        if name == "append":
            v.add_argument("--create", action="store_true", help="make the log if it is not there")
            v.add_argument("--lines", action="store_true", help="each line a record, its end included")
        if name in ("cat", "follow"):
            v.add_argument("--from", dest="lsn", type=int, metavar="LSN", help="default: the oldest record")
    return p


def _put(records: Iterator[Record]) -> None:
    for record in records:
        sys.stdout.buffer.write(record.data)
        sys.stdout.buffer.flush()


def main(argv: Optional[List[str]] = None) -> int:
    """Exit codes as pmemlogctl(1): 0, 1 refused, 3 unreachable; 2 a wrong command line (argparse)."""
    a = _parser().parse_args(argv)
    try:
        with Connection(a.socket, a.domain) as c:
            if a.verb == "list":
                for x in c.logs(c.domain):
                    print(x["name"], x["first"], x["durable"])
                return 0
            log = c.open(a.log, create=getattr(a, "create", False), read_only=a.verb != "append")
            if a.verb == "append":
                source = sys.stdin.buffer
                for data in source if a.lines else [source.read()]:
                    print(log.append(data), flush=True)
            elif a.verb == "cat":
                _put(log.records(a.lsn))
            elif a.verb == "follow":
                _put(log.follow(a.lsn))
            else:
                s = log.stat()
                print("first %d disk %d durable %d capacity %d" % (s.first, s.disk, s.durable, s.capacity))
    except Unreachable as e:
        print("pmemlogd: %s" % e.strerror, file=sys.stderr)
        return 3
    except (Error, ValueError) as e:
        print("pmemlogd: %s" % (e.strerror if isinstance(e, Error) else e), file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
