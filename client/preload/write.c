/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* write, pwrite and their vectors: what the library is for. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>

#include "base/sys.h"
#include "client/preload/call.h"

#define PAGE_BYTES 4096
#define AHEAD	   (INT64_C(256) << 10) /* picked: a log written at 1 GB/s takes 250 us for it */

struct write_args {
	const struct iovec *iov;
	int iovcnt;
	int rwf_flags;
	int64_t offset; /* bytes, or FILE_OFFSET_CURRENT */
};

/*
 * A file that was opened with O_DIRECT has no pages in memory but those that were written, and a write
 * that ends within a page would wait for the disk to read the rest. So the pages ahead are asked for
 * in time, a window at a time, when a write crosses into the one before.
 */
static void read_ahead(int fd, int64_t offset, long n)
{
	int64_t end = offset + n;

	if (offset < 0 || !((offset | n) & (PAGE_BYTES - 1)) || offset / AHEAD == end / AHEAD)
		return;
	(void)sys_call4(SYS_fadvise64, fd, (end / AHEAD + 1) * AHEAD, AHEAD, POSIX_FADV_WILLNEED);
}

static long op_write(struct call *c, void *arg)
{
	const struct write_args *a = arg;

	if (c->s) {
		long n = file_write(c->s, &c->who, &c->r, a->iov, a->iovcnt, a->offset,
				    a->rwf_flags);

		if ((c->r.asked_flags & O_DIRECT) && n > 0)
			read_ahead(c->r.fd, a->offset, n);
		return n;
	}
	return sys_call6(SYS_pwritev2, c->r.fd, (long)a->iov, a->iovcnt, a->offset, 0,
			 a->rwf_flags | call_sync_flags(c->r.asked_flags));
}

/* What the kernel refuses (or what writes nothing) goes to it as it stands: it names the error. */
static bool odd_vector(int iovcnt)
{
	return iovcnt <= 0 || iovcnt > IOV_MAX;
}

static __attribute__((noinline)) ssize_t write_known(int fd, const struct iovec *iov, int iovcnt,
						     int64_t offset, int rwf_flags)
{
	struct write_args a = { iov, iovcnt, rwf_flags, offset };

	call_cancel_point();
	return call_make(fd, op_write, &a);
}

static ssize_t shim_write(int fd, const void *buf, size_t n)
{
	struct iovec iov;

	/* Nothing to write is nothing to record: the kernel says what it thinks of the descriptor. */
	if (likely(!desc_peek(fd)) || n == 0)
		return real.write(fd, buf, n);
	iov = iovec_of(buf, n);
	return write_known(fd, &iov, 1, FILE_OFFSET_CURRENT, 0);
}

static ssize_t shim_writev(int fd, const struct iovec *iov, int iovcnt)
{
	if (likely(!desc_peek(fd)) || odd_vector(iovcnt))
		return real.writev(fd, iov, iovcnt);
	return write_known(fd, iov, iovcnt, FILE_OFFSET_CURRENT, 0);
}

static ssize_t shim_pwrite(int fd, const void *buf, size_t n, off_t offset)
{
	struct iovec iov;

	if (likely(!desc_peek(fd)) || n == 0 || offset < 0)
		return real.pwrite(fd, buf, n, offset);
	iov = iovec_of(buf, n);
	return write_known(fd, &iov, 1, offset, 0);
}

static ssize_t shim_pwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset)
{
	if (likely(!desc_peek(fd)) || offset < 0 || odd_vector(iovcnt))
		return real.pwritev(fd, iov, iovcnt, offset);
	return write_known(fd, iov, iovcnt, offset, 0);
}

static ssize_t shim_pwritev2(int fd, const struct iovec *iov, int iovcnt, off_t offset, int flags)
{
	if (likely(!desc_peek(fd)) || offset < -1 || odd_vector(iovcnt)) {
		if (likely(real.pwritev2 != NULL))
			return real.pwritev2(fd, iov, iovcnt, offset, flags);
		return errno_result(
			sys_call6(SYS_pwritev2, fd, (long)iov, iovcnt, offset, 0, flags));
	}
	return write_known(fd, iov, iovcnt, offset, flags);
}

#define FAMILY_WRITE
#include "client/preload/export.h"
