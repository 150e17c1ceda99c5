# SPDX-License-Identifier: LGPL-2.1-or-later
"""A catalog page that is lost under an idle lane."""
import os

from folder import COUNT, WANT
from cases import Agent, block, read, require, subprocess
from kept import RECORDS, patch


def idle(c):
    """A catalog page is cleared while sessions live on an idle lane: the lane stays, and what they write from
    then on is replayed once the page is back."""
    c.begin(destage_age="100ms", lane_size="1MiB")
    COUNT["faults"] += 1
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(0, 512), 0)
    c.accelerated()
    c.must_flush()
    c.product.kill()
    pool, lane = os.path.join(c.product.pool, "pool"), c.product.lanes()[0]
    page = read(pool)[65536:65536 + 4096]
    patch(pool, 65536, bytes(4096))
    r = subprocess.run([c.product.daemon, "-c", c.product.config], capture_output=True, text=True,
                       timeout=60)
    require(r.returncode > 0 and lane in r.stderr and "entry was lost" in r.stderr, "daemon: exit %d %s",
            r.returncode, r.stderr)
    require(os.path.exists(lane), "the lane of living sessions was removed")
    for n in range(1, RECORDS):
        a.write_synced(fd, block(n, 512), n * 512)
    c.cut()
    patch(pool, 65536, page)
    c.recover()
    have = read(c.path("log.0"))
    if have != WANT:
        COUNT["silent"] += 1
    require(have == WANT, "%d bytes, not what was acknowledged", len(have))
    c.end()

    # The remedy that the refusal names, of a lane that holds nothing: the database ended.
    c.begin(destage_age="100ms", lane_size="1MiB")
    COUNT["faults"] += 1
    a = Agent(c)
    fd = a.open(c.path("log.0"), os.O_RDWR | os.O_CREAT)
    a.write_synced(fd, block(0, 512), 0)
    c.must_flush()
    c.product.kill()
    a.kill()
    patch(os.path.join(c.product.pool, "pool"), 65536, bytes(4096))
    status, words = c.product.gate()
    require(status == 1 and "setfattr -x user.pmemlogd.owner" in words, "gate: exit %d %s", status, words)
    os.unlink(c.product.lanes()[0])
    c.product.start()
    os.removexattr(c.path("log.0"), "user.pmemlogd.owner")
    b = Agent(c)
    fd = b.open(c.path("log.0"), os.O_RDWR)
    b.write_synced(fd, block(1, 512), 512)
    c.in_lane()
    b.kill()
    c.end()
    return "kept, and the remedy helps"
