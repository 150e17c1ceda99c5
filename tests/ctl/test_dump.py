#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""dump, pool verify, report: what they show of a good pool, a copied one, and of every damage; never a crash,
never a changed byte."""
import hashlib
import json
import os
import random
import shutil
import struct
import time
import unittest

import base
import outer
import wire

WRITE, PAD, FENCE, TOUCH, UNLINK, LINES = range(1, 7)
SECRET = b"row-of-a-customer"
ENTRY = 512
DOMAINS_AT = 65536
FILES_AT = DOMAINS_AT + 2 * 256 * ENTRY


def setUpModule():
    """Made once: pool and state as a daemon and a client that died leave them."""
    global template
    template = type("Template", (base.Left,), {"runTest": None})()
    template.setUp()
    template.leave_record(payload=SECRET)


def tearDownModule():
    template.doCleanups()


class Pooled(base.Shimmed):
    """A pool with a lane of five records, its daemon and client dead; a copy of the template's."""

    def setUp(self):
        super().setUp()
        for name in ("pool", "state"):
            shutil.copytree(os.path.join(template.folder.path, name),
                            os.path.join(self.folder.path, name))
        self.lane, self.file = template.lane, template.file
        self.lane_path = os.path.join(self.folder.pool, "lane-%06d" % self.lane)
        self.pool_path = os.path.join(self.folder.pool, "pool")
        with open(self.lane_path, "rb") as f:
            lane = f.read()
        self.ring, self.incarnation = struct.unpack_from("<QQ", lane, 16)
        self.tail, = struct.unpack_from("<Q", lane, 64)
        self.id, = struct.unpack_from("<Q", lane, 4096 + self.tail + 24)
        self.chain, = struct.unpack_from("<I", lane, 4096 + self.tail)
        self.head = self.tail + 128
        for kind, offset, payload in ((WRITE, 100, b"b" * 70), (TOUCH, 0, b""),
                                      (FENCE, self.tail, b""), (WRITE, 4096, b"c")):
            self.append(kind, offset, payload)

    def anew(self):
        """A daemon on a new pool, with a domain."""
        for path in (self.folder.pool, self.folder.state_dir):
            shutil.rmtree(path)
        self.daemon()
        c = wire.Client(self.folder.socket)
        self.addCleanup(c.close)
        c.ask(wire.HELLO, wire.hello("toy")).close()
        return c

    def append(self, kind, offset, payload, file_id=None):
        header = struct.pack("<HHQQQQIIQQ", kind, 0, self.incarnation, self.head,
                             self.id if file_id is None else file_id, offset, len(payload),
                             self.chain, time.time_ns(), self.head)
        self.chain = base.crc32c(header + payload)
        record = struct.pack("<I", self.chain) + header + payload
        self.patch(self.lane_path, 4096 + self.head % self.ring, record)
        self.head += 64 + (len(payload) + 63) // 64 * 64

    def patch(self, path, at, data):
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(data)

    def flip(self, path, at):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 0xff]))

    def dump(self, *words, expect=0):
        return json.loads(self.ctl("dump", "--json", *words, expect=expect).stdout)

    def verify(self, *words, expect=0):
        return json.loads(self.ctl("pool", "verify", "--json", *words, expect=expect).stdout)

    def said(self, o, severity):
        return ["%s: %s" % (f["where"], f["text"]) for f in o["findings"]
                if f["severity"] == severity]

    def sums(self):
        out = {}
        for name in sorted(os.listdir(self.folder.pool)):
            path = os.path.join(self.folder.pool, name)
            with open(path, "rb") as f:
                out[name] = hashlib.sha256(f.read()).digest(), os.stat(path).st_mtime_ns
        return out


class Dump(Pooled):
    def test_records(self):
        before = self.sums()
        o = self.dump("toy")
        self.assertEqual((o["domain"], o["lane"], o["tail"], o["head"], o["damage"]),
                         ("toy", self.lane, self.tail, self.head, ""))
        self.assertEqual([(r["type"], r["offset"], r["length"]) for r in o["records"]],
                         [("WRITE", 0, len(SECRET)), ("WRITE", 100, 70), ("TOUCH", 0, 0),
                          ("FENCE", self.tail, 0), ("WRITE", 4096, 1)])
        self.assertEqual({r["file"] for r in o["records"]}, {self.id})
        self.assertTrue(all(r["chained"] for r in o["records"]))
        self.assertEqual(o["files"], [{"id": self.id, "path": self.file}])
        self.assertEqual((o["shown"], o["bytes"]), (5, len(SECRET) + 71))
        self.assertEqual(self.sums(), before)

    def test_text(self):
        text = self.ctl("dump", expect=0).stdout  # the only domain
        self.assertIn("domain toy", text)
        self.assertIn(self.file, text)
        self.assertIn("5 records", text)
        self.assertRegex(text, r"\n +%d WRITE +%d +0 +%d  20\d\d-" % (self.tail, self.id, len(SECRET)))

    def test_data_is_asked_for(self):
        self.assertNotIn(SECRET.hex(), self.ctl("dump", expect=0).stdout)
        self.assertNotIn("data", self.dump()["records"][0])
        self.assertIn(SECRET.hex(), self.ctl("dump", "--data", expect=0).stdout)
        self.assertEqual(self.dump("--data")["records"][0]["data"], SECRET.hex())

    def test_from(self):
        second = self.tail + 128
        self.assertEqual([r["position"] for r in self.dump("--from", str(second))["records"]][0],
                         second)
        self.assertEqual(len(self.dump("--from=%d" % (second + 1))["records"]), 3)
        self.ctl("dump", "--from", str(self.head), expect=1)
        for bad in ("x", "-1", "1x", "", "99999999999999999999999"):
            self.ctl("dump", "--from", bad, expect=64)

    def test_file(self):
        other = self.id + 1
        self.append(WRITE, 7, b"other", file_id=other)
        self.assertEqual(len(self.dump("--file", self.file)["records"]), 5)
        self.assertEqual([r["offset"] for r in self.dump("--file", str(other))["records"]], [7])
        self.assertIn("no such file", self.ctl("dump", "--file", "/nowhere", expect=1).stderr)

    def test_domain(self):
        for name in ("toy", base.USER + "/toy", "lane-%06d" % self.lane):
            self.assertEqual(self.dump(name)["domain"], "toy")
        r = self.ctl("dump", "nobody", expect=1)
        self.assertIn("no such domain", r.stderr)
        self.assertIn("/toy", r.stderr)
        self.ctl("dump", "lane-000077", expect=1)
        self.ctl("dump", "a/b/c", expect=64)

    def test_copied_pool(self):
        """Elsewhere, by anybody, of a machine that this one knows nothing of; the original is gone."""
        copy = os.path.join(self.folder.path, "copy")
        shutil.copytree(self.folder.pool, copy)
        shutil.rmtree(self.folder.pool)
        os.chmod(os.path.join(copy, os.path.basename(self.lane_path)), 0o644)
        r = self.ctl("dump", "--json", "--pool", copy, "toy", config=False, expect=0)
        self.assertEqual(len(json.loads(r.stdout)["records"]), 5)
        self.ctl("dump", "--pool", "/nowhere", config=False, expect=1)
        self.ctl("dump", expect=1)

    def test_live(self):
        """Beside a daemon that destages and trims: it ends, and what it shows is whole."""
        self.anew()
        path = os.path.join(self.folder.path, "log")
        self.writer(path, pause=0)
        self.in_lane(path)
        shown = 0
        for _ in range(8):
            o = self.dump("toy")
            self.assertEqual((o["damage"], [f["path"] for f in o["files"]]), ("", [path]))
            self.assertTrue(all(r["chained"] for r in o["records"]))
            shown += o["shown"]
        self.assertGreater(shown, 0)
        self.assertTrue(self.verify()["in_use"])

    def test_damaged_record(self):
        """The first record is broken, the later ones say that it was acknowledged: they are shown."""
        self.flip(self.lane_path, 4096 + self.tail + 70)
        # the record behind began when it was durable
        o = self.dump("toy", expect=1)
        self.assertNotEqual(o["damage"], "")
        self.assertEqual([r["chained"] for r in o["records"]], [False] * 4)
        r = self.ctl("dump", "toy", expect=1)
        self.assertIn("DAMAGED at position %d" % self.tail, r.stdout)
        self.assertIn("(beyond the end)", r.stdout)

    def test_damaged_catalog(self):
        for copy in (0, ENTRY):
            self.flip(self.pool_path, DOMAINS_AT + copy + 100)
        r = self.ctl("dump", "toy", expect=1)
        self.assertIn("catalog is damaged", r.stderr)
        o = self.dump("lane-%06d" % self.lane)
        self.assertEqual((o["domain"], len(o["records"])), ("", 5))

    def test_damaged_superblock(self):
        for copy in (0, 4096):
            self.flip(self.pool_path, copy + 100)
        r = self.ctl("dump", "--json", "toy", expect=0)
        self.assertIn("superblock are damaged", r.stderr)
        self.assertEqual(len(json.loads(r.stdout)["records"]), 5)

    def test_path_of_a_catalog_is_printable(self):
        """A path is a client's word: no control character reaches the terminal."""
        with open(self.pool_path, "rb") as f:
            pool = f.read()
        at = pool.index(self.file.encode())
        entry = (at - FILES_AT) // ENTRY * ENTRY + FILES_AT
        for copy in (0, ENTRY):
            place = (entry - FILES_AT) // (2 * ENTRY) * 2 * ENTRY + FILES_AT + copy
            image = bytearray(pool[place:place + ENTRY])
            inside = (at - FILES_AT) % ENTRY
            image[inside:inside + 5] = b"/\x1b[1m"
            struct.pack_into("<I", image, 0, 0)
            struct.pack_into("<I", image, 0, base.crc32c(bytes(image)))
            self.patch(self.pool_path, place, bytes(image))
        for words in ((), ("--json",)):
            r = self.ctl("dump", *words, expect=0)
            self.assertNotIn("\x1b", r.stdout)
            self.assertNotIn("\\u001b", r.stdout)
            self.assertIn("/?[1m", r.stdout)


class Verify(Pooled):
    def test_good(self):
        before = self.sums()
        o = self.verify()
        self.assertEqual((o["damage"], o["degraded"], self.said(o, "damage")), (0, 0, []))
        self.assertEqual([(d["name"], d["records"]) for d in o["domains"]], [("toy", 3)])
        r = self.ctl("pool", "verify", expect=0)
        self.assertIn("is whole", r.stdout)
        self.assertEqual(self.sums(), before)

    def test_copied(self):
        copy = os.path.join(self.folder.path, "copy")
        shutil.copytree(self.folder.pool, copy)
        shutil.rmtree(self.folder.pool)
        self.ctl("pool", "verify", expect=1)
        self.ctl("pool", "verify", "--pool", copy, config=False, expect=0)

    def test_beside_a_daemon(self):
        self.anew()
        self.assertTrue(self.verify()["in_use"])

    def test_each_copy(self):
        """One of two damaged: pool check is content, verify is not; both: damage."""
        for where, at, other in (("superblock", 100, 4096), ("domain entry 0", DOMAINS_AT + 80, ENTRY),
                                 ("file entry 0", FILES_AT + 80, ENTRY)):
            with self.subTest(where):
                self.flip(self.pool_path, at)
                self.ctl("pool", "check", expect=0)
                o = self.verify(expect=1)
                self.assertEqual(len(self.said(o, "degraded")), 1, o["findings"])
                self.assertTrue(self.said(o, "degraded")[0].startswith(where + ": copy A"))
                self.assertEqual(o["damage"], 0)
                self.flip(self.pool_path, at + other)
                o = self.verify(expect=1)
                self.assertTrue(any(s.startswith(where + ": both copies")
                                    for s in self.said(o, "damage")), o["findings"])
                self.flip(self.pool_path, at)
                self.flip(self.pool_path, at + other)
                self.verify()

    def test_lane(self):
        name = os.path.basename(self.lane_path)
        for at, severity, text in ((16, "degraded", "one copy of its header"),
                                   (2048 + 16, "degraded", "one copy of its header"),
                                   (4096 + self.tail + 70, "damage", "acknowledged")):
            with self.subTest(at=at):
                self.flip(self.lane_path, at)
                said = self.said(self.verify(expect=1), severity)
                self.assertTrue(any(s.startswith(name) and text in s for s in said), said)
                self.flip(self.lane_path, at)
        self.verify()
        self.append(WRITE, 0, b"x", file_id=self.id + 500)
        self.assertIn("catalog does not know", "".join(self.said(self.verify(expect=1), "damage")))

    def test_another_life(self):
        """A lane that is whole, and not what the domain wrote last: an older copy."""
        with open(self.lane_path, "rb") as f:
            identity = bytearray(f.read(64))
        struct.pack_into("<Q", identity, 24, self.incarnation ^ 1)
        struct.pack_into("<I", identity, 12, 0)
        struct.pack_into("<I", identity, 12, base.crc32c(bytes(identity)))
        for at in (0, 2048):
            self.patch(self.lane_path, at, bytes(identity))
        self.assertIn("not the one that its domain wrote last",
                      "".join(self.said(self.verify(expect=1), "damage")))

    def test_folder(self):
        lost = os.path.join(self.folder.pool, "lane-000099")
        shutil.copy(self.lane_path, lost)
        self.assertIn("no domain of the catalog has it",
                      "".join(self.said(self.verify(expect=1), "damage")))
        os.unlink(lost)
        os.rename(self.lane_path, lost)
        said = "".join(self.said(self.verify(expect=1), "damage"))
        self.assertIn("No such file", said)

    def test_not_even_a_pool(self):
        for what in ("short", "blank", "fifo", "link", "folder"):
            with self.subTest(what):
                folder = os.path.join(self.folder.path, what)
                os.mkdir(folder)
                path = os.path.join(folder, "pool")
                if what == "fifo":
                    os.mkfifo(path)
                elif what == "link":
                    os.symlink("/etc/passwd", path)
                elif what == "folder":
                    os.mkdir(path)
                else:
                    with open(path, "wb") as f:
                        f.truncate(1000 if what == "short" else 20 << 20)
                for verb in (["pool", "verify"], ["dump"]):
                    self.ctl(*verb, "--pool", folder, config=False, expect=1)


class Damaged(Pooled):
    """Bytes at random, pages at random, files cut anywhere: an answer each time."""

    SEED = 20261201
    TIMES = 20

    def test_never_a_crash(self):
        print("seed", self.SEED)
        rng = random.Random(self.SEED)
        copy = os.path.join(self.folder.path, "copy")
        shutil.copytree(self.folder.pool, copy)
        lane = os.path.join(copy, os.path.basename(self.lane_path))
        pool = os.path.join(copy, "pool")
        with open(pool, "rb") as f:
            pool_bytes = f.read()
        with open(lane, "rb") as f:
            lane_bytes = f.read()
        hot = [0, 8, 12, 16, 24, 64, 72, 80, 84, 128, 136, 2048, 2064] + \
              [4096 + self.tail + n for n in range(0, 640, 4)]
        for i in range(self.TIMES):
            for path, data, places in ((pool, pool_bytes, [0, 8, 12, 24, 4096, DOMAINS_AT,
                                                           DOMAINS_AT + 24, FILES_AT, FILES_AT + 32]),
                                       (lane, lane_bytes, hot)):
                image = bytearray(data)
                for _ in range(rng.randrange(4)):
                    at = rng.choice(places) if rng.random() < 0.8 else rng.randrange(len(data))
                    n = min(rng.choice((1, 4, 8, 64, 4096)), len(data) - at)
                    image[at:at + n] = rng.choice((b"\0" * n, b"\xff" * n, rng.randbytes(n)))
                if rng.random() < 0.2:
                    image = image[:rng.randrange(len(image))]
                with open(path, "wb") as f:
                    f.write(image)
            for words in (["pool", "verify", "--json"], ["dump", "--data", "--json", "toy"],
                          ["dump", "--from", str(rng.randrange(1 << 20)), "lane-%06d" % self.lane]):
                r = self.ctl(*words, "--pool", copy, config=False)
                self.assertIn(r.returncode, (0, 1), "%d %s: %s" % (i, words, r.stderr))
                if "--json" in words and r.stdout:
                    json.loads(r.stdout)


class Report(Pooled):
    def test_sections(self):
        o = json.loads(self.ctl("report", "--json", expect=0).stdout)
        for name in ("host", "configuration", "status", "folders", "pool", "headers", "system",
                     "processes with the library", "units", "journal"):
            self.assertIn(name, o)
        self.assertIn("cannot be reached", o["status"])
        self.assertIn("lane_size", o["configuration"])
        self.assertEqual(o["pool"]["domains"][0]["name"], "toy")
        self.assertIn("504d4c414e453031", o["headers"].replace(" ", ""))  # PMLANE01
        self.assertIn("lane-%06d" % self.lane, o["folders"])

    def test_no_row(self):
        text = self.ctl("report", expect=0).stdout
        self.assertIn("==== headers ====", text)
        self.assertNotIn(SECRET.decode(), text)
        self.assertNotIn(SECRET.hex(), text.replace(" ", ""))

    def test_with_a_daemon(self):
        self.anew()
        self.assertTrue(json.loads(self.ctl("report", "--json", expect=0).stdout)
                        ["status"]["pool"]["emulated"])

    def test_file(self):
        path = os.path.join(self.folder.path, "report.txt")
        self.ctl("report", "--output", path, expect=0)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertIn("cannot be made",
                      self.ctl("report", "--output", path, expect=1).stderr)
        self.ctl("report", "--output", "/nowhere/x", expect=1)

    def test_without_a_pool(self):
        shutil.rmtree(self.folder.pool)
        o = json.loads(self.ctl("report", "--json", expect=0).stdout)
        self.assertIn("No such file", o["pool"])

    def test_changes_nothing(self):
        before = self.sums()
        self.ctl("report", expect=0)
        self.assertEqual(self.sums(), before)


if __name__ == "__main__":
    unittest.main()
