#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""enable, disable and check of units: files below a root of their own, as the distributions lay them."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest

import base
from base import outer

MARIADB = """[Unit]
Description=MariaDB
[Service]
Type=notify
User=mysql
# ExecStart=/usr/sbin/other
EnvironmentFile=-/run/mariadb-wsrep-new-cluster
ExecStart=/bin/sh -c "set -f; [ ! -e /usr/bin/galera_recovery ] && VAR= || \\
 VAR=`/usr/bin/galera_recovery`; [ $? -eq 0 ] || exit 1; \\
 exec /usr/sbin/mariadbd $MYSQLD_OPTS $_WSREP_NEW_CLUSTER $VAR"
"""
MYSQL = "[Service]\nUser=mysql\nExecStart=/usr/sbin/mysqld\nEnvironmentFile=-/etc/sysconfig/mysql\n"
TEMPLATE = ("[Service]\nUser=mysql\nExecStart=/usr/sbin/mysqld --defaults-group-suffix=@%I $MYSQLD_OPTS\n"
            "ProtectSystem=strict\n")
CLUSTER = "[Service]\nType=forking\nExecStart=-/usr/bin/pg_ctlcluster --skip-systemctl-redirect %i start\n"
LIBRARY = re.search(r"Environment=LD_PRELOAD=(\S+)", open(os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.environ["PMEMLOGCTL"]))),
    "systemd", "mariadb-pmemlogd.conf")).read()).group(1)


class Rooted(base.CtlTest):
    def setUp(self):
        super().setUp()
        self.root = os.path.join(self.folder.path, "root")
        self.units = "/lib/systemd/system/"
        self.put(LIBRARY, "")
        for name in ("mariadb", "mysql", "postgresql"):
            with open(os.path.join(outer.TOP, "etc", "preload.d", name + ".ini")) as f:
                self.put("/etc/pmemlogd/preload.d/%s.ini" % name, f.read())
        os.makedirs(self.root + "/etc/systemd/system")
        for program in ("/usr/sbin/mariadbd", "/usr/sbin/mysqld", "/usr/bin/pg_ctlcluster"):
            self.put(program, "")

    def put(self, path, text):
        whole = self.root + path
        os.makedirs(os.path.dirname(whole), mode=0o755, exist_ok=True)
        with open(whole, "w") as f:
            f.write(text)
        os.chmod(whole, 0o644)

    def get(self, path):
        with open(self.root + path) as f:
            return f.read()

    def there(self, path):
        return os.path.exists(self.root + path)

    def tree(self):
        out = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                with open(path) as f:
                    out[path] = f.read()
        return out

    def enable(self, *words, expect=0):
        return self.ctl("enable", "--root", self.root, *words, expect=expect, config=False)

    def disable(self, *words, expect=0):
        return self.ctl("disable", "--root", self.root, *words, expect=expect, config=False)

    def check(self, *words, expect=0):
        r = self.ctl("check", "--json", "--root", self.root, *words, expect=expect)
        return json.loads(r.stdout)

    def ids(self, o, severity="fault"):
        return {f["id"] for f in o["findings"] if f["severity"] == severity}

    def refused(self, *words):
        """enable is refused, says why, and has written nothing."""
        before = self.tree()
        r = self.enable("--json", *words, expect=1)
        self.assertEqual(self.tree(), before)
        o = json.loads(r.stdout)
        self.assertTrue(all(f["remedy"] for f in o["findings"] if f["severity"] == "fault"))
        return self.ids(o)


class Enable(Rooted):
    def example(self, name):
        """The installed example without its comments."""
        top = os.path.dirname(os.path.dirname(os.path.dirname(outer.CTL)))
        with open(os.path.join(top, "systemd", name + "-pmemlogd.conf")) as f:
            return self.settings(f.read())

    def settings(self, text):
        lines = [line.replace('"', "") for line in text.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]

    def test_mariadb(self):
        self.put(self.units + "mariadb.service", MARIADB)
        self.enable("mariadb")
        path = "/etc/systemd/system/mariadb.service.d/pmemlogd.conf"
        self.assertEqual(self.settings(self.get(path)), self.example("mariadb"))
        self.check("mariadb")
        before = self.tree()
        self.enable("mariadb.service")  # again: the same
        self.assertEqual(self.tree(), before)

    def test_mysql_and_alias(self):
        self.put(self.units + "mysql.service", MYSQL)
        os.symlink("/lib/systemd/system/mysql.service", self.root + "/etc/systemd/system/mysqld.service")
        self.enable("mysqld")
        path = "/etc/systemd/system/mysql.service.d/pmemlogd.conf"
        self.assertEqual(self.settings(self.get(path)), self.example("mysql"))
        self.assertFalse(self.there("/etc/systemd/system/mysqld.service.d"))

    def test_instance(self):
        self.put(self.units + "mysqld@.service", TEMPLATE)
        self.enable("mysqld@a")
        text = self.get("/etc/systemd/system/mysqld@a.service.d/pmemlogd.conf")
        self.assertIn("\nEnvironment=PMEMLOGD_DOMAIN=mysqld@a\n", text)
        self.assertIn("gate mysql/mysqld@a\n", text)
        self.assertIn("\nReadWritePaths=-/run/pmemlogd\n", text)
        self.assertFalse(self.there("/etc/systemd/system/mysqld@.service.d"))
        self.assertEqual(self.check("mysqld@b", expect=1)["findings"][0]["id"], "not-enabled")
        self.enable("mysqld@", expect=64)

    def test_cluster(self):
        self.put(self.units + "postgresql@.service", CLUSTER)
        path = "/etc/postgresql/15/main/environment"
        self.put(path, "# environment\nTZ = 'UTC'\n")
        self.enable("postgresql@15-main")
        self.assertEqual(self.get(path), "# environment\nTZ = 'UTC'\nLD_PRELOAD = '%s'\n"
                         "PMEMLOGD_DOMAIN = '15-main'\n" % LIBRARY)
        dropin = self.get("/etc/systemd/system/postgresql@15-main.service.d/pmemlogd.conf")
        self.assertIn("gate postgres/15-main\n", dropin)
        self.assertNotIn("\nEnvironment", dropin)
        self.check("postgresql@15-main")
        before = self.tree()
        self.enable("postgresql@15-main")
        self.assertEqual(self.tree(), before)
        self.disable("postgresql@15-main")
        self.assertEqual(self.get(path), "# environment\nTZ = 'UTC'\n")
        self.check("postgresql@15-main", expect=1)

    def test_dry_run(self):
        self.put(self.units + "mariadb.service", MARIADB)
        before = self.tree()
        r = self.enable("--dry-run", "mariadb")
        self.assertIn("Would write", r.stdout)
        self.assertIn("LD_PRELOAD", r.stdout)
        self.assertEqual(self.tree(), before)
        o = json.loads(self.enable("--dry-run", "--json", "mariadb").stdout)
        self.assertEqual((o["done"], o["user"], o["domain"], len(o["changes"])),
                         (False, "mysql", "mariadb", 1))
        self.assertEqual(self.tree(), before)

    def test_another_library_stays(self):
        self.put(self.units + "mysql.service", MYSQL + 'Environment="LD_PRELOAD=/usr/lib/libjemalloc.so.2"\n')
        self.enable("mysql")
        text = self.get("/etc/systemd/system/mysql.service.d/pmemlogd.conf")
        self.assertIn('Environment="LD_PRELOAD=%s /usr/lib/libjemalloc.so.2"\n' % LIBRARY, text)
        self.enable("mysql")
        self.assertEqual(self.get("/etc/systemd/system/mysql.service.d/pmemlogd.conf"), text)

    def test_domain_stays(self):
        """Another domain would leave commits of the old one behind a gate that nobody asks."""
        self.put(self.units + "mysql.service", MYSQL)
        self.enable("--domain", "shop", "mysql")
        self.enable("mysql")
        self.assertIn("PMEMLOGD_DOMAIN=shop\n",
                      self.get("/etc/systemd/system/mysql.service.d/pmemlogd.conf"))
        self.assertIn("disable", self.enable("--domain", "other", "mysql", expect=1).stderr)
        for bad in ("", "a b", "a\nb", "%i", "x" * 64, 'a"'):
            self.put(self.units + "x.service", MYSQL)
            self.enable("--domain=" + bad, "x", expect=64)

    def test_refused(self):
        self.put(self.units + "mysql.service", MYSQL)
        self.put("/etc/sysconfig/mysql", "LD_PRELOAD=/usr/lib64/libjemalloc.so.1\n")
        self.assertEqual(self.refused("mysql"), {"environment-file"})
        os.unlink(self.root + "/etc/sysconfig/mysql")
        os.chmod(self.root + "/usr/sbin/mysqld", 0o2755)
        self.assertEqual(self.refused("mysql"), {"set-id"})
        os.chmod(self.root + "/usr/sbin/mysqld", 0o755)
        os.unlink(self.root + LIBRARY)
        self.assertEqual(self.refused("mysql"), {"wrong-path"})
        self.put(LIBRARY, "")
        shutil.rmtree(self.root + "/etc/pmemlogd/preload.d")
        self.assertEqual(self.refused("mysql"), {"no-rule"})

    @unittest.skipUnless(os.geteuid() == 0, "root gives capabilities to files")
    def test_file_capability(self):
        self.put(self.units + "mysql.service", MYSQL)
        # version 2, permitted and effective: CAP_SYS_NICE
        try:
            os.setxattr(self.root + "/usr/sbin/mysqld", "security.capability",
                        struct.pack("<IIIII", 0x02000001, 1 << 23, 0, 0, 0))
        except OSError as e:
            self.skipTest("no capabilities on files here: %s" % e)
        self.assertEqual(self.refused("mysql"), {"file-capability"})

    def test_no_server(self):
        self.put(self.units + "postgresql.service", "[Service]\nType=oneshot\nExecStart=/bin/true\nUser=x\n")
        self.assertIn("no-server", self.refused("postgresql"))

    def test_no_user(self):
        self.put(self.units + "mysql.service", "[Service]\nExecStart=/usr/sbin/mysqld\n")
        self.assertIn("--user", self.enable("mysql", expect=1).stderr)
        self.enable("--user=mysql", "mysql")

    def test_names(self):
        self.assertIn("no unit", self.enable("nothing", expect=1).stderr)
        for bad in ("", "a/b", ".", "../x", "a b", "x" * 300):
            self.enable("--", bad, expect=64)
        os.symlink("/dev/null", self.root + "/etc/systemd/system/masked.service")
        self.enable("masked", expect=1)

    def test_notes(self):
        self.put(self.units + "mysql.service", MYSQL)
        self.put("/etc/apparmor.d/usr.sbin.mysqld", "/usr/sbin/mysqld {\n}\n")
        self.put("/etc/selinux/config", "SELINUX=enforcing\n")
        o = json.loads(self.enable("--json", "mysql").stdout)
        self.assertEqual(self.ids(o, "note"), {"apparmor", "selinux"})
        self.put("/etc/apparmor.d/local/usr.sbin.mysqld", "/etc/pmemlogd/preload.d/ r,\n")
        o = json.loads(self.enable("--json", "mysql").stdout)
        self.assertEqual(self.ids(o, "note"), {"selinux"})

    def test_hostile_files(self):
        """Whatever stands in a unit: an answer, and no file outside its place."""
        for text in ("", "[Service", "=\n==\n", "[Service]\nExecStart=" + "x" * 100000, "\\\n" * 1000,
                     "[Service]\nExecStart=\"\nUser=", "\0\xff" * 100, "[Service]\nExecStart=mysqld\\",
                     "[Service]\nExecStart=/usr/sbin/mysqld\nUser=../../x\n"):
            self.put(self.units + "mysql.service", text)
            r = self.ctl("enable", "--dry-run", "--root", self.root, "mysql", config=False)
            self.assertIn(r.returncode, (0, 1, 64), text[:40])


class Disable(Rooted):
    def test_back_to_nothing(self):
        self.put(self.units + "mariadb.service", MARIADB)
        before = self.tree()
        self.enable("mariadb")
        self.assertIn("Would remove", self.disable("--dry-run", "mariadb").stdout)
        self.disable("mariadb")
        self.assertEqual(self.tree(), before)
        self.assertFalse(self.there("/etc/systemd/system/mariadb.service.d"))
        self.assertIn("nothing to do", self.disable("mariadb").stdout)

    def test_others_stay(self):
        self.put(self.units + "mariadb.service", MARIADB)
        self.put("/etc/systemd/system/mariadb.service.d/limits.conf", "[Service]\nLimitNOFILE=9\n")
        before = self.tree()
        self.enable("mariadb")
        self.disable("mariadb")
        self.assertEqual(self.tree(), before)

    def test_stray(self):
        """Wherever else the library is named: said, exit 1."""
        line = "LD_PRELOAD=%s" % LIBRARY
        for path, text in (
                ("/etc/systemd/system/mariadb.service.d/override.conf", "[Service]\nEnvironment=%s\n" % line),
                ("/etc/environment", line + "\n"), ("/etc/ld.so.preload", LIBRARY + "\n"),
                ("/etc/default/mariadb", "export " + line + "\n"),
                ("/etc/mysql/my.cnf", "[mysqld_safe]\nmalloc-lib=%s\n" % LIBRARY)):
            with self.subTest(path):
                self.put(self.units + "mariadb.service", MARIADB)
                self.enable("mariadb")
                self.put(path, text)
                r = self.disable("mariadb", expect=1)
                self.assertIn("%s still names" % path, r.stdout)
                self.put(path, "# " + text.replace("\n", "\n#"))
                self.disable("mariadb")
                os.unlink(self.root + path)


class CheckUnit(Rooted):
    def test_gate(self):
        self.put(self.units + "mariadb.service", MARIADB)
        self.assertEqual(self.ids(self.check("mariadb", expect=1)), {"not-enabled"})
        path = "/etc/systemd/system/mariadb.service.d/pmemlogd.conf"
        self.put(path, '[Service]\nEnvironment="LD_PRELOAD=%s"\n' % LIBRARY)
        self.assertEqual(self.ids(self.check("mariadb", expect=1)), {"no-gate"})
        self.put(path, '[Service]\nEnvironment="LD_PRELOAD=%s" PMEMLOGD_DOMAIN=a\n'
                 "ExecStartPre=+/usr/bin/pmemlogctl gate mysql/b\n" % LIBRARY)
        self.assertEqual(self.ids(self.check("mariadb", expect=1)), {"other-gate"})
        self.put(path, "[Service]\nExecStartPre=+/usr/bin/pmemlogctl gate mysql/b\n")
        self.assertEqual(self.ids(self.check("mariadb", expect=1)), {"not-loading"})


class CheckProcess(base.Shimmed):
    """Real processes, with and without the library."""

    def check(self, pid, expect=None):
        o = json.loads(self.ctl("check", "--json", str(pid), expect=expect).stdout)
        self.assertEqual(len(o["processes"]), 1)
        self.ctl("check", str(pid), expect=expect)
        return o["processes"][0]

    def ids(self, o):
        return [f["id"] for f in o["findings"]]

    def test_accelerated(self):
        self.daemon()
        path = os.path.join(self.folder.path, "log")
        p = self.writer(path)
        self.in_lane(path)
        o = self.check(p.pid, expect=0)
        self.assertEqual((o["loaded"], o["session"], self.ids(o)), (True, True, ["accelerated"]))
        self.assertEqual([(f["path"], f["state"]) for f in o["files"]], [(path, "lane")])
        self.assertEqual(o["library"], os.path.realpath(os.environ["PRELOAD"]))

    def test_without(self):
        path = os.path.join(self.folder.path, "log")
        o = self.check(self.writer(path, shim=False).pid, expect=1)
        self.assertEqual((o["loaded"], self.ids(o)), (False, ["not-asked"]))

    def test_wrong_path(self):
        path = os.path.join(self.folder.path, "log")
        p = self.writer(path, shim=False, LD_PRELOAD="/nowhere/libpmemlogd-preload.so")
        self.assertEqual(self.ids(self.check(p.pid, expect=1)), ["wrong-path"])

    def test_no_rule(self):
        path = os.path.join(self.folder.path, "log")
        p = self.writer(path, rules=self.rules(path, program="another"))
        self.assertEqual(self.ids(self.check(p.pid, expect=1)), ["no-rule"])

    def test_rule_does_not_match(self):
        path = os.path.join(self.folder.path, "log")
        p = self.writer(path, rules=self.rules("/another/*"))
        o = self.check(p.pid, expect=1)
        self.assertEqual(self.ids(o), ["no-rule-matches"])
        self.assertIn(path, o["findings"][0]["text"])

    def test_started_without_daemon(self):
        os.makedirs(os.path.join(self.folder.run_dir, "control"))
        os.makedirs(os.path.join(self.folder.run_dir, "bypass"))
        os.chmod(os.path.join(self.folder.run_dir, "bypass"), 0o1777)
        path = os.path.join(self.folder.path, "log")
        o = self.check(self.writer(path).pid, expect=1)
        self.assertEqual(self.ids(o), ["started-without-daemon"])
        self.assertEqual([f["state"] for f in o["files"]], ["no session"])

    def test_old_version(self):
        library = os.path.join(self.folder.path, "libpmemlogd-preload.so")
        shutil.copy(os.environ["PRELOAD"], library)
        self.daemon()
        path = os.path.join(self.folder.path, "log")
        p = self.writer(path, shim=False, LD_PRELOAD=library)
        self.in_lane(path)
        os.unlink(library)
        o = self.check(p.pid, expect=1)
        self.assertEqual(self.ids(o), ["old-version", "accelerated"])

    def test_parent_took_it_out(self):
        script = "import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import sys; " \
                 "print(1, flush=True); sys.stdin.read()'], env={}); p.wait()"
        p = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE,
                             env=dict(os.environ, LD_PRELOAD=os.environ["PRELOAD"]))
        self.addCleanup(self.end_writer, p)
        p.stdout.readline()
        with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
            child = int(f.read().split()[0])
        self.assertEqual(self.ids(self.check(child, expect=1)), ["environment-cleared"])
        p.stdin.close()

    def test_nobody(self):
        self.ctl("check", "999999999", expect=1)
        self.ctl("check", "0", expect=64)
        self.ctl("check", "99999999999999999999", expect=64)


class CheckFake(Rooted):
    """What needs another machine: /proc as such a machine shows it."""

    def process(self, pid, environ="", maps="/lib64/ld-linux-x86-64.so.2", secure=0, label=None,
                exe="/usr/sbin/mysqld", parent=1, name="mysqld"):
        folder = "/proc/%d" % pid
        self.put(folder + "/status", "Name:\t%s\nPPid:\t%d\nUid:\t27\t27\t27\t27\n" % (name, parent))
        self.put(folder + "/maps", "".join("7f00-7f01 r-xp 0 08:01 7   %s\n" % m for m in maps.split()))
        with open(self.root + folder + "/auxv", "wb") as f:
            f.write(struct.pack("<QQQQ", 23, secure, 0, 0))
        self.put(folder + "/environ", environ or "A=b\0")
        if label:
            self.put(folder + "/attr/current", label + "\n")
        os.makedirs(self.root + folder + "/fd", exist_ok=True)
        os.symlink(exe, self.root + folder + "/exe")

    def cause(self, pid):
        o = self.check(str(pid), expect=1)["processes"][0]
        faults = [f for f in o["findings"] if f["severity"] != "ok"]
        self.assertTrue(all(f["remedy"] for f in faults))
        return [f["id"] for f in faults]

    def test_causes(self):
        asked = "LD_PRELOAD=%s\0" % LIBRARY
        loaded = "/lib64/ld-linux-x86-64.so.2 " + LIBRARY
        for n, (kw, want) in enumerate((
                (dict(environ=asked, secure=1), "at-secure"),
                (dict(environ=asked, secure=1, label="system_u:system_r:mysqld_t:s0"), "selinux"),
                (dict(environ=asked, label="/usr/sbin/mysqld (enforce)"), "apparmor"),
                (dict(environ=asked, maps="/usr/sbin/mysqld"), "static"),
                (dict(environ=asked), "not-loaded"),
                (dict(), "not-asked"),
                (dict(environ=asked, maps=loaded, exe="/usr/sbin/otherd"), "no-rule"),
                (dict(environ=asked, maps=loaded), "no-rule-matches"))):
            with self.subTest(want):
                self.process(100 + n, **kw)
                self.assertEqual(self.cause(100 + n), [want])

    def test_set_id(self):
        os.chmod(self.root + "/usr/sbin/mysqld", 0o4755)
        self.process(100, secure=1)
        self.assertEqual(self.cause(100), ["set-id"])

    def test_mysqld_safe(self):
        self.process(90, environ="LD_PRELOAD=%s\0" % LIBRARY, exe="/bin/sh", name="mysqld_safe")
        self.process(100, parent=90)
        self.assertEqual(self.cause(100), ["mysqld_safe"])

    def test_no_session(self):
        path = "/var/lib/mysql/#innodb_redo/#ib_redo7"
        loaded = "/lib64/ld-linux-x86-64.so.2 " + LIBRARY
        for pid, label, want in ((100, None, "no-session"), (101, "mysqld (enforce)", "apparmor")):
            self.process(pid, maps=loaded, label=label)
            os.symlink(path, self.root + "/proc/%d/fd/5" % pid)
            self.put("/proc/%d/fdinfo/5" % pid, "pos:\t0\nflags:\t0100002\n")
            self.assertEqual(self.cause(pid), [want])

    def test_unit(self):
        self.put(self.units + "mysql.service", MYSQL)
        self.enable("mysql")
        self.assertEqual([f["id"] for f in self.check("mysql")["findings"]], ["not-running"])
        self.process(100)
        self.put("/proc/100/cgroup", "0::/system.slice/mysql.service\n")
        o = self.check("mysql", expect=1)
        self.assertEqual([(p["pid"], p["unit"]) for p in o["processes"]], [(100, "mysql.service")])


if __name__ == "__main__":
    unittest.main()
