#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""doctor: a good machine as a tree of files, and each thing that may be wrong with one."""
import json
import os
import shutil
import unittest

import base

ND = "/sys/devices/nd/ndbus0/region0/pfn0.0"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libpmemlogd-preload.so"
CHECKS = ["namespace", "dax", "map-sync", "granularity", "persistence-domain", "unsafe-shutdown",
          "bad-blocks", "huge-pages", "pool-mount", "data-mounts", "numa", "daemon", "memlock",
          "kernel", "clock", "cpu"]


class Doctor(base.CtlTest):
    def setUp(self):
        super().setUp()
        self.root = os.path.join(self.folder.path, "root")
        self.folder.write(pool='"/mnt/pmem0/pmemlogd"', state_dir='"/var/lib/pmemlogd"')
        self.disk("pmem0", ND)
        self.mounts("dax=always")
        self.put(ND + "/align", "2097152\n")
        self.put(ND + "/resource", "0x240000000\n")
        self.put(ND + "/numa_node", "0\n")
        self.put("/sys/devices/nd/ndbus0/region0/persistence_domain", "memory_controller\n")
        self.put("/sys/devices/nd/ndbus0/provider", "ACPI.NFIT\n")
        self.put("/sys/bus/nd/devices/nmem0/nfit/dirty_shutdown", "3\n")
        self.put("/sys/bus/nd/devices/nmem0/nfit/flags", "\n")
        self.put("/sys/devices/system/node/node0/cpulist", "0-3\n")
        self.put("/sys/devices/system/node/node1/cpulist", "4-7\n")
        self.put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
        self.put("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu clflushopt clwb\n")
        self.put("/run/systemd/timesync/synchronized", "")
        self.put("/var/lib/pmemlogd/pool.pid", "50\n")
        self.put("/proc/50/status", "Name:\tpmemlogd\n")
        self.put("/proc/50/limits", "Max locked memory         unlimited            unlimited            bytes\n")
        self.smaps("rd wr sh mr mw me ms sf mm")
        self.put("/etc/pmemlogd/preload.d/a.ini", "[a]\nprogram = mysqld\npath = */ib_log*\n")
        self.database("/srv/mysql/ib_logfile0")

    def put(self, path, text):
        whole = self.root + path
        os.makedirs(os.path.dirname(whole), mode=0o755, exist_ok=True)
        with open(whole, "w") as f:
            f.write(text)
        os.chmod(whole, 0o644)

    def link(self, target, path):
        whole = self.root + path
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        if os.path.islink(whole):
            os.unlink(whole)
        os.symlink(target, whole)

    def disk(self, name, device):
        """A block device below a device of the bus, and the links that lead to it."""
        block = device + "/block/" + name
        self.put(block + "/queue/dax", "1\n")
        self.put(block + "/badblocks", "")
        self.put(block + "/dax/write_cache", "1\n")
        self.link("../../../" + device.rsplit("/", 1)[1], block + "/device")
        self.link(".." + block[4:], "/sys/block/" + name)
        self.link("../.." + block[4:], "/sys/class/block/" + name)
        self.link("../.." + block[4:], "/sys/dev/block/259:0")

    def mounts(self, pool="dax=always", data="rw,relatime - ext4 /dev/sda1 rw", more=""):
        self.put("/proc/1/mountinfo", "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                 "21 20 259:0 / /mnt/pmem0 rw,relatime shared:1 - ext4 /dev/pmem0 rw,%s\n"
                 "22 20 8:2 / /srv/mysql %s\n%s" % (pool, data, more))

    def smaps(self, flags):
        self.put("/proc/50/smaps",
                 "7f00-7f10 rw-s 0 103:00 12   /mnt/pmem0/pmemlogd/lane-000001\nSize: 4 kB\n"
                 "VmFlags: %s \n7f20-7f30 rw-p 0 00:00 0\nVmFlags: rd wr \n" % flags)

    def database(self, path, cpus="0-7"):
        self.put("/proc/60/status", "Name:\tmysqld\nPPid:\t1\nUid:\t27\t27\t27\t27\nCpus_allowed_list:\t%s\n" % cpus)
        self.put("/proc/60/maps", "7f00-7f01 r-xp 0 08:01 7 %s\n" % LIBRARY)
        self.put("/proc/60/fdinfo/5", "pos:\t0\nflags:\t0100002\n")
        self.link("/usr/sbin/mysqld", "/proc/60/exe")
        self.link(path, "/proc/60/fd/5")

    def doctor(self, expect):
        r = self.ctl("doctor", "--json", "--root", self.root, expect=expect)
        o = json.loads(r.stdout)
        self.assertEqual(o["exit"], expect)
        self.assertEqual(sorted({f["id"] for f in o["findings"]}), sorted(CHECKS), "one of each at least")
        for f in o["findings"]:
            if f["severity"] in ("warning", "fault"):
                self.assertTrue(f["remedy"], f)
        return o["findings"]

    def only(self, id, severity, text):
        """Nothing but this is wrong, and it says so."""
        found = self.doctor(1 if severity in ("warning", "fault") else 0)
        bad = [(f["id"], f["severity"]) for f in found if f["severity"] in ("warning", "fault")]
        if severity in ("warning", "fault"):
            self.assertEqual(bad, [(id, severity)], found)
        said = [f for f in found if f["id"] == id and text in f["text"]]
        self.assertTrue(said, [f for f in found if f["id"] == id])
        self.assertEqual(said[0]["severity"], severity)

    def test_good(self):
        self.assertEqual({f["severity"] for f in self.doctor(0)}, {"ok"})
        text = self.ctl("doctor", "--root", self.root, expect=0).stdout
        self.assertIn("ok       namespace: pmem0 (pfn0.0) is in fsdax mode", text)

    def test_namespace(self):
        for kind, text in (("btt0.0", "sector mode"), ("namespace0.0", "raw mode")):
            self.disk("pmem0", ND.replace("pfn0.0", kind))
            self.put(ND.replace("pfn0.0", kind) + "/numa_node", "0\n")
            self.only("namespace", "fault", text)
        self.disk("pmem0", ND)
        self.put("/sys/devices/nd/ndbus0/provider", "e820\n")
        self.only("namespace", "fault", "NOT DURABLE")

    def test_no_persistent_memory(self):
        self.folder.write(pool='"/srv/pool"')
        found = self.doctor(1)
        self.assertIn("NOT DURABLE", [f["text"] for f in found if f["id"] == "namespace"][0])

    def test_dax(self):
        self.mounts("noatime")
        self.only("dax", "fault", "without dax")
        self.mounts("dax=never")
        self.only("dax", "fault", "without dax")
        self.mounts("dax=inode")
        self.only("dax", "warning", "dax=inode")
        self.mounts("dax")
        self.assertEqual({f["severity"] for f in self.doctor(0)}, {"ok"})
        self.put(ND + "/block/pmem0/queue/dax", "0\n")
        self.only("dax", "fault", "no DAX")

    def test_map_sync(self):
        self.smaps("rd wr sh mr mw me ms mm")
        self.only("map-sync", "fault", "1 of 1")
        os.unlink(self.root + "/proc/50/smaps")
        self.only("map-sync", "note", "can be seen")

    def test_persistence(self):
        self.put(ND + "/block/pmem0/dax/write_cache", "0\n")
        self.only("granularity", "ok", "by byte")
        self.put("/sys/devices/nd/ndbus0/region0/persistence_domain", "cpu_cache\n")
        self.only("persistence-domain", "ok", "eADR")
        for text in ("unknown\n", "\n"):
            self.put("/sys/devices/nd/ndbus0/region0/persistence_domain", text)
            self.only("persistence-domain", "fault", "does not say")

    def test_modules(self):
        self.put("/sys/bus/nd/devices/nmem0/nfit/flags", "smart_notify\n")
        self.only("unsafe-shutdown", "ok", "3 unsafe")
        self.put("/sys/bus/nd/devices/nmem0/nfit/flags", "not_armed\n")
        self.only("unsafe-shutdown", "fault", "nmem0: not_armed")
        shutil.rmtree(self.root + "/sys/bus/nd/devices/nmem0")
        self.only("unsafe-shutdown", "note", "no module counts")

    def test_bad_blocks(self):
        self.put(ND + "/block/pmem0/badblocks", "1024 8\n4096 8\n")
        self.only("bad-blocks", "fault", "1024 8")

    def test_alignment(self):
        self.put(ND + "/align", "4096\n")
        self.only("huge-pages", "warning", "2 MiB")
        self.put(ND + "/align", "2097152\n")
        self.put(ND + "/resource", "0x240100000\n")
        self.only("huge-pages", "warning", "2 MiB")

    def test_partition(self):
        """pmem0p1: the namespace is the whole disk's; where it begins counts."""
        block = ND + "/block/pmem0/pmem0p1"
        for start, severity in (("4096", "ok"), ("2048", "warning")):
            self.put(block + "/partition", "1\n")
            self.put(block + "/start", start + "\n")
            self.link("../.." + block[4:], "/sys/dev/block/259:0")
            self.link("../.." + block[4:], "/sys/class/block/pmem0p1")
            self.only("huge-pages", severity, "2 MiB")
            self.only("namespace" if severity == "ok" else "huge-pages", severity, "pmem0")

    def test_pool_mount(self):
        self.mounts("dax=always,ro")
        self.only("pool-mount", "fault", "read-only")
        self.put("/proc/1/mountinfo", "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        self.assertIn("root file system", str(self.doctor(1)))

    def test_data_mounts(self):
        for data, severity, text in (
                ("rw - nfs4 server:/x rw", "fault", "is nfs4"),
                ("rw - ext4 /dev/sda2 rw,nouser_xattr", "fault", "no user attributes"),
                ("rw - ext4 /dev/sda2 rw,barrier=0", "fault", "without barriers"),
                ("rw - xfs /dev/sda2 rw,nobarrier", "fault", "without barriers"),
                ("ro - xfs /dev/sda2 rw", "fault", "read-only"),
                ("rw,lazytime - xfs /dev/sda2 rw", "note", "lazytime"),
                ("rw - btrfs /dev/sda2 rw", "ok", "(btrfs)")):
            self.mounts(data=data)
            self.only("data-mounts", severity, text)
        self.folder.write(trust_fs='[ "nfs4" ]')
        self.mounts(data="rw - nfs4 server:/x rw")
        self.only("data-mounts", "ok", "nfs4")
        self.database("/srv/mysql/other")
        self.only("data-mounts", "note", "can be seen")

    def test_mount_over_mount_and_blanks(self):
        self.mounts(more="23 22 8:3 / /srv/mysql rw - tmpfs none rw\n")
        self.only("data-mounts", "fault", "is tmpfs")
        self.mounts(more="23 22 8:3 / /srv/my\\040sql rw - tmpfs none rw\n")
        self.database("/srv/my sql/ib_log0")
        self.only("data-mounts", "fault", "/srv/my sql is tmpfs")

    def test_numa(self):
        self.database("/srv/mysql/ib_logfile0", cpus="4-7")
        self.only("numa", "warning", "CPUs 4-7 only")
        self.database("/srv/mysql/ib_logfile0", cpus="1,9")
        self.only("numa", "ok", "next to CPUs 0-3")
        os.unlink(self.root + "/sys/devices/system/node/node1/cpulist")
        self.only("numa", "ok", "one node")

    def test_daemon(self):
        self.put("/proc/50/status", "Name:\tsomebody\n")
        self.only("daemon", "fault", "does not run")
        self.put("/var/lib/pmemlogd/pool.pid", "nonsense\n")
        self.only("daemon", "fault", "does not run")

    def test_memlock(self):
        self.put("/proc/50/limits", "Max locked memory         65536                65536                bytes\n")
        self.only("memlock", "warning", "65536")

    def test_kernel(self):
        for version, severity in (("4.14.1", "fault"), ("4.15.0", "warning"), ("5.9", "warning"),
                                  ("5.10.0", "ok"), ("6.1.0", "ok"), ("", "fault")):
            self.put("/proc/sys/kernel/osrelease", version + "\n")
            self.only("kernel", severity, "Linux " + version)

    def test_clock(self):
        os.unlink(self.root + "/run/systemd/timesync/synchronized")
        self.only("clock", "warning", "not synchronised")

    def test_cpu(self):
        self.put("/proc/cpuinfo", "flags\t\t: fpu clflush\n")
        self.only("cpu", "note", "neither")
        self.put("/proc/cpuinfo", "flags\t\t: fpu clflushopt\n")
        self.only("cpu", "ok", "clflushopt")

    def test_nothing_at_all(self):
        """An empty tree, and files full of nonsense: an answer."""
        shutil.rmtree(self.root)
        self.ctl("doctor", "--root", self.root, expect=1)
        for path in ("/proc/1/mountinfo", "/proc/50/smaps", "/proc/cpuinfo", "/var/lib/pmemlogd/pool.pid",
                     "/proc/60/status", "/proc/60/maps", "/sys/devices/system/node/node1/cpulist"):
            self.put(path, "\x00\xff - %s \n" * 50 + "x" * 100000)
        self.ctl("doctor", "--root", self.root, expect=1)

    def test_this_machine(self):
        r = self.ctl("doctor", "--json")
        self.assertIn(r.returncode, (0, 1))
        self.assertGreaterEqual(len(json.loads(r.stdout)["findings"]), len(CHECKS))


if __name__ == "__main__":
    unittest.main()
