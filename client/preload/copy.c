/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The kernel's own copies into a file: no payload passes us, so RULE F. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>

#include "base/sys.h"
#include "client/preload/call.h"

struct copy_args {
	long number;
	long a, b, c, d, e, f;
};

static long copy_call(void *arg)
{
	const struct copy_args *a = arg;

	return sys_call6(a->number, a->a, a->b, a->c, a->d, a->e, a->f);
}

static long op_copy(struct call *c, void *arg)
{
	struct copy_args *a = arg;

	/* Not registered: no RWF_ flag here, so the asked sync follows the copy. */
	if (!c->s) {
		long r = copy_call(a);

		if (r > 0 && call_sync_flags(c->r.asked_flags) &&
		    sys_call1(SYS_fdatasync, c->r.fd) < 0)
			return -EIO;
		return r;
	}
	return file_fenced(c->s, &c->who, &c->r, copy_call, a);
}

static ssize_t shim_copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t n,
				    unsigned flags)
{
	struct copy_args a = {
		SYS_copy_file_range, in, (long)in_offset, out, (long)out_offset, (long)n, flags
	};

	if (likely(!desc_peek(out)))
		return real.copy_file_range(in, in_offset, out, out_offset, n, flags);
	return call_make(out, op_copy, &a);
}

/* Data that is still to come must not be waited for under the file's lock. */
static void wait_for_data(int in)
{
	struct pollfd p = { .fd = in, .events = POLLIN };

	(void)sys_call5(SYS_ppoll, &p, 1, NULL, NULL, 8);
}

static ssize_t shim_splice(int in, off_t *in_offset, int out, off_t *out_offset, size_t n,
			   unsigned flags)
{
	struct copy_args a = { SYS_splice,	 in,	  (long)in_offset,	    out,
			       (long)out_offset, (long)n, flags | SPLICE_F_NONBLOCK };
	int keep = errno;
	long r;

	if (likely(!desc_peek(out)))
		return real.splice(in, in_offset, out, out_offset, n, flags);
	for (;;) {
		r = call_make(out, op_copy, &a);
		if (r >= 0 || errno != EAGAIN || (flags & SPLICE_F_NONBLOCK))
			return r;
		errno = keep;
		wait_for_data(in);
	}
}

static ssize_t shim_sendfile(int out, int in, off_t *offset, size_t n)
{
	struct copy_args a = { SYS_sendfile, out, in, (long)offset, (long)n, 0, 0 };

	if (likely(!desc_peek(out)))
		return real.sendfile(out, in, offset, n);
	return call_make(out, op_copy, &a);
}

#define FAMILY_COPY
#include "client/preload/export.h"
