/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Native logs: from the lane into segments. Order, always: frames, their sync, the catalog's log_disk; the tail moves
 * after that (step.c). */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/destage/destage.h"
#include "daemon/log.h"
#include "pool/guard.h"
#include "pool/record.h"
#include "pool/walk.h"

/* One pass over the lane for all logs. */
struct pass {
	struct domain *d;
	struct walk walk;
	struct log_buffer buffer;
	bool todo[CTL_LOGS];
};

static int set_words(const struct domain_log *l, bool failing)
{
	/* Relaxed: for people. Release: whoever reads from the segments up to it finds that there. */
	atomic_store_relaxed(&l->ref.l->failing, failing);
	atomic_store_relaxed(&l->ref.l->first, l->store.first);
	if (!failing)
		atomic_store_release(&l->ref.l->disk, l->store.disk);
	return 0;
}

/* It is tried again by itself: the domain's step comes at the latest then. */
static int again(struct domain *d, const struct domain_log *l)
{
	d->retry_ns = min_of(d->retry_ns, l->retry_ns);
	return -EAGAIN;
}

/* Its records stay in the lane; the store is opened anew, which cuts off what was not synced. */
static int log_fails(struct domain *d, struct domain_log *l, int r)
{
	const char *why = *l->store.why ? l->store.why : strerror(-r);

	l->backoff_ns = min_of(max_of(2 * l->backoff_ns, RETRY_MIN_NS), RETRY_MAX_NS);
	l->retry_ns = now_monotonic_ns() + l->backoff_ns;
	pthread_mutex_lock(&d->lock);
	d->destage_errors++;
	pthread_mutex_unlock(&d->lock);
	domain_error_set(d, "log %s: %s; the data is safe in the pool, tried again", l->name, why);
	if (!l->failing) {
		log_event(LOG_ERR, LOG_ID_DEGRADED, d->name, l->entry.path,
			  "%s; the data is safe in the pool, trying again", why);
		/* Relaxed: status shows it. */
		atomic_store_relaxed(&l->failing, true);
		domain_notify(d);
	}
	if (l->store_open)
		log_store_close(&l->store);
	l->store_open = false;
	if (GUARD(set_words(l, true)) < 0)
		return -EFAULT;
	return again(d, l);
}

static int settle(struct domain *d, const struct domain_log *l)
{
	return log_settle(&d->s, &d->who, &l->ref);
}

static int last_of(const struct domain_log *l, uint64_t *ret)
{
	*ret = atomic_load_relaxed(&l->ref.f->last);
	return atomic_load_acquire(&l->ref.f->id) == l->id ? 0 : -EBADMSG;
}

/* Has it records below `to` that are not on disk yet? 1, 0, or a negative errno. */
static int has_live(struct domain *d, struct domain_log *l, const struct ctl_cell *to)
{
	uint64_t last;
	int r = GUARD(settle(d, l));

	if (r == -EFAULT)
		return r;
	/* What a dead publisher left is settled before anything of it can be trimmed. */
	if (r < 0)
		return log_fails(d, l, r);
	r = GUARD(last_of(l, &last));
	if (r < 0)
		return r;
	if (last <= max_of(d->tail, l->durable_below)) {
		l->durable_below = max_of(l->durable_below, to->head);
		if (l->failing && l->store_open)
			atomic_store_relaxed(&l->failing, false);
		return 0;
	}
	return 1;
}

/* 1: its store is open; or as log_fails. */
static int open_store(struct domain *d, struct domain_log *l)
{
	int r = logs_store(d, l);

	return r < 0 ? log_fails(d, l, r) : 1;
}

static int walk_next_guarded(struct pass *p, struct record_header *h)
{
	return GUARD(walk_next(&p->walk, h));
}

static int payload_guarded(const struct domain *d, const struct record_header *h, void *to)
{
	return GUARD(record_payload(&d->s.lane, h, to));
}

static struct domain_log *log_of(const struct pass *p, uint64_t id)
{
	for (uint32_t i = 0; i < CTL_LOGS; i++)
		if (p->todo[i] && p->d->log[i]->id == id)
			return p->d->log[i];
	return NULL;
}

/* 0, -EAGAIN (this log fails: no more of it in this pass), -EFAULT, -EBADMSG. */
static int put_record(struct pass *p, struct domain_log *l, const struct record_header *h)
{
	int r;

	/* On disk already, by an earlier pass whose tail could not be moved. */
	if (h->position < l->durable_below)
		return 0;
	r = log_buffer_room(&p->buffer, h->length);
	if (r == 0)
		r = payload_guarded(p->d, h, p->buffer.bytes);
	if (r == -EFAULT || r == -EBADMSG)
		return r;
	if (r == 0)
		r = log_store_put(&l->store, h->offset, h->time_ns, p->buffer.bytes, h->length);
	if (r < 0) {
		p->todo[l->slot] = false;
		return log_fails(p->d, l, r);
	}
	return 0;
}

static int finish(struct domain *d, struct domain_log *l, const struct ctl_cell *to)
{
	int r = log_store_sync(&l->store);

	if (r < 0)
		return log_fails(d, l, r);
	if (l->entry.log_disk != l->store.disk) {
		struct pool_file e = l->entry;

		e.log_disk = l->store.disk;
		r = catalog_file_put(d->set->pool, l->catalog, &e);
		if (r < 0)
			return log_fails(d, l, r);
		l->entry = e;
	}
	l->durable_below = to->head;
	if (l->failing)
		log_msg(LOG_NOTICE, d->name, "log %s: on disk again", l->name);
	atomic_store_relaxed(&l->failing, false);
	l->backoff_ns = l->retry_ns = 0;
	return GUARD(set_words(l, false));
}

/* Chain at the tail, from the lane's header: we wrote both copies. */
static int begin_walk(struct pass *p, const struct ctl_cell *to)
{
	struct lane_tail_found found[2];
	int n = lane_tail_read(&p->d->s.lane, found);

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		if (found[i].tail == p->d->tail) {
			walk_begin(&p->walk, &p->d->s.lane, p->d->tail, found[i].chain, to->head);
			return 0;
		}
	return -EBADMSG;
}

static int walk_all(struct pass *p, const struct ctl_cell *to, int *failed)
{
	struct record_header h;
	int r = GUARD(begin_walk(p, to));

	if (r < 0)
		return r;
	while ((r = walk_next_guarded(p, &h)) == WALK_RECORD) {
		struct domain_log *l = h.type == RECORD_WRITE ? log_of(p, h.file_id) : NULL;

		if (!l)
			continue;
		r = put_record(p, l, &h);
		if (r == -EAGAIN)
			*failed = r;
		else if (r < 0)
			return r;
	}
	return r == WALK_END ? 0 : r < 0 ? r : -EBADMSG;
}

int destage_logs(struct domain *d, const struct ctl_cell *to)
{
	struct pass p = { .d = d };
	uint64_t now = now_monotonic_ns();
	bool any = false;
	int r = 0, failed = 0;

	for (uint32_t i = 0; i < CTL_LOGS; i++) {
		struct domain_log *l = d->log[i];

		/* Of one that is being removed nothing is kept. */
		if (!l || l->removing)
			continue;
		r = has_live(d, l, to);
		if (r == 1)
			r = now < l->retry_ns ? again(d, l) : open_store(d, l);
		if (r == -EAGAIN)
			failed = r;
		else if (r < 0)
			return r;
		p.todo[i] = r == 1;
		any = any || r == 1;
	}
	if (!any)
		return failed;
	r = walk_all(&p, to, &failed);
	for (uint32_t i = 0; i < CTL_LOGS; i++) {
		struct domain_log *l = d->log[i];
		int rc;

		if (!p.todo[i])
			continue;
		/* A damaged record ends the pass, for all: everything stays. */
		rc = r == 0 ? finish(d, l, to) : log_fails(d, l, r);
		if (rc == -EAGAIN)
			failed = rc;
		else if (rc < 0)
			r = rc;
	}
	log_buffer_free(&p.buffer);
	return r == -EFAULT ? r : r < 0 ? -EAGAIN : failed;
}
