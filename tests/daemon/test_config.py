#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The configuration: what is accepted, what is refused and with which words (file, line, reason)."""
import os
import re
import subprocess
import unittest

import outer

# text of the file -> line, and a part of the reason
BAD = [
    ('nonsense = 1;', 1, "nonsense: unknown key"),
    ('\n\npool_dir = "/x";', 3, "pool_dir: unknown key"),
    ('pool = 5;', 1, "pool: wants text in double quotes"),
    ('pool = "relative";', 1, 'pool: "relative" is no absolute path'),
    ('pool = "";', 1, "no absolute path"),
    ('pool = "/a/../b";', 1, "`..`"),
    ('pool = "/%s";' % ("x" * 500), 1, "longer than 400"),
    ('run_dir = "/%s";' % ("x" * 90), 1, "longer than 80"),
    ('pool = "/a\\nb";', 1, "control character"),
    ('emulate = "true";', 1, "emulate: wants true or false"),
    ('emulate = 1;', 1, "emulate: wants true or false"),
    ('lane_size = 1048576;', 1, 'lane_size: wants text in double quotes, such as "256MiB"'),
    ('lane_size = "256";', 1, 'lane_size: "256" has no unit'),
    ('lane_size = "256MB";', 1, 'lane_size: "256MB" has a bad unit'),
    ('lane_size = "256mib";', 1, "bad unit"),
    ('lane_size = "1s";', 1, "bad unit"),
    ('lane_size = "MiB";', 1, "is no whole number"),
    ('lane_size = "-1MiB";', 1, "is no whole number"),
    ('lane_size = "1.5GiB";', 1, "bad unit"),
    ('lane_size = "1023KiB";', 1, "out of range, 1MiB to 4294967232B"),
    ('lane_size = "4GiB";', 1, "out of range"),
    ('lane_size = "18446744073709551617B";', 1, "out of range"),
    # 2^64 + 1 MiB, and ten times that: they would fit once they have wrapped
    ('lane_size = "18446744073710600192B";', 1, "out of range"),
    ('lane_size = "184467440737106001920B";', 1, "out of range"),
    ('lane_size = "18014398509481985GiB";', 1, "out of range"),
    ('lane_size = "1048577B";', 1, "no multiple of 64"),
    ('bypass_size = "2MiB";', 1, "bypass_size: \"2MiB\" is out of range, 4KiB to 1MiB"),
    ('bypass_size = "1KiB";', 1, "out of range"),
    ('destage_age = "9ms";', 1, "out of range, 10ms to 1h"),
    ('destage_age = "61min";', 1, "out of range"),
    ('destage_age = 1;', 1, 'wants text in double quotes, such as "10s"'),
    ('reconnect_timeout = "2min";', 1, "out of range, 10ms to 1min"),
    ('clock_wait = "2h";', 1, "out of range, 0ms to 1h"),
    ('allow_users = "mysql";', 1, "allow_users: wants a list"),
    ('allow_users = [ 1, 2 ];', 1, "entry 1 is no text"),
    ('allow_groups = ( "a", 2 );', 1, "entry 2 is no text"),
    ('trust_fs = [ "" ];', 1, "entry 1 is no text"),
    ('log_level = "loud";', 1, 'log_level: "loud" is none of'),
    ('log_level = 3;', 1, "wants text"),
    ('pool = "/a";\npool = "/b";', 2, "duplicate"),
    ('pool = "/a"\nemulate true;', 2, "syntax error"),
    ('pool = "/a', 1, ""),
    ('run_dir = "/a";\nsocket = "/b/pmemlogd.sock";', 2, 'socket: "/b/pmemlogd.sock" does not lie in'),
    ('run_dir = "/a";\nsocket = "/a/b/pmemlogd.sock";', 2, "does not lie in"),
    ('pool = "/a";\x00', 0, "zero byte"),
]

GOOD = [
    "",
    "# nothing but a comment\n",
    'lane_size = "4294967232B";',
    'lane_size = "1 MiB";',
    'destage_age = "10ms"; clock_wait = "0s"; reconnect_timeout = "60s";',
    'bypass_size = "4KiB";',
    'allow_users = [ ]; allow_groups = ( "a", "1000" );',
    'run_dir = "/run/x/"; socket = "/run/x/other.sock";',
    'pool = "/a..b/..c";',
    'pool : "/a", emulate : true',
]


def check(path):
    r = subprocess.run([outer.FAKE, "-c", path, "--check-config"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout, r.stderr


class Config(outer.OuterTest):
    def put(self, text):
        path = os.path.join(self.folder.path, "x.conf")
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o644)
        return path

    def test_bad(self):
        for text, line, reason in BAD:
            with self.subTest(text):
                path = self.put(text)
                code, out, err = check(path)
                self.assertEqual(code, 78, err)
                self.assertEqual(out, "")
                self.assertTrue(err.startswith("%s:%d: " % (path, line)), err)
                self.assertIn(reason, err)

    def test_good(self):
        for text in GOOD:
            with self.subTest(text):
                self.assertEqual(check(self.put(text)), (0, "OK\n", ""))

    def test_daemon_says_the_same(self):
        self.folder.write(lane_size='"1XB"')
        d = self.start()
        self.assertEqual(d.end(), 78)
        self.assertLog(d, "%s:5: lane_size: \"1XB\" has a bad unit" % self.folder.config)

    def test_missing(self):
        path = os.path.join(self.folder.path, "not-there.conf")
        code, _, err = check(path)
        self.assertEqual(code, 78)
        self.assertIn("%s:0: cannot be read: No such file" % path, err)

    def test_not_a_file(self):
        fifo = os.path.join(self.folder.path, "fifo")
        os.mkfifo(fifo)
        for path in (self.folder.path, fifo, "/dev/null"):
            code, _, err = check(path)
            self.assertEqual(code, 78, path)
            self.assertIn("not a regular file", err)

    def test_huge(self):
        code, _, err = check(self.put("#" * (1024 * 1024 + 1)))
        self.assertEqual(code, 78)
        self.assertIn("larger than 1 MiB", err)

    def test_include(self):
        self.put('lane_size = "1MiB";')
        path = os.path.join(self.folder.path, "main.conf")
        with open(path, "w") as f:
            f.write('@include "%s"\n' % os.path.join(self.folder.path, "x.conf"))
        code, _, err = check(path)
        self.assertEqual(code, 78)
        self.assertIn("@include is not taken", err)

    def test_writable_by_others(self):
        path = self.put("")
        for mode in (0o664, 0o646, 0o666):
            os.chmod(path, mode)
            code, _, err = check(path)
            self.assertEqual(code, 78, oct(mode))
            self.assertIn("lets others write it", err)
        os.chmod(path, 0o600)
        self.assertEqual(check(path)[0], 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to give a file away")
    def test_owner(self):
        path = self.put("")
        os.chown(path, 12345, 12345)
        link = os.path.join(self.folder.path, "link.conf")
        os.symlink(path, link)
        for p in (path, link):  # a link changes nothing: the file itself is looked at
            code, _, err = check(p)
            self.assertEqual(code, 78)
            self.assertIn("belongs to user 12345", err)

    def test_every_key_is_documented(self):
        with open(os.path.join(outer.TOP, "daemon", "config_keys.def")) as f:
            keys = re.findall(r"^KEY\((\w+),", f.read(), re.M)
        self.assertGreater(len(keys), 10)
        texts = {}
        for name in ("etc/pmemlogd.conf", "man/pmemlogd.conf.5"):
            path = os.path.join(outer.TOP, name)
            with open(path) as f:
                texts[name] = f.read()
        with open(os.path.join(outer.TOP, "etc", "pmemlogd.conf")) as f:
            shown = re.findall(r"^#(\w+) = ", f.read(), re.M)
        self.assertEqual(sorted(shown), sorted(keys))
        for key in keys:
            self.assertRegex(texts["man/pmemlogd.conf.5"], r"\b%s\b" % key)

    def test_shipped_file(self):
        with open(os.path.join(outer.TOP, "etc", "pmemlogd.conf")) as f:
            text = f.read()
        self.assertEqual(check(self.put(text))[0], 0)
        # uncommented it must say the same as nothing at all
        whole = re.sub(r"^#(\w+ = )", r"\1", text, flags=re.M)
        self.assertEqual(check(self.put(whole))[1:], ("OK\n", ""))


class CommandLine(unittest.TestCase):
    def run_it(self, *words):
        return subprocess.run([outer.FAKE, *words], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)

    def test_help_version(self):
        r = self.run_it("--help")
        self.assertEqual(r.returncode, 0)
        for word in ("--check-config", "lane_size", "SIGTERM"):
            self.assertIn(word, r.stdout)
        r = self.run_it("--version")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertRegex(r.stdout, r"^pmemlogd \d+\.\d+\.\d+\n$")

    def test_usage(self):
        for words in (["--nonsense"], ["-x"], ["word"], ["-c"]):
            r = self.run_it(*words)
            self.assertEqual(r.returncode, 64, words)
            self.assertIn("--help", r.stderr)


if __name__ == "__main__":
    unittest.main()
