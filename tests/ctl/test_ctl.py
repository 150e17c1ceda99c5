#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""pmemlogctl: each verb's help, wrong use, success, and what it does when nobody is there."""
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import time
import unittest

import base
import outer
import wire
from base import USER, CtlTest

VERBS = ["pool create", "pool check", "pool verify", "status", "flush", "gate", "recover", "dump", "report",
         "enable", "disable", "check", "doctor"]
# those that want a word
NAMED = ("gate", "recover", "enable", "disable", "check")


class Words(CtlTest):
    def test_no_arguments(self):
        r = self.ctl(config=False, expect=64)
        for verb in VERBS:
            self.assertIn("\n  " + verb, r.stderr)

    def test_help_version(self):
        r = self.ctl("--help", config=False, expect=0)
        for verb in VERBS:
            self.assertIn("\n  " + verb, r.stdout)
        r = self.ctl("--version", config=False, expect=0)
        self.assertRegex(r.stdout, r"^pmemlogctl \d+\.\d+\.\d+\n$")

    def test_verb_help(self):
        for verb in VERBS:
            for words in (["--help"], ["-h"], ["x", "--help", "y"]):
                r = self.ctl(*verb.split(), *words, config=False, expect=0)
                self.assertIn("] %s" % verb, r.stdout)
                self.assertGreater(len(r.stdout.splitlines()), 4, verb)
                self.assertEqual(r.stderr, "")

    def test_unknown(self):
        self.assertIn('unknown verb "dance"', self.ctl("dance", expect=64).stderr)
        self.assertIn("create, check or verify?", self.ctl("pool", expect=64).stderr)
        self.assertIn("create, check or verify?", self.ctl("pool", "drain", expect=64).stderr)
        self.assertIn("unknown option", self.ctl("--dance", expect=64).stderr)
        self.assertIn("needs a value", self.ctl("--socket", expect=64).stderr)
        for verb in VERBS:
            words = verb.split() + (["x"] if verb in NAMED else [])
            r = self.ctl(*words, "--dance", expect=64)
            self.assertIn('%s: unknown option "--dance"' % verb, r.stderr)
            r = self.ctl(*words, "x", "y", expect=64)
            self.assertIn("unexpected argument", r.stderr)

    def test_missing_word(self):
        for verb in NAMED:
            self.assertIn("is missing", self.ctl(verb, expect=64).stderr)

    def test_one_mode_of_recover(self):
        r = self.ctl("recover", "--apply", "--discard", "x", expect=64)
        self.assertIn("one of", r.stderr)
        self.assertIn("needs a value", self.ctl("recover", "x", "--adopt", expect=64).stderr)

    def test_bad_names(self):
        for name in ("", "/", "a/", "/a", "a/b/c", "x" * 64, "x" * 500, "root/" + "x" * 64):
            for verb in ("gate", "recover"):
                self.ctl(verb, "--", name, expect=64)

    def test_configuration(self):
        self.folder.write(lane_size='"7"')
        for verb in VERBS:
            if verb in ("enable", "disable"):
                continue  # read units, and no configuration
            words = verb.split() + (["x"] if verb in NAMED else [])
            r = self.ctl(*words, expect=78)
            self.assertIn("%s:5: lane_size" % self.folder.config, r.stderr)
        r = self.ctl("-c", "/not/there.conf", "status", config=False, expect=78)
        self.assertIn("/not/there.conf:0: cannot be read", r.stderr)
        # status needs no configuration where the socket is named, and options may stand anywhere
        self.ctl("status", "--socket=%s" % self.folder.socket, expect=3)
        self.ctl("--socket", self.folder.socket, "status", expect=3)

    def test_full_disk(self):
        self.create()
        with open("/dev/full", "w") as full:
            r = subprocess.run([outer.CTL, "-c", self.folder.config, "pool", "check"], stdout=full,
                               stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(r.returncode, 1)
        self.assertIn("could not be written", r.stderr)


class Unreachable(CtlTest):
    def test_status_flush(self):
        for words in (["status"], ["status", "--json"], ["flush"], ["flush", "x"]):
            r = self.ctl(*words, expect=3)
            self.assertIn("cannot be reached at %s" % self.folder.socket, r.stderr)
            self.assertEqual(r.stdout, "")

    def test_daemon_is_silent(self):
        d = self.start(program=outer.FAKE).ready()
        os.kill(d.pid, signal.SIGSTOP)
        for words in (["status"], ["recover", "x"]):
            began = time.monotonic()
            self.ctl(*words, expect=3)
            self.assertGreater(time.monotonic() - began, 9)
        os.kill(d.pid, signal.SIGCONT)
        self.ctl("status", expect=0)

    def test_slow_work_is_waited_for(self):
        """Once it has said that it is at it there is no limit."""
        self.start(program=outer.FAKE, env={"FAKE_WORK_MS": "11000", "FAKE_DOMAINS": "0/a"}).ready()
        self.assertIn("done", self.ctl("flush", expect=0).stdout)

    def test_daemon_goes_away(self):
        d = self.start(program=outer.FAKE, env={"FAKE_WORK_MS": "60000", "FAKE_DOMAINS": "0/a"})
        d.ready()
        p = subprocess.Popen([outer.CTL, "-c", self.folder.config, "flush"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        time.sleep(0.5)
        os.kill(d.pid, signal.SIGKILL)
        _, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 3, err)


class Pool(CtlTest):
    def test_create(self):
        r = self.ctl("pool", "create", expect=0)
        self.assertIn("NOT DURABLE", r.stdout)
        self.assertEqual(os.stat(self.folder.state_dir).st_mode & 0o777, 0o700)
        r = self.ctl("pool", "create", expect=1)
        self.assertIn("--force", r.stderr)
        self.ctl("pool", "create", "--force", expect=0)

    def test_create_not_durable(self):
        self.folder.write(emulate="false")
        r = self.ctl("pool", "create", expect=1)
        self.assertFalse(os.path.exists(os.path.join(self.folder.pool, "pool")), r.stderr)
        r = self.ctl("pool", "create", "--emulate", expect=0)
        self.assertIn("emulate = true", r.stdout)

    def test_create_over_foreign_data(self):
        os.mkdir(self.folder.pool)
        precious = os.path.join(self.folder.pool, "precious")
        with open(precious, "w") as f:
            f.write("data")
        self.ctl("pool", "create", expect=1)
        with open(precious) as f:
            self.assertEqual(f.read(), "data")

    def test_create_beside_a_daemon(self):
        d = self.daemon()
        for words in (["pool", "create"], ["pool", "create", "--force"]):
            self.ctl(*words, expect=1)
        self.assertEqual(d.stop(), 0)
        self.start().ready()

    def test_check(self):
        self.ctl("pool", "check", expect=1)
        self.create()
        r = self.ctl("pool", "check", expect=0)
        self.assertIn("Nothing is wrong", r.stdout)
        self.assertIn("NOT DURABLE", r.stdout)
        o = json.loads(self.ctl("pool", "check", "--json", expect=0).stdout)
        self.assertEqual((o["path"], o["findings"], o["in_use"], o["domains"]),
                         (self.folder.pool, 0, False, []))

    def test_check_beside_a_daemon(self):
        self.daemon()
        with wire.Client(self.folder.socket) as c:
            c.ask(wire.HELLO, wire.hello("toy")).close()
            o = json.loads(self.ctl("pool", "check", "--json", expect=0).stdout)
        self.assertTrue(o["in_use"])
        self.assertEqual([d["name"] for d in o["domains"]], ["toy"])

    def test_check_changes_nothing(self):
        self.create()
        path = os.path.join(self.folder.pool, "pool")
        with open(path, "rb") as f:
            before = f.read()
        stamp = os.stat(path).st_mtime_ns
        self.ctl("pool", "check", expect=0)
        with open(path, "rb") as f:
            self.assertEqual(f.read(), before)
        self.assertEqual(os.stat(path).st_mtime_ns, stamp)

    def test_check_damage(self):
        self.create()
        path = os.path.join(self.folder.pool, "pool")
        with open(path, "r+b") as f:
            for at in (100, 4196):  # both superblocks
                f.seek(at)
                f.write(b"\xff\xff\xff\xff")
        self.ctl("pool", "check", expect=1)


class Daemon(CtlTest):
    def test_status(self):
        self.daemon()
        r = self.ctl("status", expect=1)  # an emulated pool: always
        self.assertTrue(r.stdout.startswith("NOT DURABLE"), r.stdout)
        self.assertIn("No domain", r.stdout)
        o = json.loads(self.ctl("status", "--json", expect=1).stdout)
        self.assertEqual((o["pool"]["emulated"], o["pool"]["durable"], o["exit"], o["domains"]),
                         (True, False, 1, []))
        self.assertIn("NOT DURABLE", o["pool"]["durability"])

    def test_status_of_a_file(self):
        self.daemon()
        path = os.path.join(self.folder.path, "a\x1b[31mfile")
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        with wire.Client(self.folder.socket) as c:
            c.ask(wire.HELLO, wire.hello("toy")).close()
            c.ask(wire.REGISTER, wire.register(path), fds=[fd])
            r = self.ctl("status", expect=1)
            self.assertIn("%s/toy: ok" % USER, r.stdout)
            self.assertIn("a?[31mfile", r.stdout)
            self.assertNotIn("\x1b", r.stdout)
            o = json.loads(self.ctl("status", "toy", "--json", expect=1).stdout)
            self.assertEqual([(d["name"], [f["state"] for f in d["files"]]) for d in o["domains"]],
                             [("toy", ["lane"])])
            o = json.loads(self.ctl("status", "other", "--json", expect=1).stdout)
            self.assertEqual(o["domains"], [])
        os.close(fd)

    def test_flush(self):
        self.daemon()
        self.ctl("flush", expect=0)
        with wire.Client(self.folder.socket) as c:
            c.ask(wire.HELLO, wire.hello("toy")).close()
            self.ctl("flush", expect=0)
            self.ctl("flush", "toy", expect=0)
            self.ctl("flush", USER + "/toy", expect=0)
        r = self.ctl("flush", "nothing", expect=1)
        self.assertIn("no such domain", r.stderr)
        r = self.ctl("flush", "no-such-user-here/toy", expect=1)
        self.assertIn("no such user", r.stderr)

    def test_status_to_a_terminal(self):
        """Whatever the daemon lets through: no control character reaches the terminal."""
        self.start(program=outer.FAKE).ready()
        r = self.ctl("status", expect=0)
        self.assertIn("Last error: ?[31m forged", r.stdout)
        self.assertNotIn("\x1b", r.stdout)
        self.assertIn("NOT DURABLE", r.stdout)  # what is not said to be durable is not

    def test_flush_shows_progress(self):
        d = self.start(program=outer.FAKE, env={"FAKE_WORK_MS": "1500", "FAKE_DOMAINS": "0/a"})
        d.ready()
        master, slave = pty.openpty()
        p = subprocess.Popen([outer.CTL, "-c", self.folder.config, "flush"], stdin=slave,
                             stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        out, _ = p.communicate(timeout=30)
        shown = os.read(master, 65536)
        os.close(master)
        self.assertEqual((p.returncode, out), (0, b"done\n"))
        self.assertIn(b"to go", shown)

    def test_gate(self):
        self.daemon()
        self.ctl("gate", "nothing", expect=0)
        self.ctl("gate", USER + "/nothing", expect=0)
        r = self.ctl("gate", "no-such-user-here/x", expect=1)
        self.assertIn("no user", r.stderr)

    def test_recover(self):
        self.daemon()
        r = self.ctl("recover", "nothing", expect=1)
        self.assertIn("no such domain", r.stderr)
        with wire.Client(self.folder.socket) as c:
            c.ask(wire.HELLO, wire.hello("toy")).close()
        time.sleep(1.5)
        r = self.ctl("recover", "--dry-run", "toy", expect=0)
        self.assertIn("%s/toy" % USER, r.stdout)
        self.assertEqual(json.loads(self.ctl("recover", "--json", "toy", expect=0).stdout)["domain"],
                         "toy")

    def test_confirmation(self):
        self.daemon()
        for mode in ("--apply", "--discard"):
            for kw in ({}, {"text": ""}, {"text": "other\n"}, {"text": "toy \n"}):
                r = self.ctl("recover", mode, "toy", expect=1, **kw)
                self.assertIn("nothing was done", r.stderr)
            r = self.ctl("recover", mode, "--yes=other", "toy", expect=1)
            self.assertIn("nothing was done", r.stderr)
            # the right name goes through to the daemon
            for words, kw in (([], {"text": "toy\n"}), (["--yes=toy"], {})):
                r = self.ctl("recover", mode, *words, "toy", expect=1, **kw)
                self.assertIn("no such domain", r.stderr)

    def test_prompt_on_a_terminal(self):
        self.daemon()
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(outer.CTL, [outer.CTL, "-c", self.folder.config, "recover", "--discard", "toy"])
        text = b""
        while b'"toy"' not in text:
            text += os.read(fd, 4096)
        self.assertIn(b"given up", text)
        os.write(fd, b"wrong\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        os.close(fd)


class WithoutDaemon(base.Left):
    """What a crash left, without a daemon."""

    def dry_run(self, expect=None):
        return json.loads(self.ctl("recover", "--json", "toy", expect=expect).stdout)

    def test_gate_replays(self):
        self.leave_record()
        self.assertEqual(self.contents(), b"old old old old")
        o = self.dry_run(expect=0)
        self.assertEqual((o["records"], len(o["files"])), (1, 1))
        self.assertEqual(self.contents(), b"old old old old")
        o = json.loads(self.ctl("pool", "check", "--json", expect=0).stdout)
        self.assertEqual((o["domains"][0]["records"], o["domains"][0]["live_bytes"]), (1, 128))
        r = self.ctl("pool", "check", "--empty", expect=1)
        self.assertIn("flush", r.stderr)
        r = self.ctl("gate", "toy", expect=0)
        self.assertIn("nothing is left over", r.stdout)
        self.ctl("pool", "check", "--empty", expect=0)
        self.assertEqual(self.contents(), b"committedld old")
        self.assertEqual(os.listxattr(self.file), [])
        self.assertFalse(os.path.exists(self.control))
        self.ctl("gate", USER + "/toy", expect=0)
        self.assertEqual(self.dry_run(expect=0)["records"], 0)
        # and the daemon goes on from there
        self.start().ready()
        with wire.Client(self.folder.socket) as c:
            self.assertEqual(c.ask(wire.HELLO, wire.hello("toy")).status, 0)

    def test_gate_while_a_session_lives(self):
        self.leave_record()
        import fcntl
        with open(self.control, "r+b") as f:
            # slot 1, as slot_take locks it
            fcntl.fcntl(f, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, (1 << 40) + 2, 1, 0))
            r = self.ctl("gate", "toy", expect=1)
            self.assertIn("running", r.stderr)
            for mode in ("--apply", "--discard"):
                self.ctl("recover", mode, "--yes=toy", "toy", expect=1)
            self.assertEqual(self.contents(), b"old old old old")
        self.ctl("gate", "toy", expect=0)
        self.assertEqual(self.contents(), b"committedld old")

    def test_same_boot_without_control_file(self):
        self.leave_record()
        os.unlink(self.control)
        r = self.ctl("gate", "toy", expect=1)
        self.assertIn("held", r.stderr)
        self.assertEqual(self.contents(), b"old old old old")
        self.ctl("recover", "--apply", "--yes=toy", "toy", expect=0)
        self.assertEqual(self.contents(), b"committedld old")
        self.ctl("gate", "toy", expect=0)

    def test_foreign_control_file(self):
        self.leave_record()
        for damage in ("cut", "zeros", "link", "fifo"):
            with self.subTest(damage):
                os.unlink(self.control)
                if damage == "link":
                    os.symlink("/etc/passwd", self.control)
                elif damage == "fifo":
                    os.mkfifo(self.control)
                else:
                    with open(self.control, "wb") as f:
                        f.truncate(0 if damage == "cut" else 1 << 20)
                self.ctl("gate", "toy", expect=1)
                self.assertEqual(self.contents(), b"old old old old")

    def test_quarantine(self):
        self.leave_record()
        os.removexattr(self.file, "user.pmemlogd.owner")
        r = self.ctl("gate", "toy", expect=1)
        self.assertIn("quarantined", r.stderr)
        self.assertIn("mark", r.stderr)
        self.ctl("gate", "toy", expect=1)
        self.assertEqual(self.contents(), b"old old old old")
        self.ctl("pool", "check", expect=1)
        self.assertNotEqual(self.dry_run()["files"][0]["row"], "")
        self.ctl("recover", "--apply", "toy", text="toy\n", expect=0)
        self.assertEqual(self.contents(), b"committedld old")
        self.ctl("gate", "toy", expect=0)

    def test_discard(self):
        self.leave_record()
        os.removexattr(self.file, "user.pmemlogd.owner")
        self.ctl("gate", "toy", expect=1)
        self.ctl("recover", "--discard", "--yes=toy", "toy", expect=0)
        self.assertEqual(self.contents(), b"old old old old")
        self.assertTrue(os.listdir(os.path.join(self.folder.state_dir, "quarantine")))
        self.ctl("gate", "toy", expect=0)

    def test_daemon_recovers_the_same(self):
        self.leave_record()
        d = self.start().ready()
        self.assertEqual(self.contents(), b"committedld old")
        self.ctl("gate", "toy", expect=0)
        self.assertEqual(d.stop(), 0)

    def test_adopt(self):
        self.create()
        path = os.path.join(self.folder.path, "copied")
        with open(path, "w"):
            pass
        os.setxattr(path, "user.pmemlogd.owner", b"\1" * 200)
        self.ctl("recover", "--adopt", path, "toy", expect=0)
        self.assertEqual(os.listxattr(path), [])
        self.ctl("recover", "--adopt", "/not/there", "toy", expect=1)

    def test_gate_waits_for_a_daemon(self):
        """The pool is taken and nobody answers yet: a daemon that is just starting."""
        self.create()
        import fcntl
        with open(os.path.join(self.folder.pool, "pool"), "r+b") as f:
            fcntl.fcntl(f, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
            p = subprocess.Popen([outer.CTL, "-c", self.folder.config, "gate", "toy"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
            time.sleep(1)
            self.assertIsNone(p.poll())
        out, err = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 0, err)
        self.assertIn(b"nothing is left over", out)


if __name__ == "__main__":
    unittest.main()
