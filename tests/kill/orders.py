# SPDX-License-Identifier: LGPL-2.1-or-later
"""killat.c's orders from outside: at which event a program is killed or stopped, and where it was."""
import mmap
import struct
from collections import namedtuple

_FROM, _LIST, _LIST_MAX = 64, 320, 8000
_FRESH = struct.Struct("=HHIHHII")
_SIZE = _LIST + _LIST_MAX * _FRESH.size
NEVER = 1 << 30


class Spot(namedtuple("Spot", "at call leaving steps", defaults=(None, False, 0))):
    """The at-th event of all, or the at-th entry or exit of a call; and instructions from there."""

    def __str__(self):
        return "%s %d%s" % (
            "event" if self.call is None else "%s of call %d, time" % (
                "exit" if self.leaving else "entry", self.call),
            self.at, " and %d steps" % self.steps if self.steps else "")


class Fresh(namedtuple("Fresh", "spot before")):
    """An event at which the world is not what it was at the event before. before: that one's Spot where
    the program has stored into mapped files since."""


class Orders:
    """killat.c's orders from outside."""

    FIELDS = {"at": 0, "steps": 4, "what": 8, "only": 12, "events": 16, "hit": 20, "call": 24,
              "leaving": 28, "stepped": 32, "pid": 36, "hit_pid": 40, "side": 44, "look": 48,
              "begin": 52, "fresh": 56}

    def __init__(self, path, start=""):
        self.path = path
        with open(path, "wb") as f:
            f.truncate(_SIZE)
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), _SIZE)
        self.begin(start=start)

    def begin(self, at=0, steps=0, what=0, start=None, look=False):
        """For the next program: no event yet. at: a number among all events, or a Spot."""
        keep = (bytes(self.map[_FROM:_LIST]) if start is None else
                start.encode().ljust(_LIST - _FROM, b"\0"))
        self.map[:_LIST] = bytes(_FROM) + keep
        self.set(look=look)
        self._order(at if isinstance(at, Spot) else Spot(at, steps=steps), what)

    def _order(self, spot, what=0):
        named = spot.call is not None
        self.set(hit=0, steps=spot.steps, what=what, only=spot.call + 1 if named else 0,
                 side=1 + spot.leaving if named else 0)
        self.set(at=spot.at)

    def set(self, **orders):
        for name, value in orders.items():
            struct.pack_into("=I", self.map, self.FIELDS[name], value)

    def after(self, events, steps=0, what=0):
        """While the program runs: so many events from now."""
        self.set(hit=0, steps=steps, what=what)
        self.set(at=self["events"] + events)

    def count(self):
        """While it runs: from now on."""
        self.set(at=0, begin=self["begin"] + 1)

    def at_spot(self, spot):
        """While it runs: numbers count from now on."""
        self.count()
        self._order(spot)

    def fresh(self):
        """[Fresh] since the program's begin or the last count()."""
        n = self["fresh"]
        if n > _LIST_MAX:
            raise RuntimeError("%d fresh events, more than are kept" % n)
        found = []
        for i in range(n):
            call, leaving, at, old_call, old_leaving, old_at, stored = _FRESH.unpack_from(
                self.map, _LIST + i * _FRESH.size)
            found.append(Fresh(Spot(at, call, bool(leaving)),
                               Spot(old_at, old_call, bool(old_leaving)) if stored else None))
        return found

    def __getitem__(self, name):
        return struct.unpack_from("=I", self.map, self.FIELDS[name])[0]

    def where(self):
        return "%s of call %d%s" % ("exit" if self["leaving"] else "entry", self["call"],
                                    ", %d steps on" % self["stepped"] if self["stepped"] else "")
