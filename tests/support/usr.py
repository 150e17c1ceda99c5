# SPDX-License-Identifier: LGPL-2.1-or-later
"""Programs of another system release: they run with its usr/ in place of the machine's own.

Each process gets a mount namespace in which the other usr/ lies on /usr; all the rest, and so every path
of a test, is the same as outside.
"""
import ctypes
import os
import pwd

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 0x4000, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def entry(usr, user=None):
    """A function for a child before its exec: goes in, and becomes the user."""
    account = pwd.getpwnam(user) if user else None
    source = usr.encode()

    def enter():
        if _libc.unshare(_CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        if _libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
            raise OSError(ctypes.get_errno(), "private mounts")
        if _libc.mount(source, b"/usr", None, ctypes.c_ulong(_MS_BIND), None) != 0:
            raise OSError(ctypes.get_errno(), "mount on /usr")
        if account:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

    return enter
