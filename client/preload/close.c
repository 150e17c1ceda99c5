/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* close, close_range, closefrom: rule descriptors leave the table, the shim's own stay open. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>

#include "base/sys.h"
#include "client/preload/desc.h"
#include "client/preload/page.h"

static bool is_ours(int fd)
{
	const struct desc *d = desc_peek(fd);

	return d && atomic_load_relaxed(&d->kind) == DESC_OURS;
}

static __attribute__((noinline)) int close_known(int fd)
{
	long r;

	if (is_ours(fd))
		return (int)errno_result(-EBADF);
	/* A vfork child closes before it execs, in its parent's memory. */
	if (page_foreign())
		return (int)errno_result(sys_call1(SYS_close, fd));
	/* Between the two it is open and not in the table: no stranger to who opens the file just now. */
	page_own();
	(void)atomic_add_seq(&page->moves, 1);
	desc_clear(fd);
	/* Raw: cancelled before it closes, libc's would leave a descriptor that we know nothing of. */
	r = sys_call1(SYS_close, fd);
	(void)atomic_sub_seq(&page->moves, 1);
	return (int)errno_result(r);
}

static int shim_close(int fd)
{
	if (likely(!desc_peek(fd)))
		return real.close(fd);
	return close_known(fd);
}

/* Closes or marks [first, last] without the shim's own descriptors. */
static long range(unsigned first, unsigned last, unsigned flags)
{
	unsigned end = desc_high();
	unsigned from = first;
	long r = 0;

	for (unsigned fd = first; fd < end && fd <= last; fd++) {
		if (!is_ours((int)fd))
			continue;
		if (fd > from)
			r = sys_call3(SYS_close_range, from, fd - 1, flags);
		if (r < 0)
			return r;
		from = fd + 1;
	}
	if (from <= last && from >= first)
		r = sys_call3(SYS_close_range, from, last, flags);
	return r;
}

static void forget(unsigned first, unsigned last)
{
	unsigned end = desc_high();

	for (unsigned fd = first; fd < end && fd <= last; fd++)
		if (!is_ours((int)fd))
			desc_clear((int)fd);
}

static void show_close_on_exec(unsigned first, unsigned last)
{
	unsigned end = desc_high();

	for (unsigned fd = first; fd < end && fd <= last; fd++)
		if (!is_ours((int)fd) && desc_peek((int)fd))
			desc_set_inherit((int)fd, false);
}

static int shim_close_range(unsigned first, unsigned last, int flags)
{
	/* What the kernel refuses must not be forgotten here. */
	if (likely(!desc_table) || first > last ||
	    ((unsigned)flags & ~(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE)))
		return real.close_range(first, last, flags);
	if (page_foreign())
		return (int)errno_result(range(first, last, (unsigned)flags));
	/* Before the numbers may be given out anew. CLOEXEC is what rule descriptors have anyway. */
	if ((unsigned)flags & CLOSE_RANGE_CLOEXEC)
		show_close_on_exec(first, last);
	else
		forget(first, last);
	return (int)errno_result(range(first, last, (unsigned)flags));
}

static void shim_closefrom(int first)
{
	unsigned from = first < 0 ? 0 : (unsigned)first;

	if (desc_table && !page_foreign())
		forget(from, UINT_MAX);
	(void)range(from, UINT_MAX, 0);
}

#define FAMILY_CLOSE
#include "client/preload/export.h"
