/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* dup, dup2, dup3, fcntl: a second number of a description, and the flags that it shows. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#include "base/sys.h"
#include "client/preload/call.h"
#include "client/preload/passed.h"

#define SHOWN_FLAGS \
	(O_DIRECT | O_DSYNC | O_SYNC) /* kept in the description, not set in the kernel */

/* Enters a fresh number of d. Rule descriptors are close-on-exec, whatever the program asked. */
static long enter(int fd, struct desc *d, bool inherit)
{
	if (desc_set(fd, d, inherit) < 0) {
		(void)sys_call1(SYS_close, fd);
		desc_put(d);
		return -EMFILE;
	}
	return fd;
}

/* F_DUPFD_CLOEXEC from a number on. */
static int dup_known(int fd, int from, bool inherit)
{
	struct desc *d = desc_get(fd);
	long r = -EBADF;

	if (d && atomic_load_relaxed(&d->kind) != DESC_OURS) {
		/* A vfork child makes descriptors for the program that it is going to be. */
		r = sys_call3(SYS_fcntl, fd, inherit && page_foreign() ? F_DUPFD : F_DUPFD_CLOEXEC,
			      from);
		if (r >= 0 && !page_foreign())
			return (int)errno_result(enter((int)r, d, inherit));
	}
	if (d)
		desc_put(d);
	return (int)errno_result(r);
}

static int shim_dup(int fd)
{
	if (likely(!desc_peek(fd)))
		return real.dup(fd);
	return dup_known(fd, 0, true);
}

static bool is_ours(int fd)
{
	const struct desc *d = desc_peek(fd);

	return d && atomic_load_relaxed(&d->kind) == DESC_OURS;
}

static long dup_onto(int fd, int onto, int flags)
{
	struct desc *d = desc_get(fd);
	long r;

	if (is_ours(fd)) {
		r = -EBADF;
	} else if (is_ours(onto)) {
		/* The kernel's own word for "that number is being used by somebody else". */
		r = -EBUSY;
	} else if (page_foreign()) {
		r = sys_call3(SYS_dup3, fd, onto, flags);
	} else {
		/* Standard input, output, error: meant for a program that comes by exec. */
		bool to_exec = d && onto <= STDERR_FILENO && !(flags & O_CLOEXEC);

		if (to_exec && passed_on(fd) < 0)
			r = -errno;
		else
			r = sys_call3(SYS_dup3, fd, onto, d && !to_exec ? O_CLOEXEC : flags);
		if (r >= 0) {
			if (d)
				return enter((int)r, d, !(flags & O_CLOEXEC));
			desc_clear((int)r);
		}
	}
	if (d)
		desc_put(d);
	return r;
}

static int shim_dup2(int fd, int onto)
{
	/* The same number twice changes nothing, and dup3 does not take it. */
	if (likely((!desc_peek(fd) && !desc_peek(onto))) || fd == onto)
		return real.dup2(fd, onto);
	return (int)errno_result(dup_onto(fd, onto, 0));
}

static int shim_dup3(int fd, int onto, int flags)
{
	if (likely((!desc_peek(fd) && !desc_peek(onto))) || fd == onto || (flags & ~O_CLOEXEC))
		return real.dup3(fd, onto, flags);
	return (int)errno_result(dup_onto(fd, onto, flags));
}

static int set_flags(int fd, struct desc *d, long flags)
{
	int asked = atomic_load_relaxed(&d->asked);
	int keep = (int)flags & (O_DIRECT | O_APPEND);
	long r = sys_call3(SYS_fcntl, fd, F_SETFL, flags & ~(long)SHOWN_FLAGS);

	if (r < 0)
		return (int)r;
	/* F_SETFL changes O_DIRECT and O_APPEND; O_DSYNC and O_SYNC stay as opened. */
	while (!atomic_cas_seq(&d->asked, &asked, (asked & ~(O_DIRECT | O_APPEND)) | keep))
		;
	return 0;
}

static long set_fd_flags(int fd, long flags)
{
	if (flags & FD_CLOEXEC) {
		desc_set_inherit(fd, false);
		return 0;
	}
	/* Cleared on purpose: another program image will write here without us. */
	if (passed_on(fd) < 0)
		return -errno;
	desc_set_inherit(fd, true);
	return sys_call3(SYS_fcntl, fd, F_SETFD, 0);
}

long close_on_exec(int fd, int on)
{
	return is_ours(fd) ? -EBADF : set_fd_flags(fd, on ? FD_CLOEXEC : 0);
}

static long fcntl_known(int fd, struct desc *d, int command, void *arg)
{
	long r;

	switch (command) {
	case F_GETFL:
		r = sys_call2(SYS_fcntl, fd, F_GETFL);
		return r < 0 ? r : r | (atomic_load_relaxed(&d->asked) & SHOWN_FLAGS);
	case F_SETFL:
		return set_flags(fd, d, (long)arg);
	case F_GETFD:
		r = sys_call2(SYS_fcntl, fd, F_GETFD);
		return r < 0 ? r : desc_inherits(fd) ? 0 : FD_CLOEXEC;
	case F_SETFD:
		return set_fd_flags(fd, (long)arg);
	default:
		return sys_call3(SYS_fcntl, fd, command, arg);
	}
}

static int shim_fcntl(int fd, int command, ...)
{
	struct desc *d;
	va_list ap;
	void *arg;
	long r;

	va_start(ap, command);
	arg = va_arg(ap, void *);
	va_end(ap);

	if (likely(!desc_peek(fd)))
		return real.fcntl(fd, command, arg);
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		return dup_known(fd, (int)(long)arg, command == F_DUPFD);
	/* A lock may wait: a cancellation point, and nothing of ours is held. */
	if (command == F_SETLKW || command == F_OFD_SETLKW)
		return is_ours(fd) ? (int)errno_result(-EBADF) : real.fcntl(fd, command, arg);
	d = desc_get(fd);
	if (!d)
		return real.fcntl(fd, command, arg);
	r = is_ours(fd) ? -EBADF : fcntl_known(fd, d, command, arg);
	desc_put(d);
	return (int)errno_result(r);
}

#define FAMILY_DUP
#include "client/preload/export.h"
