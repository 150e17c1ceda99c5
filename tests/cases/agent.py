# SPDX-License-Identifier: LGPL-2.1-or-later
"""A program that makes the calls which a test names, one by one: (name, arguments) by pickle on its
stdin, ("ok", result) or ("error", errno) on its stdout. Under the preload library or without it."""
import ctypes
import fcntl
import mmap
import os
import pickle
import socket
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
maps = {}


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def map_shared(fd, length):
    maps[fd] = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def map_store(fd, offset, data):
    maps[fd][offset:offset + len(data)] = data


def map_sync(fd):
    maps[fd].flush()


def aligned(size):
    """Memory for O_DIRECT."""
    return mmap.mmap(-1, size)


def direct_write(fd, data, offset):
    m = aligned(len(data))
    m[:] = data
    return os.pwritev(fd, [m], offset)


def direct_read(fd, size, offset):
    m = aligned(size)
    n = os.preadv(fd, [m], offset)
    return m[:n]


def many(fd, blocks, size, first=0):
    """Blocks with rising numbers, each synced; the number of the last acknowledged one."""
    for n in range(first, first + blocks):
        os.pwrite(fd, block(n, size), n * size)
        os.fdatasync(fd)
    return first + blocks


def alternate(fd, first, count, side):
    """Writes first, first + 1, ...: 512 bytes at every other place of a block, each synced."""
    m = aligned(512)
    for n in range(first, first + count):
        m[:] = block(n, 512)
        os.pwritev(fd, [m], (n % 4 * 2 + side) * 512)
        os.fdatasync(fd)


def write_in_threads(fd, data, count):
    """As many threads write one piece each, without a sync."""
    threads = [threading.Thread(target=os.pwrite, args=(fd, data, i * len(data)))
               for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def set_flags(fd, flags):
    """fcntl(F_SETFL); what F_GETFL then says."""
    fcntl.fcntl(fd, fcntl.F_SETFL, flags)
    return fcntl.fcntl(fd, fcntl.F_GETFL)


def block(n, size):
    return (b"%015d\n" % n) * (size // 16)


def send_fd(path, fd):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(path)
    socket.send_fds(s, [b"x"], [fd])
    s.close()


def receive_fd(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(path)
    s.listen(1)
    c, _ = s.accept()
    return socket.recv_fds(c, 1, 1)[1][0]


def fork_write(fd, data, offset):
    """A forked child writes and syncs; its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            os.pwrite(fd, data, offset)
            os.fdatasync(fd)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def inherit(fd, how):
    """Makes fd one that a program after exec has."""
    if how == "ioctl":
        fcntl.ioctl(fd, 0x5450)  # FIONCLEX
    else:
        fcntl.fcntl(fd, fcntl.F_SETFD, 0)


def exec_write(fd, data):
    """A program without the library writes there, without a sync of its own; its exit status."""
    code = "import os, sys; os.write(%d, sys.stdin.buffer.read())" % fd
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(r, 0)
        os.close(w)
        os.execve(sys.executable, [sys.executable, "-c", code], env)
    os.close(r)
    os.write(w, data)
    os.close(w)
    return os.waitpid(pid, 0)[1]


def main():
    inp, out = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            name, args = pickle.load(inp)
        except EOFError:
            return
        try:
            answer = ("ok", globals().get(name, None) or getattr(os, name))
            answer = ("ok", answer[1](*args))
        except OSError as e:
            answer = ("error", e.errno)
        pickle.dump(answer, out)
        out.flush()


if __name__ == "__main__":
    main()
