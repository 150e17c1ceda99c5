/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * read and lseek use the position that a write of ours reads and then sets: they take the file's lock,
 * too. pread does not, and is not interposed.
 */

#include <errno.h>
#include <fcntl.h>

#include "base/sys.h"
#include "client/preload/call.h"

struct read_args {
	long number;		  /* system call */
	long a, b, offset, flags; /* the last two: preadv2 */
};

static long op_position(struct call *c, void *arg)
{
	const struct read_args *a = arg;
	long r;

	if (c->s) {
		r = file_lock(c->s, &c->who, &c->r);
		if (r < 0)
			return r;
	}
	r = sys_call6(a->number, c->r.fd, a->a, a->b, a->offset, 0, a->flags);
	if (c->s)
		file_unlock(c->s, &c->r);
	return r;
}

static ssize_t shim_read(int fd, void *buf, size_t n)
{
	if (likely(!desc_peek(fd)))
		return real.read(fd, buf, n);
	call_cancel_point();
	return call_make(fd, op_position,
			 &(struct read_args){ SYS_read, (long)buf, (long)n, 0, 0 });
}

static ssize_t shim_read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (unlikely(n > room) && real.read_chk_fail)
		real.read_chk_fail(); /* ends the program, as it asked for */
	return shim_read(fd, buf, n);
}

static ssize_t shim_readv(int fd, const struct iovec *iov, int iovcnt)
{
	if (likely(!desc_peek(fd)))
		return real.readv(fd, iov, iovcnt);
	call_cancel_point();
	return call_make(fd, op_position,
			 &(struct read_args){ SYS_readv, (long)iov, iovcnt, 0, 0 });
}

static ssize_t shim_preadv2(int fd, const struct iovec *iov, int iovcnt, off_t offset, int flags)
{
	struct read_args a = { SYS_preadv2, (long)iov, iovcnt, offset, flags };

	if (likely(!desc_peek(fd)) || offset != -1) {
		if (likely(real.preadv2 != NULL))
			return real.preadv2(fd, iov, iovcnt, offset, flags);
		return errno_result(
			sys_call6(SYS_preadv2, fd, (long)iov, iovcnt, offset, 0, flags));
	}
	/* At the position. */
	call_cancel_point();
	return call_make(fd, op_position, &a);
}

static off_t shim_lseek(int fd, off_t offset, int whence)
{
	if (likely(!desc_peek(fd)))
		return real.lseek(fd, offset, whence);
	return call_make(fd, op_position, &(struct read_args){ SYS_lseek, offset, whence, 0, 0 });
}

#define FAMILY_READ
#include "client/preload/export.h"
