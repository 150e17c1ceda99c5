# SPDX-License-Identifier: LGPL-2.1-or-later
"""The control of what looks at files after a power cut: the same programs without the library, on the file
system alone. Whatever it finds wrong there it would find wrong with us, too, and it would be no fault of ours."""
import os
import random
import time

from cases import Stamp
from scene import Failed, require

CUTS = 100  # with --share 1
PLANS = ("mixed", "overlap", "wide")


def part_run(m, name, share, tell):
    r = random.Random("%d/%s" % (m.seed, name))
    seed, acked = m.seed, 0
    m.begin(start=False)
    for k in range(max(3, int(CUTS * share))):
        m.seed = seed + k  # of the writes
        stamps = [Stamp(m, first=8 * i, threads=8, plan=r.choice(PLANS), folder="f%d" % i, shimmed=False)
                  for i in (0, 1)]
        time.sleep(r.random() * 0.1)
        m.cut()
        try:
            for s in stamps:
                s.dead()
                acked += s.check()
        except Failed as e:
            tell("%s cut %d: %s" % (name, k, e))
            return k + 1, 1
        for s in stamps:
            s.map.close()
            os.unlink(s.shared)
        m.stamps = []
        m.image.make()
    require(acked > 0, "nothing was acknowledged")
    return k + 1, 0
