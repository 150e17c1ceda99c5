#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The pool folder as a whole, with live records in it: cut off, blank, older, swapped, another machine's, another
version's, not its owner's; pages that cannot be read. The real daemon and pmemlogctl.

Each row of the tables: what is done to the folder, what the message must say, and the remedy that it names,
which is then followed. Refused: no byte changed, exit not 0, the daemon does not serve, the gate is shut.

    tests/pool/run-folder.py [--fs ext4|xfs] [--seed N] [CASE...]
    cases: refused, force, lanes, idle, unsafe, poison, running

Prints `pool faults N wrong N silent N` before the last line.
"""
import sys

from folder import COUNT
from cases import main
from idle import idle
from lanes import lanes
from refused import refused, force
from unreadable import poison, running
from unsafe import unsafe


if __name__ == "__main__":
    result = main([refused, force, lanes, idle, unsafe, poison, running])
    print("pool faults %d wrong %d silent %d" % (COUNT["faults"], COUNT["wrong"] or result,
                                                  COUNT["silent"]))
    sys.exit(result)
