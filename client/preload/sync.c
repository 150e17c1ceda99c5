/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fsync, fdatasync, sync_file_range. sync and syncfs are not interposed: they are real for every file. */

#include <errno.h>
#include <fcntl.h>

#include "base/sys.h"
#include "client/preload/call.h"

/* A sync that is answered without a system call must not answer for another file. */
static long sync_entry(struct call *c, bool data_only)
{
	long r = call_check_file(c);

	return r < 0 ? r : file_sync(c->s, &c->who, &c->r, data_only);
}

static long op_fsync(struct call *c, void *arg)
{
	(void)arg;
	return c->s ? sync_entry(c, false) : sys_call1(SYS_fsync, c->r.fd);
}

static long op_fdatasync(struct call *c, void *arg)
{
	(void)arg;
	return c->s ? sync_entry(c, true) : sys_call1(SYS_fdatasync, c->r.fd);
}

static int shim_fsync(int fd)
{
	if (likely(!desc_peek(fd)))
		return real.fsync(fd);
	call_cancel_point();
	return (int)call_make(fd, op_fsync, NULL);
}

static int shim_fdatasync(int fd)
{
	if (likely(!desc_peek(fd)))
		return real.fdatasync(fd);
	call_cancel_point();
	return (int)call_make(fd, op_fdatasync, NULL);
}

/* It promises no durability, and waiting for write-back is what the lane is there to avoid. */
static int shim_sync_file_range(int fd, off_t offset, off_t length, unsigned flags)
{
	const struct desc *d = desc_peek(fd);

	if (likely(!d) || atomic_load_relaxed(&d->kind) != DESC_ENTRY || offset < 0 || length < 0)
		return real.sync_file_range(fd, offset, length, flags);
	if (flags & ~(unsigned)(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				SYNC_FILE_RANGE_WAIT_AFTER))
		return (int)errno_result(-EINVAL);
	/* Write-back is started all the same: the destager will find less to do. */
	return real.sync_file_range(fd, offset, length, flags & SYNC_FILE_RANGE_WRITE);
}

#define FAMILY_SYNC
#include "client/preload/export.h"
