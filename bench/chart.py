#!/usr/bin/python3 -B
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Draws the README's figure from a report of bench/db:  bench/chart.py REPORT.json docs/commits.svg

Bars: commits per second with 1 and 8 clients; beside each bar the median and 99th percentile.
"""
import json
import sys

NAMES = [("disk", "disk alone", "#8c8c8c"), ("pmemlogd", "with pmemlogd", "#1f6fb2"),
         ("nosync", "no durability at all", "#c9c9c9")]
WIDTH, LEFT, BAR, GAP = 760, 170, 26, 8
SPAN = 380  # of the longest bar


def text(x, y, words, size=13, anchor="start", weight="normal", fill="#222"):
    return ('<text x="%d" y="%d" font-size="%d" text-anchor="%s" font-weight="%s" fill="%s">%s</text>'
            % (x, y, size, anchor, weight, fill, words))


def chart(report):
    rows = {(r["mode"], r["clients"]): r for r in report["rows"]}
    clients = sorted({n for _, n in rows})
    most = max(r["commits_per_s"] for (m, _), r in rows.items() if m in {n[0] for n in NAMES})
    out, y = [], 34
    out.append(text(16, y, "MariaDB 10.11, one-row commits per second", 16, weight="bold"))
    y += 22
    out.append(text(16, y, "sync_binlog=1, innodb_flush_log_at_trx_commit=1; sysbench "
                    "oltp_update_non_index, median of %d rounds" % report["rounds"], 12,
                    fill="#555"))
    for n in clients:
        y += 36
        out.append(text(16, y, "%d client%s" % (n, "" if n == 1 else "s"), 14, weight="bold"))
        y += 10
        for mode, name, colour in NAMES:
            r = rows.get((mode, n))
            if not r:
                continue
            width = max(2, round(r["commits_per_s"] / most * SPAN))
            out.append(text(LEFT - 8, y + 18, name, anchor="end"))
            out.append('<rect x="%d" y="%d" width="%d" height="%d" rx="2" fill="%s"/>'
                       % (LEFT, y, width, BAR, colour))
            words = "{:,.0f}".format(r["commits_per_s"])
            if mode == "pmemlogd" and "ratio_to_disk" in r:
                words += "  (%.1f x disk)" % r["ratio_to_disk"]
            out.append(text(LEFT + width + 8, y + 12, words, 12, weight="bold"))
            out.append(text(LEFT + width + 8, y + 25, "p50 %.0f µs, p99 %.0f µs"
                            % (r["p50_us"], r["p99_us"]), 10, fill="#555"))
            y += BAR + GAP
    y += 22
    m = report["machine"]
    out.append(text(16, y, "%s, %d CPUs, Linux %s, commit %s; emulated pool in memory."
                    % (m["cpu"], m["cpus"], m["kernel"], report["commit"][:10]), 10, fill="#555"))
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
            'font-family="DejaVu Sans, Helvetica, sans-serif">\n'
            '<rect width="100%%" height="100%%" fill="#ffffff"/>\n%s\n</svg>\n'
            % (WIDTH, y + 16, WIDTH, y + 16, "\n".join(out)))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        report = json.load(f)
    with open(sys.argv[2], "w") as f:
        f.write(chart(report))


if __name__ == "__main__":
    main()
