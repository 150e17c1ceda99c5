# SPDX-License-Identifier: LGPL-2.1-or-later
"""The demonstration itself; scripts/demo prepares for it."""
import os
import random
import shutil
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests",
                                "support"))
import dbbench  # noqa: E402
import mariadb  # noqa: E402
import powercut  # noqa: E402
import product  # noqa: E402
from fsimage import Image  # noqa: E402
from sandbox import Sandbox, need, run  # noqa: E402

BEGIN = time.monotonic()


def say(text):
    print("[%3d s] %s" % (time.monotonic() - BEGIN, text), flush=True)


def speed(box, builddir, rounds, seconds):
    """Commits with and without, in turn; prints a table."""
    say("a private MariaDB on %s: redo log and binlog synced at each commit" % box.path)
    b = dbbench.Bench(box, builddir, mariadb)
    b.prepare()
    modes, clients = ["disk", "pmemlogd"], [1, 8]
    all_rounds = []
    for k in range(rounds):
        runs = {}
        for n in clients:
            for m in modes if k % 2 == 0 else reversed(modes):
                r = runs[(m, n)] = b.run(m, n, seconds)
                say("%-13s %d client%s %7.0f commits/s" % (
                    "on disk alone" if m == "disk" else "with pmemlogd", n, " " if n == 1 else "s",
                    r["commits_per_s"]))
        all_rounds.append(runs)
    print()
    print("            clients   commits/s    p50 us    p99 us")
    for n in clients:
        for m in modes:
            rows = [r[(m, n)] for r in all_rounds]
            print("%-11s %7d %11.0f %9.0f %9.0f" % (
                (m, n) + tuple(statistics.median(r[key] for r in rows)
                               for key in ("commits_per_s", "p50_us", "p99_us"))))
        print("%-11s %7d %10.1fx" % ("ratio", n, statistics.median(
            dbbench.ratios(all_rounds, "pmemlogd", n, ("disk",)))))
    print(flush=True)


def on_disk_alone(box, image, args, acked):
    """Rows that would be missing had the pool been lost: MariaDB on a copy of the cut file system,
    without pmemlogd. Its complaint when it does not even start."""
    twin = Image(box, image.fs, name="copy")
    run(["cp", "--sparse=always", image.file, twin.file])
    twin.mount()
    s = mariadb.Server(box, os.path.join(twin.path, "mariadb"), name="alone", args=args)
    try:
        s.start()
    except mariadb.StartFailed as e:
        s.kill()
        twin.umount()
        return str(e).split(": ", 2)[-1]
    missing = 0
    for c, last in acked.items():
        missing += last - s.query("SELECT COUNT(*) FROM d.t WHERE client=%d AND seq<=%d"
                                  % (c, last))[0][0]
    s.stop()
    twin.umount()
    os.unlink(twin.file)
    return missing


def power(box, builddir, seed):
    """One power cut with everything shown. Returns True when every commit is there."""
    c = powercut.Campaign(box, builddir, fs="ext4", seed=seed)
    c.LANES = ("64MiB",)
    c.start_over(0)
    say("a third run, on a loop-mounted ext4: 4 clients, each acknowledgement logged outside")
    c.since = mariadb.binlogs(c.datadir)[-1]
    clients = c.start_clients(0)
    status = c.check_accelerated()
    for f in status.files(mariadb.NAME):
        say("  %-18s %s" % (os.path.basename(f["path"]), "written through persistent memory"
                            if f["state"] == "lane" else "not accelerated: %s" % f["reason"]))
    say("  durability here: %s" % status["pool"]["durability"])
    time.sleep(random.Random(seed).uniform(2.0, 3.0))
    c.power_cut(clients)
    acked = dict(c.ledger.have)
    rec = {"acked": 0, "lost": 0, "quarantined": 0, "unstarted": 0, "problems": []}
    sent = c.read_acks(rec, clients, acked)
    say("POWER CUT: the file system dropped what it had not flushed, every process killed")
    say("  %d rows acknowledged; %.1f KiB of them lie in the pool alone"
        % (rec["acked"], c.product.live_bytes() / 1024))
    c.image.umount()
    missing = on_disk_alone(box, c.image, c.args(), acked)
    if isinstance(missing, str):
        say("  on the disk alone (a copy, without recovery) MariaDB does not even start:")
        say("    " + missing)
    else:
        say("  on the disk alone (a copy, without recovery) %d acknowledged rows are missing"
            % missing)
    say("power back: pmemlogd recovers, the gate opens, MariaDB starts")
    c.image.mount()  # restart() begins where a cut ends: mounted
    c.restart(rec, "plain", None, acked, sent)
    for words in rec["problems"]:
        say("  " + words)
    good = not (rec["lost"] or rec["quarantined"] or rec["unstarted"])
    if good:
        say("  recovery %.2f s, MariaDB %.2f s" % (rec["recovery_s"], rec["start_s"]))
        say("  every row read back, compared with the binlogs, CHECK TABLE: clean")
    say("acknowledged %d, lost %d" % (rec["acked"], rec["lost"]))
    c.abandon()
    return good


def main():
    quick = "--quick" in sys.argv
    need(["mariadbd", "mariadb-install-db", "mariadb-binlog", "sysbench", "mkfs.ext4", "losetup"],
         "mariadb-server python3-pymysql sysbench e2fsprogs")
    builddir = product.default_builddir()
    # fails early, before anything is started, when the build is not complete
    for name in ("pmemlogd", "pmemlogctl", product.LIBRARY):
        product.find(builddir, name)
    with Sandbox("demo") as box:
        speed(box, builddir, 1 if quick else 2, 2 if quick else 5)
        shutil.rmtree(os.path.join(box.path, "template"))
        good = False
    with Sandbox("demo") as box:
        good = power(box, builddir, seed=int(time.time()))
    say("cleaned up; nothing of this machine was changed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
