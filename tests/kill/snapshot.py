# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files and folders as they were, to be put back as often as one likes."""
import os
import shutil

CHUNK = 64 << 10


class Snapshot:
    """Files and folders with their holes; `put` makes a folder what it was."""

    def __init__(self, *folders):
        self.folders = folders
        self.kept = []
        for top in folders:
            for folder, names, files in os.walk(top):
                self.kept += [self._note(os.path.join(folder, n))
                              for n in sorted(names) + sorted(files)]

    @staticmethod
    def pieces(path):
        """[(offset, bytes)] of what is not zero, and the size."""
        zero = bytes(CHUNK)
        found = []
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            at = 0
            while at < size:
                try:
                    at = os.lseek(f.fileno(), at, os.SEEK_DATA) // CHUNK * CHUNK
                except OSError:
                    break
                data = os.pread(f.fileno(), CHUNK, at)
                if data != zero[:len(data)]:
                    found.append((at, data))
                at += CHUNK
        return found, size

    def _note(self, path):
        st = os.lstat(path)
        regular = os.path.isfile(path)
        return path, st, self.pieces(path) if regular else None

    @staticmethod
    def fill(path, pieces, size):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, size)
        for at, data in pieces:
            os.pwrite(fd, data, at)
        os.close(fd)

    def put(self):
        for top in self.folders:
            for name in os.listdir(top):
                path = os.path.join(top, name)
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
        for path, st, content in self.kept:
            if content is None:
                if not os.path.isdir(path) and (st.st_mode & 0o170000) == 0o040000:
                    os.mkdir(path)
                else:
                    continue  # a socket: nobody listens there any more
            else:
                self.fill(path, *content)
            os.chown(path, st.st_uid, st.st_gid)
            os.chmod(path, st.st_mode & 0o7777)
