/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ioctl: file systems have many that change a file, new ones with each release. So those that only ask are
 * known here, and any other one on a rule's file is made under RULE F. Some have a second file in their
 * argument, which loses its bytes, too: that one goes to bypass for good.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/fsverity.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "base/sys.h"
#include "client/preload/call.h"
#include "client/preload/named.h"
#include "client/preload/passed.h"

/* Not in the kernel's exported headers. */
struct ext4_move_extent {
	uint32_t reserved;
	uint32_t donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};
#define EXT4_IOC_MOVE_EXT _IOWR('f', 15, struct ext4_move_extent)

struct xfs_swapext {
	int64_t sx_version;
	int64_t sx_fdtarget;
	int64_t sx_fdtmp;
	int64_t sx_offset, sx_length;
	char sx_pad[16];
	char sx_stat[136]; /* struct xfs_bstat */
};
#define XFS_NR_SWAPEXT 109

struct xfs_exchange_range {
	int32_t file1_fd;
	uint32_t pad;
	uint64_t file1_offset, file2_offset, length, flags;
};
#define XFS_IOC_EXCHANGE_RANGE _IOW('X', 129, struct xfs_exchange_range)

struct ioctl_args {
	int fd;
	unsigned long request;
	void *arg;
};

static long make(void *arg)
{
	const struct ioctl_args *a = arg;

	return sys_call3(SYS_ioctl, a->fd, a->request, a->arg);
}

static long op_fenced(struct call *c, void *arg)
{
	struct ioctl_args *a = arg;
	long r;

	a->fd = c->r.fd;
	if (c->s)
		return file_fenced(c->s, &c->who, &c->r, make, a);
	r = make(a);
	/* Not registered: the sync that was asked for at open follows. */
	if (r >= 0 && call_sync_flags(c->r.asked_flags) && sys_call1(SYS_fdatasync, c->r.fd) < 0)
		return -EIO;
	return r;
}

/* It asks, or concerns the descriptor alone. */
static bool harmless(unsigned long request)
{
	switch (request) {
	case FIONREAD:
	case FIONBIO:
	case FIOASYNC:
	case FIOQSIZE:
	case FIBMAP:
	case FIGETBSZ:
	case FS_IOC_FIEMAP:
	case FS_IOC_GETFLAGS:
	case FS_IOC_GETVERSION:
	case FS_IOC_FSGETXATTR:
	case FS_IOC_GETFSLABEL:
	case FS_IOC_MEASURE_VERITY:
	case FIDEDUPERANGE: /* as the source, which stays what it is */
	case TCGETS:	    /* isatty */
	case TIOCGWINSZ:
	case TIOCGPGRP:
		return true;
	default:
		return false;
	}
}

/* Attributes of the inode: by a descriptor that may be one for reading only. */
static bool is_attribute(unsigned long request)
{
	return request == FS_IOC_SETFLAGS || request == FS_IOC_FSSETXATTR ||
	       request == FS_IOC_SETVERSION;
}

/* The second file of a request: nothing but its number is taken from the argument. */
static int second(unsigned long request, const void *arg)
{
	if (!arg)
		return -1;
	if (request == EXT4_IOC_MOVE_EXT)
		return (int)((const struct ext4_move_extent *)arg)->donor_fd;
	if (request == XFS_IOC_EXCHANGE_RANGE)
		return ((const struct xfs_exchange_range *)arg)->file1_fd;
	if (_IOC_TYPE(request) == 'X' && _IOC_NR(request) == XFS_NR_SWAPEXT)
		return (int)((const struct xfs_swapext *)arg)->sx_fdtmp;
	return -1;
}

static int set_attribute(struct ioctl_args *a)
{
	struct named n;

	if (a->fd < 0 || !named_find(a->fd, "", AT_EMPTY_PATH, &n))
		return real.ioctl(a->fd, a->request, a->arg);
	return (int)named_make(&n, NAMED_TOUCHED, make, a);
}

static int shim_ioctl(int fd, unsigned long request, ...)
{
	struct ioctl_args a = { .fd = fd, .request = request };
	va_list ap;

	va_start(ap, request);
	a.arg = va_arg(ap, void *);
	va_end(ap);

	if (likely(!desc_table))
		return real.ioctl(fd, request, a.arg);
	if (unlikely(second(request, a.arg) >= 0) && passed_on(second(request, a.arg)) < 0)
		return -1;
	if (unlikely(is_attribute(request)))
		return set_attribute(&a);
	if (likely(!desc_peek(fd)) || harmless(request))
		return real.ioctl(fd, request, a.arg);
	if (request == FIOCLEX || request == FIONCLEX)
		return (int)errno_result(close_on_exec(fd, request == FIOCLEX));
	return (int)call_make(fd, op_fenced, &a);
}

#define FAMILY_IOCTL
#include "client/preload/export.h"
