# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the tests of native logs share that use a real daemon: one for each test, pmemlogctl, Python clients."""
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "daemon"), os.path.join(HERE, "..", "..", "client", "python"), HERE]

# One test by hand, and mutants: all from one build folder.
_BUILD = os.environ.get("BUILDDIR") or os.environ.get("BUILD")
for _name, _path in (("PMEMLOGD", "daemon/pmemlogd"), ("PMEMLOGCTL", "client/ctl/pmemlogctl"),
                     ("PID1", "tests/daemon/pid1"), ("CALLFAULT", "tests/logs/libcallfault.so"),
                     ("LIBRARY", "client/lib/libpmemlogd.so.*[0-9]")):
    if _BUILD:
        os.environ.setdefault(_name, (glob.glob(os.path.join(_BUILD, _path)) or [_path])[0])

import outer  # noqa: E402
import pmemlogd  # noqa: E402
import wire  # noqa: E402

ROOT = os.geteuid() == 0
USER = "root" if ROOT else str(os.geteuid())


class RealTest(outer.OuterTest):
    program = outer.REAL

    def setUp(self):
        super().setUp()
        self.ctl("pool", "create", expect=0)
        self.daemon = self.start().ready()

    def restart(self, kill=False):
        """Another daemon in place of this one."""
        if kill:
            self.daemon.kill()
        else:
            self.assertEqual(self.daemon.stop(), 0)
        self.daemon = self.start().ready()

    def ctl(self, *words, expect=None, data=b""):
        """pmemlogctl with data on standard input; its output is bytes."""
        r = subprocess.run([outer.CTL, "-c", self.folder.config, *words], input=data, capture_output=True,
                           timeout=120, check=False)
        if expect is not None:
            self.assertEqual(r.returncode, expect, r.stdout + r.stderr)
        return r

    def connect(self, domain="test", **kw):
        kw.setdefault("timeout", outer.PATIENCE)
        c = pmemlogd.Connection(self.folder.socket, domain, **kw)
        self.addCleanup(c.close)
        return c

    def client(self, hello="test"):
        """One that sends whatever it is told to; hello: the domain that it has named, None: none yet."""
        c = wire.Client(self.folder.socket, timeout=outer.PATIENCE)
        self.addCleanup(c.close)
        if hello:
            self.assertEqual(c.ask(wire.HELLO, wire.hello(hello, want=0)).status, 0)
        return c

    def raises(self, number, function, *args, **kw):
        with self.assertRaises(pmemlogd.Error) as e:
            function(*args, **kw)
        self.assertEqual(e.exception.errno, number, e.exception)
        return e.exception
