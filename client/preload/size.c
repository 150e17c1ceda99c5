/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Calls that change a file's size or throw bytes away: RULE F, whatever they cost. */
#include "client/preload/size.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "client/preload/call.h"
#include "client/preload/named.h"

struct size_args {
	long number; /* system call */
	int fd;
	long a, b, c;
};

static long size_call(void *arg)
{
	const struct size_args *a = arg;

	return sys_call4(a->number, a->fd, a->a, a->b, a->c);
}

static long op_size(struct call *c, void *arg)
{
	struct size_args *a = arg;

	a->fd = c->r.fd;
	return c->s ? file_fenced(c->s, &c->who, &c->r, size_call, a) : size_call(a);
}

long size_truncate(int fd, off_t length)
{
	struct size_args a = { SYS_ftruncate, fd, length, 0, 0 };
	int keep = errno;
	long r = call_make(fd, op_size, &a);

	if (r < 0) {
		r = -errno;
		errno = keep;
	}
	return r;
}

static int shim_ftruncate(int fd, off_t length)
{
	struct size_args a = { SYS_ftruncate, fd, length, 0, 0 };

	if (likely(!desc_peek(fd)))
		return real.ftruncate(fd, length);
	return (int)call_make(fd, op_size, &a);
}

static int shim_fallocate(int fd, int mode, off_t offset, off_t length)
{
	struct size_args a = { SYS_fallocate, fd, mode, offset, length };

	if (likely(!desc_peek(fd)))
		return real.fallocate(fd, mode, offset, length);
	return (int)call_make(fd, op_size, &a);
}

/* Returns its error and leaves errno alone. */
static int shim_posix_fallocate(int fd, off_t offset, off_t length)
{
	struct size_args a = { SYS_fallocate, fd, 0, offset, length };
	int keep = errno;
	int r = 0;

	if (likely(!desc_peek(fd)) && likely(real.posix_fallocate != NULL))
		return real.posix_fallocate(fd, offset, length);
	/* libc would write a zero into each block where the file system cannot allocate; those that
	 * files are registered on all can. */
	if (call_make(fd, op_size, &a) < 0)
		r = errno;
	if (r == EOPNOTSUPP && real.posix_fallocate)
		r = real.posix_fallocate(fd, offset, length);
	errno = keep;
	return r;
}

struct truncate_args {
	const char *path;
	off_t length;
};

static long truncate_call(void *arg)
{
	const struct truncate_args *a = arg;

	return sys_call2(SYS_truncate, a->path, a->length);
}

static int shim_truncate(const char *path, off_t length)
{
	struct truncate_args a = { path, length };
	struct named n;

	if (likely(!named_find(AT_FDCWD, path, AT_SYMLINK_FOLLOW, &n)))
		return real.truncate(path, length);
	return (int)named_make(&n, NAMED_FENCED, truncate_call, &a);
}

int size_truncate_path(const char *path)
{
	return shim_truncate(path, 0);
}

#define FAMILY_SIZE
#include "client/preload/export.h"
