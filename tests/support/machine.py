# SPDX-License-Identifier: LGPL-2.1-or-later
"""What makes a machine and a boot: the kernel's boot id and the machine id, other ones by a bind mount in
the test's own mount namespace. The programs read them where they always do."""
import os

from sandbox import run

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MACHINE_ID = "/etc/machine-id"


def _other(box, path, folder):
    """Another id at path: first digits changed, and again at the next call."""
    with open(path) as f:
        old = f.read()
    copy = os.path.join(folder, os.path.basename(path))
    with open(copy, "w") as f:
        f.write(("%08x" % ((int(old[:8], 16) + 1) & 0xffffffff)) + old[8:])
    back(box, path)
    run(["mount", "--bind", copy, path])
    box.mounts.append(path)


def back(box, path):
    """The real one again."""
    if path in box.mounts:
        run(["umount", path])
        box.mounts.remove(path)


def new_boot(box, folder):
    """folder: for the file, in memory."""
    _other(box, BOOT_ID, folder)


def new_machine(box, folder):
    if not os.path.exists(MACHINE_ID):
        raise RuntimeError("no " + MACHINE_ID)
    _other(box, MACHINE_ID, folder)
