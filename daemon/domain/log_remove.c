/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Removing a native log. Persist order, and what a kill or a cut after each step leaves:
 * 1. the entry says so (POOL_FILE_UNLINKED): a log with all its records; a restart puts that back.
 * 2. its words are cleared: nobody appends any more. A restart goes on from here.
 * 3. meta, then the folder: recovery finds no log and is not surprised; its records are given up.
 * 4. the tail is behind its last record: nothing names its id any more.
 * 5. its entry goes, and only then the answer: until then no other log can have the name.
 */

#include <errno.h>

#include "base/atomic.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/guard.h"
#include "pool/lock.h"

#define LOCK_NS \
	(1 * SECOND_NS) /* a client that is stopped in an append delays nobody else for longer */

/* Step 1, or back. */
static int say(struct domain *d, struct domain_log *l, bool removing)
{
	struct pool_file e = l->entry;
	int r;

	e.flags = removing ? e.flags | POOL_FILE_UNLINKED : e.flags & ~POOL_FILE_UNLINKED;
	if (e.flags == l->entry.flags)
		return 0;
	r = catalog_file_put(d->set->pool, l->catalog, &e);
	if (r < 0)
		return r;
	l->entry = e;
	return 0;
}

static int clear_words(struct domain *d, const struct domain_log *l)
{
	struct ctl_lock *lock = &l->ref.f->lock;
	int r = lock_acquire(&d->s.ctl, lock, &d->s.me, d->who.tid, LOCK_NS, 0);

	if (r < 0)
		return r;
	/* Release: whoever takes the lock from now on finds another log, or none. The mover has the lane's lock
	 * alone, and looks under it: words_mark takes that. */
	atomic_store_release(&l->ref.l->id, 0);
	lock_release(lock);
	return 0;
}

static int begin(struct domain *d, struct domain_log *l)
{
	int r = say(d, l, true);

	if (r < 0)
		return r;
	r = GUARD(clear_words(d, l));
	if (r < 0) {
		(void)say(d, l, false);
		return r;
	}
	/* The event loop looks at it. */
	pthread_mutex_lock(&d->map_lock);
	l->removing = true;
	pthread_mutex_unlock(&d->map_lock);
	return 0;
}

static int free_words(const struct domain_log *l)
{
	/* Release: nothing of it is looked at any more. */
	atomic_store_release(&l->ref.f->id, 0);
	return 0;
}

int logs_remove(struct domain *d, struct domain_log *l)
{
	struct log_name name = logs_name(d, l->name);
	struct ctl_cell cell;
	int r = l->removing ? 0 : begin(d, l);

	if (r == 0 && !l->deleted) {
		logs_close(l);
		r = log_store_remove(&name);
		r = r == -ENOENT ? 0 : r;
		l->deleted = r == 0;
	}
	if (r == 0 && !l->removed) {
		r = words_mark(d, &cell);
		if (r == 0)
			l->removed = cell.head + 1;
	}
	if (r == 0 && d->tail < l->removed - 1)
		r = -EAGAIN;
	if (r == 0)
		r = GUARD(free_words(l));
	if (r == 0)
		r = catalog_file_drop(d->set->pool, l->catalog);
	if (r < 0)
		return r;
	logs_forget(d, l);
	return 0;
}

int logs_remove_closed(struct domain *d, const char *name)
{
	struct log_name n = logs_name(d, name);

	return log_store_remove(&n);
}

void logs_remove_tick(struct domain *d)
{
	for (uint32_t i = 0; i < CTL_LOGS; i++)
		if (d->log[i] && d->log[i]->removing)
			(void)logs_remove(d, d->log[i]);
}

static int look(const struct domain_log *l)
{
	/* Acquire: pairs with clear_words and free_words of an earlier daemon. */
	if (atomic_load_acquire(&l->ref.f->id) != l->id)
		return -ENOENT;
	return atomic_load_acquire(&l->ref.l->id) != l->id;
}

int logs_remove_resumed(struct domain *d, struct domain_log *l)
{
	int r = GUARD(look(l));

	return r == 0 ? say(d, l, false) : r;
}
