/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The real calls on backing files: raw, since a file's lock is held around them. */

#include "pool/session.h"

#include <fcntl.h>

#include "base/sys.h"

static ssize_t sys_pwritev(int fd, const struct iovec *iov, int iovcnt, int64_t offset,
			   int rwf_flags)
{
	/* pwritev2 takes the offset in two halves; on 64 bits the low one holds it all. -1 is the
	 * description's position. */
	return sys_call6(SYS_pwritev2, fd, (long)iov, iovcnt, offset, 0, rwf_flags);
}

static int sys_fsync(int fd)
{
	return (int)sys_call1(SYS_fsync, fd);
}

static int sys_fdatasync(int fd)
{
	return (int)sys_call1(SYS_fdatasync, fd);
}

static int sys_fstat(int fd, struct stat *ret)
{
	/* struct stat of glibc is the kernel's on 64-bit machines. */
	return (int)sys_call2(SYS_fstat, fd, ret);
}

static int64_t sys_lseek(int fd, int64_t offset, int whence)
{
	return sys_call3(SYS_lseek, fd, offset, whence);
}

static int sys_set_append(int fd, bool on)
{
	long flags = sys_call2(SYS_fcntl, fd, F_GETFL);

	if (flags < 0)
		return (int)flags;
	flags = on ? flags | O_APPEND : flags & ~(long)O_APPEND;
	return (int)sys_call3(SYS_fcntl, fd, F_SETFL, flags);
}

const struct session_io session_sys_io = {
	.pwritev = sys_pwritev,
	.fsync = sys_fsync,
	.fdatasync = sys_fdatasync,
	.fstat = sys_fstat,
	.lseek = sys_lseek,
	.set_append = sys_set_append,
};
