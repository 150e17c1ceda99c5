/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of run_token: tests/models/token.pml. */
#include "client/preload/call.h"

#include <errno.h>
#include <fcntl.h>

#include "base/sys.h"
#include "client/preload/attach.h"
#include "client/preload/takeover.h"

#define RENEWALS 3 /* an entry that vanishes more often than that is not worth following */

int call_sync_flags(int asked)
{
	if ((asked & O_SYNC) == O_SYNC)
		return RWF_SYNC;
	/* O_DIRECT alone: the program counts on the disk having it. */
	return asked & (O_DSYNC | O_DIRECT) ? RWF_DSYNC : 0;
}

/* The number was closed behind our back and now means something else. */
static bool same_file(int fd, const struct desc *d)
{
	struct stat st;

	return sys_call2(SYS_fstat, fd, &st) == 0 && st.st_dev == d->dev && st.st_ino == d->ino;
}

long call_check_file(const struct call *c)
{
	return same_file(c->r.fd, c->d) ? 0 : -ESTALE;
}

/* As an entry, with this process's slot. */
static long run_entry(struct call *c, call_op *op, void *arg)
{
	struct desc *d = c->d;
	uint64_t head = atomic_load_relaxed(&d->open_head);
	long r = attach_slot(d->session, &c->who);

	if (r < 0)
		return r == -ESTALE ? r : -EIO;
	c->s = attach_session_at(d->session);
	c->r.f = &c->s->ctl.files[d->entry];
	c->r.id = d->id;
	c->r.open_head = head;
	r = op(c, arg);
	/* The first lock has noted it, or a failed sync has moved it up. Never down: another thread's may be
	 * newer. */
	while (c->r.open_head != head && (head == OPEN_HEAD_UNKNOWN || c->r.open_head > head) &&
	       !atomic_cas_seq(&d->open_head, &head, c->r.open_head))
		;
	if (r == -EDEADLK)
		atomic_add_relaxed(&c->s->ctl.hot->edeadlk, 1);
	return r;
}

/* As an unregistered file. -EAGAIN: it has just become an entry. */
static long run_token(struct call *c, call_op *op, void *arg)
{
	struct desc *d = c->d;
	long r = -EAGAIN;

	/* "Store mine, then look": pairs with takeover_retry, which stores the kind, then looks at
	 * users. Either it waits for us with the token, or we see the new kind. */
	(void)atomic_add_seq(&d->users, 1);
	if (atomic_load_seq(&d->kind) == DESC_TOKEN) {
		c->s = NULL;
		r = op(c, arg);
	}
	if (atomic_sub_seq(&d->users, 1) == 1)
		takeover_token_unused(d);
	return r;
}

static long run(struct call *c, call_op *op, void *arg)
{
	long r = -ESTALE;

	for (int i = 0; i < RENEWALS; i++) {
		if (atomic_load_acquire(&c->d->kind) == DESC_TOKEN) {
			takeover_retry(c);
			r = run_token(c, op, arg);
			if (r != -EAGAIN || atomic_load_acquire(&c->d->kind) == DESC_TOKEN)
				return r;
			continue;
		}
		r = run_entry(c, op, arg);
		if (r != -ESTALE)
			return r;
		if (!same_file(c->r.fd, c->d)) {
			/* Not what another thread has just put there (dup2). */
			desc_clear_if(c->r.fd, c->d);
			c->s = NULL;
			c->r.asked_flags = 0;
			return op(c, arg);
		}
		r = takeover_renew(c);
		if (r < 0)
			return r;
	}
	return r == -ESTALE ? -EIO : r;
}

long call_make(int fd, call_op *op, void *arg)
{
	struct call c = { .r.fd = fd };
	long r;

	c.d = desc_get(fd);
	if (!c.d)
		return errno_result(op(&c, arg));
	if (c.d->kind == DESC_OURS)
		return errno_result(-EBADF);

	r = mark_enter(&c.mark, &c.who);
	if (r < 0) {
		if (atomic_load_acquire(&c.d->kind) == DESC_ENTRY)
			atomic_add_relaxed(&attach_session_at(c.d->session)->ctl.hot->edeadlk, 1);
		desc_put(c.d);
		return errno_result(r);
	}
	c.r.asked_flags = atomic_load_relaxed(&c.d->asked);
	r = run(&c, op, arg);
	mark_leave(&c.mark);
	desc_put(c.d);
	return errno_result(r);
}
