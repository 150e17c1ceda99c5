#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""With, without and between daemons: who is accelerated, who is in bypass, who is not opened (DESIGN 5, Attach)."""
import sys
import time

import daemons
import descriptors
import filenames
from harness import Check, Preload
from sandbox import Sandbox, need

CASES = {
    "normal": descriptors.normal,
    "folder": lambda p, c: daemons.without_daemon(p, c, True),
    "no-folder": lambda p, c: daemons.without_daemon(p, c, False),
    "closes-all": descriptors.closes_all,
    "past-us": descriptors.past_us,
    "unsupported": daemons.unsupported,
    "reused": descriptors.reused,
    "forked": descriptors.forked,
    "forked-token": daemons.forked_in_bypass,
    "calls": descriptors.system_calls,
    "folder-unread": filenames.unreadable_folder,
    "marked": daemons.marked,
    "joined": daemons.joined,
    "stopped": daemons.stopped,
    "killed": daemons.killed,
    "names": filenames.names,
    "other-names": filenames.by_other_names,
    "storm": daemons.storm,
    "quarantined": daemons.quarantined,
}


def main():
    need([], "")
    check = Check()
    with Sandbox("preload-attach") as box:
        preload = Preload(box, lane_size="4MiB")
        for name, case in CASES.items():
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            before, began = check.failed, time.monotonic()
            try:
                case(preload, check)
            except RuntimeError as e:
                check(False, "%s: %s", name, e)
            if check.failed > before:
                box.tails(30)
            print("%-12s %-6s %.1f s" % (name, "ok" if check.failed == before else "FAILED",
                                        time.monotonic() - began), flush=True)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
