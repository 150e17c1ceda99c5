#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Does scripts/check-doors notice? Lines of client/preload/doors.def and calls.def taken away, classes changed, a
libc with one call more; and every other libc that lies on this machine."""
import glob
import importlib.machinery
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout

from harness import Check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "client", "preload", "doors.def")
CALLS = os.path.join(ROOT, "client", "preload", "calls.def")
# Those of databases' own systems (tests/db/get-mysql).
OTHERS = "/var/cache/pmemlogd-tests/*/usr/lib/*/libc.so.6"
MORE = """int open(const char *path, int flags, ...) { return path ? flags : -1; }
int pwritev9(int fd) { return fd; }
"""
# A kernel's header: what the doors are for, and calls that only newer ones have.
NUMBERS = "".join("#define __NR_%s %d\n" % pair for pair in (
    ("openat", 257), ("fchmodat2", 452), ("setxattrat", 463), ("removexattrat", 466), ("file_setattr", 469),
    ("listns", 470), ("syscalls", 999)))


def load():
    loader = importlib.machinery.SourceFileLoader("check_doors", os.path.join(ROOT, "scripts", "check-doors"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_doors", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Checker:
    """The checker in this process, and the exports of the machine's libraries once."""

    def __init__(self, folder):
        self.module = load()
        self.folder = folder
        seen = {}
        ask = self.module.exports

        def exports(path):
            if path not in seen:
                seen[path] = ask(path)
            return seen[path]
        self.module.exports = exports

    def __call__(self, table=None, calls=None, libc=None, numbers=None):
        """(exit, what it says) for another text of a table, or another library."""
        argv = ["check-doors"]
        for option, text in (("--table", table), ("--calls", calls), ("--numbers", numbers)):
            if text is not None:
                path = os.path.join(self.folder, option.strip("-"))
                with open(path, "w", encoding="ascii") as f:
                    f.write(text)
                argv += [option, path]
        if libc:
            argv += ["--libc", libc]
        said, sys.argv = io.StringIO(), argv
        with redirect_stdout(said):
            code = self.module.main()
        return code, said.getvalue()


def without(check, checker, text, what, known):
    """All lines that name a call away: each is missed. One that no library here has is missed nowhere."""
    lines = text.splitlines(keepends=True)
    names = {i: m.group(1) for i, m in ((i, re.match(r"(?:DOOR|CALL_[A-Z]+)\((\w+),", line))
                                        for i, line in enumerate(lines)) if m}
    code, said = checker(**{what: "".join(line for i, line in enumerate(lines) if i not in names)})
    missed = set(re.findall(r"^(\w+): ", said, re.M))
    wanted = {n for n in names.values() if n in known}
    check(code == 1 and len(wanted) > 100 and wanted <= missed, "%s: not missed: %s", what, sorted(wanted - missed))


def main():
    check = Check()
    with open(TABLE, encoding="ascii") as f:
        table = f.read()
    with open(CALLS, encoding="ascii") as f:
        calls = f.read()
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(folder)
        code, said = checker()
        check(code == 0, "as it is: %s", said)
        known = set().union(*(checker.module.exports(p) for p in checker.module.libraries(None)))
        known |= set(re.findall(r"^CALL_[A-Z]+\((\w+),", calls, re.M))
        without(check, checker, table, "table", known)
        without(check, checker, calls, "calls", known)
        for bad in (table.replace("DOOR(pwrite, TAKEN,", "DOOR(pwrite, HARMLESS,"),
                    table.replace("DOOR(pread, HARMLESS,", "DOOR(pread, TAKEN,"),
                    table.replace("DOOR(pread, HARMLESS,", "DOOR(pread, UNKNOWN,"),
                    table.replace("NUMBER(fchmodat2, TAKEN,", "NUMBER(fchmodat2, HARMLESS,"),
                    table.replace("NUMBER(setxattrat, TAKEN,", "NUMBER(setxattrat9, HARMLESS,"),
                    table.replace("NUMBER(getxattrat, HARMLESS,", "NUMBER(getxattrat, TAKEN,"),
                    table + 'NUMBER(fork, HARMLESS, "again")\n',
                    table + 'DOOR(pread, HARMLESS, "again")\n', table + 'BESIDE(pw*, "a verb")\n', table + "DOOR(x)\n",
                    ""):
            check(checker(table=bad)[0] == 1, "a bad table: %s", bad[-80:])
        library = os.path.join(folder, "libmore.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=MORE, text=True, check=True)
        code, said = checker(libc=library)
        check(code == 1 and said.startswith("pwritev9:"), "a call more: %s", said)
        code, said = checker(numbers=NUMBERS)
        check(code == 0, "a newer kernel: %s", said)
        code, said = checker(numbers=NUMBERS + "#define __NR_pwritev9 471\n")
        check(code == 1 and said.startswith("pwritev9: a system call"), "a system call more: %s", said)
        check(checker(numbers="")[0] == 1, "no system call at all")
        for libc in glob.glob(OTHERS):
            code, said = checker(libc=libc)
            check(code == 0, "%s:\n%s", libc, said)
            print("%s %s" % (libc, said.strip()))
    print("table: %d failed" % check.failed)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
