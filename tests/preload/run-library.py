#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The library as a file: what it needs and shows, and what it does to programs that it leaves alone."""
import os
import re
import subprocess
import sys
import tempfile

from harness import Check, default_builddir, find
from product import LIBRARY

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def output(*argv, **kw):
    return subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          **kw)


def symbols(check, library):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library).stdout)
    check(needed == ["libc.so.6"], "needs %s", needed)
    with open(os.path.join(ROOT, "client", "preload", "calls.def"), encoding="ascii") as f:
        listed = set(re.findall(r"^CALL_[A-Z]+\((\w+),", f.read(), re.M))
    shown = set(line.split()[-1] for line in
                output("nm", "-D", "--defined-only", library).stdout.splitlines())
    check(shown == listed, "exported but not in calls.def, or the reverse: %s", shown ^ listed)


def left_alone(check, library):
    """Small programs, with a library that has no rules: same output, same exit, nothing said."""
    with tempfile.TemporaryDirectory() as folder:
        script = ("echo one > a; cp a b; mv b c; ln c d; cat a c d; rm d; ls; "
                  "dd if=/dev/zero of=e bs=512 count=3 conv=fsync 2>/dev/null; stat -c '%n %s' e; exit 7")
        seen = []
        for preload in ("", library):
            work = os.path.join(folder, "with" if preload else "without")
            os.mkdir(work)
            env = dict(os.environ, LD_PRELOAD=preload,
                       PMEMLOGD_PRELOAD_CONFIG=os.path.join(folder, "none"))
            r = output("/bin/sh", "-c", script, cwd=work, env=env)
            seen.append((r.returncode, r.stdout))
        check(seen[0] == seen[1] and seen[0][0] == 7, "differs: %s", seen)


def untrusted_rules(check, library):
    """A rule file that others may write is not obeyed: the program makes no connection."""
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "x.ini")
        with open(rules, "w", encoding="ascii") as f:
            f.write("[x]\nprogram = *\npath = */log.[0-9]*\n")
        probe = ("import os, sys; fd = os.open('%s/log.1', os.O_RDWR | os.O_CREAT | os.O_DIRECT);"
                 "import fcntl; os.fstat(fd);"
                 "print(os.readlink('/proc/self/fd/%%d' %% fd), "
                 "[l for l in open('/proc/self/fdinfo/%%d' %% fd) if l.startswith('flags')][0])"
                 % folder)
        flags = {}
        for mode in (0o644, 0o666):
            os.chmod(rules, mode)
            env = dict(os.environ, LD_PRELOAD=library, PMEMLOGD_PRELOAD_CONFIG=folder,
                       PMEMLOGD_SOCKET=os.path.join(folder, "no.sock"))
            text = output(sys.executable, "-c", probe, env=env).stdout
            flags[mode] = re.findall(r"flags:\s+(\d+)", text)
        # O_DIRECT is taken off the real descriptor only where a rule took the file
        check(flags[0o644] and not int(flags[0o644][0], 8) & os.O_DIRECT, "rule: %s", flags)
        check(flags[0o666] and int(flags[0o666][0], 8) & os.O_DIRECT, "untrusted rule: %s", flags)


def main():
    library = find(default_builddir(), LIBRARY)
    check = Check()
    symbols(check, library)
    left_alone(check, library)
    untrusted_rules(check, library)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
