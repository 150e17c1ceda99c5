/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* How a call on a rule file is made: the frame around every family. */

#include <pthread.h>
#include <sys/uio.h>

#include "client/preload/desc.h"
#include "client/preload/page.h"
#include "pool/file.h"

/* One call under way. */
struct call {
	struct call_mark mark;
	struct desc *d;
	struct session *s; /* NULL: not registered, make the real call */
	struct caller who;
	struct file_ref r; /* r.fd and r.asked_flags are set in any case */
};

/* The call itself: >= 0 or a negative errno. Runs once more after -ESTALE, so it changes nothing then. */
typedef long call_op(struct call *c, void *arg);

/*
 * Makes op on the description behind fd, with libc's result convention. If fd is none of ours any
 * more, or a descriptor of the shim (which the program has not opened), op runs unregistered with the
 * descriptor as it stands, or errno becomes EBADF.
 */
long call_make(int fd, call_op *op, void *arg);

/* The descriptor still is the file that the description means; else -ESTALE: closed and used anew behind
 * our back. For calls that pool/ would answer without looking at the descriptor. */
long call_check_file(const struct call *c);

/* RWF_ flags for the sync that the program asked for by open flags. */
int call_sync_flags(int asked);

/* As libc's calls are one: a cancelled thread ends here, before anything of ours is held. Inside there is none. */
static inline void call_cancel_point(void)
{
	pthread_testcancel();
}

/* iovec over memory that the callee only reads. */
static inline struct iovec iovec_of(const void *p, size_t n)
{
	return (struct iovec){ (void *)(uintptr_t)p, n };
}
