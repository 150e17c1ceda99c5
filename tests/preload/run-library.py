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


def confined(check, library):
    """Each path that the library itself opens is among the lines for AppArmor, and the reverse."""
    with open(os.path.join(ROOT, "etc", "apparmor.d", "local", "usr.sbin.mysqld"), encoding="ascii") as f:
        allowed = set(re.findall(r"^\s+(?:owner )?(/\S+) \w+,$", f.read(), re.M))
    strings = set(output("strings", "-a", library).stdout.split("\n"))
    for path in strings:
        if re.match(r"/(proc/self|etc|run)/\w", path):
            path = path.replace("/proc/self/fd/", "/proc/self/fd").replace("/proc/self/", "/proc/[0-9]*/")
            path = re.sub("^/run/pmemlogd", "/{,var/}run/pmemlogd", path)
            path = re.sub("^/run/", "/{,var/}run/", path)
            check(path in allowed or path + "/" in allowed, "not in the lines for AppArmor: %s", path)
    for path in allowed:
        if path.startswith("/proc/"):
            name = path.replace("/proc/[0-9]*/", "/proc/self/").rstrip("/")
            check(name in strings, "in the lines for AppArmor, not in the library: %s", path)


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


def taken(library, folder, path, text, mode=0o644):
    """Does a rule file with this text take `path`? Then the real descriptor has no O_DIRECT."""
    rules = os.path.join(folder, "x.ini")
    with open(rules, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(rules, mode)
    probe = ("import os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT);"
             "print([l for l in open('/proc/self/fdinfo/%d' % fd) if l.startswith('flags')][0])")
    env = dict(os.environ, LD_PRELOAD=library, PMEMLOGD_PRELOAD_CONFIG=folder,
               PMEMLOGD_SOCKET=os.path.join(folder, "no.sock"))
    r = output(sys.executable, "-c", probe, os.path.join(folder, path), env=env)
    flags = re.findall(r"flags:\s+(\d+)", r.stdout)
    return bool(flags) and not int(flags[0], 8) & os.O_DIRECT


def rules(check, library):
    program = os.path.basename(os.path.realpath(sys.executable))
    good = "[x]\nprogram = other, %s\npath = */log.[0-9]*\n" % program
    many = ", ".join("*/some-long-name-%d.[0-9]" % i for i in range(60))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.mkdir(os.path.join(folder, "not"))
        for path, text, mode, expected in (
                ("log.1", good, 0o644, True),
                ("log", good, 0o644, False),
                ("log.1", good, 0o666, False),
                ("log.1", good, 0o664, False),
                ("log.1", good.replace(program, "another"), 0o644, False),
                ("log.1", good.replace(program, "*"), 0o644, True),
                ("log.1", good.replace(program, program[:3] + "*"), 0o644, True),
                ("not/log.1", good + "exclude = */not/*\n", 0o644, False),
                ("log.1", good + "exclude = */not/*\n", 0o644, True),
                ("log.1", good + "colour = red\n", 0o644, False),
                ("log.1", good + "[y]\nprogram = *\npath = */x\ncolour = red\n", 0o644, True),
                ("log.1", good + "nonsense\n", 0o644, False),
                ("log.1", "program = *\npath = */log.1\n", 0o644, True),
                ("log.1", "[x]\nprogram = *\n", 0o644, False),
                ("log.1", "[x]\npath = *\n", 0o644, False),
                ("log.1", "", 0o644, False),
                ("log.1", "[x]\nprogram = *\npath = %s, */log.1 ; one, two\n" % many, 0o644, True),
                ("log.1", "[x]\nprogram = *\npath = */a,\n    */b\n    */log.1\n", 0o644, True),
                ("log.1", "; a, b\n# c, d\n" + good, 0o644, True)):
            check(taken(library, folder, path, text, mode) == expected, "rule for %s, mode %o:\n%s", path,
                  mode, text)


def main():
    library = find(default_builddir(), LIBRARY)
    check = Check()
    symbols(check, library)
    confined(check, library)
    left_alone(check, library)
    rules(check, library)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
