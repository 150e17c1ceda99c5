/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's calls on backing files. Through libc, so that a test's preload can make a sync fail or
 * lie; and with the rule that no byte of a file changes before rewrite_until in the catalog covers it,
 * which therefore no caller can forget.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/sys.h"
#include "daemon/domain/internal.h"

static _Thread_local struct domain *io_domain;

void domain_io_enter(struct domain *d)
{
	io_domain = d;
}

int rewrite_renew(struct domain *d, struct domain_file *df)
{
	uint64_t now = now_realtime_ns();
	uint64_t until = df->entry.rewrite_until_ns;
	struct pool_file e = df->entry;

	if (df->catalog == UINT32_MAX)
		return 0; /* in bypass: never replayed, so nobody judges its ctime */
	/* Far ahead of now: the clock was set back since. */
	if (until >= now + REWRITE_NS / 2 && until <= now + 2 * REWRITE_NS)
		return 0;
	e.rewrite_until_ns = now + REWRITE_NS;
	return registry_entry_put(d, df, &e);
}

static ssize_t io_pwritev(int fd, const struct iovec *iov, int iovcnt, int64_t offset,
			  int rwf_flags)
{
	struct domain *d = io_domain;
	ssize_t n;
	int r;

	if (d && d->changing) {
		r = rewrite_renew(d, d->changing);
		if (r < 0)
			return r;
	}
	n = rwf_flags ? pwritev2(fd, iov, iovcnt, offset, rwf_flags)
		      : pwritev(fd, iov, iovcnt, offset);
	return n < 0 ? -errno : n;
}

static int io_fsync(int fd)
{
	return fsync(fd) < 0 ? -errno : 0;
}

static int io_fdatasync(int fd)
{
	return fdatasync(fd) < 0 ? -errno : 0;
}

static int io_fstat(int fd, struct stat *ret)
{
	return fstat(fd, ret) < 0 ? -errno : 0;
}

static int64_t io_lseek(int fd, int64_t offset, int whence)
{
	off_t r = lseek(fd, offset, whence);

	return r < 0 ? -errno : r;
}

static int io_set_append(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	flags = on ? flags | O_APPEND : flags & ~O_APPEND;
	return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

const struct session_io domain_io = {
	.pwritev = io_pwritev,
	.fsync = io_fsync,
	.fdatasync = io_fdatasync,
	.fstat = io_fstat,
	.lseek = io_lseek,
	.set_append = io_set_append,
};

int fd_reopen(int fd)
{
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* O_NONBLOCK: a client's lease on the file must not hold up its domain for a minute. */
	r = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return r < 0 ? -errno : r;
}
