/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The words that clients may write, as the daemon reads them: each copied once, checked, and a SIGBUS
 * (a client has cut its control file short) becomes -EFAULT.
 */

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "daemon/domain/internal.h"
#include "pool/guard.h"
#include "pool/lock.h"
#include "pool/space.h"

static int head_copy(const struct domain *d, struct ctl_cell *ret)
{
	*ret = control_head(&d->s.ctl);
	return 0;
}

static int head_sane(const struct domain *d, const struct ctl_cell *c)
{
	return c->head < d->tail || c->head - d->tail > d->s.lane.ring_size || c->head % 64 != 0
		       ? -EBADMSG
		       : 0;
}

int words_head(const struct domain *d, struct ctl_cell *ret)
{
	int r = GUARD(head_copy(d, ret));

	return r < 0 ? r : head_sane(d, ret);
}

int words_mark(struct domain *d, struct ctl_cell *ret)
{
	int r = GUARD(space_mark(&d->s, &d->who, ret));

	if (r < 0)
		return r == -EFAULT ? r : -EAGAIN;
	return head_sane(d, ret);
}

static int file_copy(const struct ctl_file *f, struct file_words *ret)
{
	ret->id = atomic_load_acquire(&f->id);
	/* Relaxed: each is a word of its own; the head that was read before (acquire) orders them
	 * after the records below it. */
	ret->last = atomic_load_relaxed(&f->last);
	ret->first = atomic_load_relaxed(&f->first);
	ret->fence = atomic_load_relaxed(&f->fence);
	ret->op = atomic_load_relaxed(&f->op);
	ret->degraded = atomic_load_seq(&f->degraded);
	ret->reason = atomic_load_relaxed(&f->reason);
	ret->unlinked = atomic_load_relaxed(&f->unlinked);
	ret->state = atomic_load_acquire(&f->state);
	return 0;
}

int words_file(const struct domain *d, const struct domain_file *df, struct file_words *ret)
{
	int r = GUARD(file_copy(words_entry(d, df), ret));

	if (r < 0)
		return r;
	return ret->id == df->id ? 0 : -EBADMSG;
}

struct file_ref words_ref(const struct domain *d, const struct domain_file *df)
{
	return (struct file_ref){
		.f = words_entry(d, df),
		.id = df->id,
		.fd = df->fd,
		.open_head = df->open_head == OPEN_HEAD_NONE ? OPEN_HEAD_UNKNOWN : df->open_head,
	};
}

void words_noted(struct domain_file *df, const struct file_ref *ref)
{
	/* Unknown still: the lock was not to be had. */
	if (ref->open_head != OPEN_HEAD_UNKNOWN)
		df->open_head = ref->open_head;
}

int words_lock(struct domain *d, struct domain_file *df, struct file_ref *ret)
{
	int r;

	*ret = words_ref(d, df);
	/* Taking the lock may already change the file: what a dead owner left is put right. */
	r = rewrite_renew(d, df);
	if (r < 0)
		return r;
	d->changing = df;
	r = GUARD(file_lock(&d->s, &d->who, ret));
	words_noted(df, ret);
	if (r < 0)
		d->changing = NULL;
	return r;
}

#define GONE_LOCK_NS UINT64_C(1000000000) /* as every lock of the daemon's */

static int lock_gone(struct domain *d, struct file_ref *ref)
{
	int r = lock_acquire(&d->s.ctl, &ref->f->lock, &d->s.me, d->who.tid, GONE_LOCK_NS, 0);

	if (r < 0)
		return r;
	/* Acquire: as in file_lock. */
	if (atomic_load_acquire(&ref->f->id) != ref->id) {
		lock_release(&ref->f->lock);
		return -ESTALE;
	}
	/* What the dead call had reserved; a failure leaves it to the next owner death. */
	if (r == LOCK_OWNER_DIED)
		(void)space_recount(&d->s, &d->who);
	return 0;
}

int words_lock_gone(struct domain *d, const struct domain_file *df, struct file_ref *ret)
{
	*ret = (struct file_ref){
		.f = words_entry(d, df), .id = df->id, .fd = -1, .open_head = df->open_head
	};
	return GUARD(lock_gone(d, ret));
}

static int unlock(struct domain *d, struct file_ref *ref)
{
	file_unlock(&d->s, ref);
	return 0;
}

void words_unlock(struct domain *d, struct domain_file *df, struct file_ref *ref)
{
	/* A failed sync under the lock has moved it. */
	words_noted(df, ref);
	d->changing = NULL;
	(void)GUARD(unlock(d, ref));
}
