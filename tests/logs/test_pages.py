#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pages of section 3 against pmemlogd.h, and the header in C99 and C++17.

In the environment: CC, CXX (none: skipped), LIBRARY (libpmemlogd.so; none: not linked).
"""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
MAN = TOP / "man"
HEADER = (TOP / "include" / "pmemlogd.h").read_text()
CC = shlex.split(os.environ.get("CC", "cc"))
CXX = shlex.split(os.environ.get("CXX", "c++"))
LIBRARY = os.environ.get("LIBRARY")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(TOP / "include")]


def squeezed(text):
    """Without blanks beside stars and brackets; one elsewhere."""
    return re.sub(r" ?([*(),]) ?", r"\1", " ".join(text.split()))


def prototypes():
    """{name: (type, [arguments])} of the header."""
    code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
    found = {}
    for kind, name, arguments in re.findall(r"PMEMLOGD_API ([\w *]+?)(pmemlogd_\w+)\(([^)]*)\);", code):
        found[name] = (squeezed(kind), [squeezed(a) for a in arguments.split(",")])
    return found


def page_prototypes(path):
    found, kind, block = {}, None, None
    for line in path.read_text().splitlines():
        if line.startswith(".Ft "):
            kind = squeezed(line[4:])
        elif line.startswith(".Fn ") and kind:
            words = shlex.split(line[4:])
            found[words[0]] = (kind, [squeezed(w) for w in words[1:]])
            kind = None
        elif line.startswith(".Fo "):
            block = line[4:]
            found[block] = (kind, [])
        elif line.startswith(".Fa ") and block:
            found[block][1].append(squeezed(shlex.split(line[4:])[0]))
        elif line == ".Fc":
            block = kind = None
    return found


def installed():
    """{function: page} as man/meson.build installs them."""
    text = (MAN / "meson.build").read_text()
    table = text.split("functions = {")[1].split("}")[0]
    names = {}
    for page, others in re.findall(r"'(\w+)' : \[([^\]]*)\]", table):
        for name in [page, *re.findall(r"'(\w+)'", others)]:
            names["pmemlogd_" + name] = "pmemlogd_" + page
    return names


def example():
    text = (MAN / "libpmemlogd.3").read_text()
    code = text.split(".Bd -literal\n")[1].split("\n.Ed")[0]
    return code.replace("\\e", "\\") + "\n"


class Pages(unittest.TestCase):
    def test_each_function_has_its_page(self):
        ours, pages = prototypes(), installed()
        self.assertGreater(len(ours), 20)
        self.assertEqual(sorted(pages), sorted(ours))
        for name, page in pages.items():
            with self.subTest(name):
                text = (MAN / (page + ".3")).read_text()
                self.assertEqual(page_prototypes(MAN / (page + ".3")).get(name), ours[name])
                self.assertRegex(text.split(".Nd ")[0], r"\.Nm %s\b" % name)
                self.assertRegex(text.split(".Sh DESCRIPTION")[1], r"\.Fn %s\b" % name)

    def test_errors(self):
        """Each error that the header names for a function stands on its page, or on the overview."""
        common = set(re.findall(r"^\.It (-E\w+)", (MAN / "libpmemlogd.3").read_text(), re.M))
        comments = re.findall(r"/\*((?:(?!\*/).)*)\*/\s*PMEMLOGD_API [\w *]+?(pmemlogd_\w+)\(", HEADER, re.S)
        self.assertGreater(len(comments), 10)
        for comment, name in comments:
            page = (MAN / (installed()[name] + ".3")).read_text()
            told = common | set(re.findall(r"^\.It (-E\w+)", page, re.M))
            named = set(re.findall(r"-E[A-Z]{2,}\b", comment.split("struct pmemlogd;")[-1])) - {"-EINTR"}
            with self.subTest(name):
                self.assertEqual(named - told, set())

    def test_common_errors(self):
        """What any function may return: the header's list and the overview's are one."""
        header = HEADER.split("\n * Errors:")[1].split("\n * An append that")[0]
        page = (MAN / "libpmemlogd.3").read_text().split(".Ss Conventions")[1].split(".Ss Threads")[0]
        self.assertEqual(set(re.findall(r"-E[A-Z]{2,}\b", header)), set(re.findall(r"^\.It (-E\w+)", page, re.M)))

    def test_each_function_has_its_row(self):
        """The table of what needs the daemon, is durable, may be cancelled; run-api.py sees whether it is true."""
        rows = re.findall(r"^\.It (pmemlogd_\w+) Ta (.+) Ta (.+) Ta (at its beginning|held off)$",
                          (MAN / "libpmemlogd.3").read_text(), re.M)
        self.assertEqual(sorted(r[0] for r in rows), sorted(prototypes()))

    def test_constants(self):
        """What the header defines for callers is explained somewhere in section 3."""
        text = "".join(p.read_text() for p in MAN.glob("*pmemlogd*.3"))
        for name in set(re.findall(r"\b(PMEMLOGD_[A-Z_]+)\b", HEADER)) - {"PMEMLOGD_API", "PMEMLOGD_H"}:
            if name not in ("PMEMLOGD_NAME_MAX", "PMEMLOGD_SOCKET", "PMEMLOGD_DOMAIN"):
                self.assertIn(name, text)

    def test_references(self):
        for page in MAN.glob("*.[1-8]"):
            for name, section in re.findall(r"\.Xr (pmemlog\S+|libpmemlogd) (\d)", page.read_text()):
                with self.subTest(page=page.name, name=name):
                    there = (MAN / ("%s.%s" % (name, section))).exists() or name in installed()
                    self.assertTrue(there)


class Header(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmemlogd-header.")
        self.addCleanup(shutil.rmtree, self.folder)

    def compile(self, compiler, source, text, *options):
        path = os.path.join(self.folder, source)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        r = subprocess.run([*compiler, *options, *STRICT, path], capture_output=True, text=True, check=False,
                           cwd=self.folder)
        self.assertEqual(r.returncode, 0, r.stderr)

    def use(self):
        """A program that names every function."""
        names = sorted(prototypes())
        return "#include <pmemlogd.h>\ntypedef void (*call)(void);\n" + "".join(
            "call use_%s(void);\ncall use_%s(void) { return (call)%s; }\n" % (n, n, n) for n in names)

    def test_c99(self):
        self.compile(CC, "first.c", "#include <pmemlogd.h>\nint nothing;\n", "-std=c99", "-c")
        self.compile(CC, "use.c", self.use(), "-std=c99", "-c", "-Wno-cast-function-type")

    def test_cxx17(self):
        if not shutil.which(CXX[0]):
            self.skipTest("no C++ compiler")
        self.compile(CXX, "use.cc", self.use(), "-std=c++17", "-c", "-Wno-cast-function-type")
        self.compile(CXX, "options.cc", "#include <pmemlogd.h>\n"
                     "int main() { pmemlogd_options o = {}; o.size = sizeof(o); struct pmemlogd_stat *s = nullptr;\n"
                     "(void)s; return o.size == 0; }\n", "-std=c++17", "-c")

    def test_example_compiles(self):
        self.compile(CC, "example.c", example(), "-std=c99", "-c")


class Library(unittest.TestCase):
    """The file alone, by LIBRARY; scripts/lint runs this, too."""

    def setUp(self):
        if not LIBRARY:
            self.skipTest("no library")

    def test_symbols(self):
        """The library has these symbols, each with the version node, and no others."""
        out = subprocess.check_output(["nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY], text=True)
        found = [line.split()[-1] for line in out.splitlines()]
        self.assertEqual(sorted(s for s in found if s != "PMEMLOGD_0" and not s.startswith("PMEMLOGD_0@")),
                         sorted(n + "@@PMEMLOGD_0" for n in prototypes()))

    def test_dynamic_section(self):
        out = subprocess.check_output(["readelf", "-d", LIBRARY], text=True)
        self.assertEqual(re.findall(r"NEEDED\).*\[(.*)\]", out), ["libc.so.6"])
        self.assertEqual(re.findall(r"SONAME\).*\[(.*)\]", out), ["libpmemlogd.so.0"])


if __name__ == "__main__":
    unittest.main()
