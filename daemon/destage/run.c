/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* When to destage, when to sleep, and who waits for it. */

#include <errno.h>
#include <stdio.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/destage/destage.h"
#include "pool/guard.h"

/* Room that is worth a step at once while writers wait; less is, too, but not all the time: the count
 * of waiters stays too high after the death of one. Both picked. */
#define WAITER_SHARE 8u
#define WAITER_NS    (20 * MILLISECOND_NS)
#define USED_SHARE   4u /* DESIGN 6: a quarter */

struct load {
	uint64_t used; /* bytes between tail and head */
	uint32_t waiters;
};

static int load_read(const struct domain *d, struct load *ret)
{
	/* Sequentially consistent: waiters raise it, then look at asleep (sleep_on). */
	ret->waiters = atomic_load_seq(&d->s.ctl.hot->space_waiters);
	return 0;
}

static int load_now(const struct domain *d, struct load *ret)
{
	struct ctl_cell cell;
	int r = words_head(d, &cell);

	if (r < 0)
		return r;
	ret->used = cell.head - d->tail;
	return GUARD(load_read(d, ret));
}

static bool pressed(const struct domain *d, const struct load *l)
{
	uint64_t ring = d->s.lane.ring_size;

	return l->used >= ring / USED_SHARE || (l->waiters && l->used >= ring / WAITER_SHARE);
}

static uint64_t age_ns(const struct domain *d)
{
	return config_get(d->set->config, destage_age_ns);
}

bool destage_news(struct domain *d, uint32_t mode)
{
	struct load l;

	if (d->sleep_word == &d->own_sleep)
		return false;
	if (load_now(d, &l) < 0)
		return true; /* destage_run finds out what is wrong */
	if (mode == 3 && d->tail + l.used != d->seen_head)
		return true;
	return mode == 1 ? l.used > 0 : pressed(d, &l);
}

uint32_t destage_sleep(struct domain *d, uint64_t *ret_until)
{
	struct load l;

	*ret_until = 0;
	if (load_now(d, &l) < 0)
		return 0;
	if (d->blocked) {
		*ret_until = d->retry_ns;
		return 0;
	}
	if (d->mend)
		*ret_until = now_monotonic_ns() + RETRY_MIN_NS;
	else
		*ret_until = l.used ? d->live_since + age_ns(d) : UINT64_MAX;
	return l.used ? 2 : 1;
}

static void flushes_answer(struct domain *d, uint64_t now)
{
	struct domain_request **p = &d->flushes;

	while (*p) {
		struct domain_request *r = *p;

		if (d->tail >= r->goal) {
			*p = r->next;
			request_done(r, 0, 0, NULL);
		} else if (now >= r->deadline_ns && d->blocked) {
			*p = r->next;
			pthread_mutex_lock(&d->lock);
			(void)snprintf(r->text, sizeof(r->text), "%s", d->last_error);
			pthread_mutex_unlock(&d->lock);
			request_done(r, -EBUSY, 1, NULL);
		} else {
			p = &r->next;
		}
	}
}

int destage_run(struct domain *d)
{
	uint64_t now = now_monotonic_ns();
	struct load l;
	bool due;
	int r;

	r = load_now(d, &l);
	if (r < 0)
		return r;

	pthread_mutex_lock(&d->lock);
	if (l.used == 0)
		d->live_since = 0;
	else if (d->live_since == 0)
		d->live_since = now;
	/* Room may be reserved more than used: a step with nothing to trim has them look again. */
	if (l.waiters && now >= d->step_ns + WAITER_NS)
		due = d->publish = true;
	else
		due = d->publish || (l.used && (d->flushes || log_waits_step(d) || pressed(d, &l) ||
						now >= d->live_since + age_ns(d)));
	pthread_mutex_unlock(&d->lock);

	if (d->blocked)
		due = now >= d->retry_ns;
	if (due || d->mend) {
		r = destage_step(d);
		if (r < 0 && r != -EAGAIN)
			return r;
	}
	flushes_answer(d, now_monotonic_ns());
	return 0;
}

void destage_flush(struct domain *d, struct domain_request *r)
{
	struct ctl_cell cell;

	if (d->state != STATE_OK) {
		request_done(r, -EBUSY, 1, "%s: %s", d->name, d->reason);
		return;
	}
	if (d->attached && words_head(d, &cell) < 0) {
		/* What was acknowledged is not to be known. The next step finds out what is wrong. */
		request_done(r, -EBUSY, 1, "%s: the control file is damaged", d->name);
		return;
	}
	if (!d->attached || cell.head == d->tail) {
		request_done(r, 0, 0, NULL); /* nothing is live */
		return;
	}
	r->goal = cell.head;
	r->deadline_ns = now_monotonic_ns() + FLUSH_GIVE_UP_NS;
	r->next = d->flushes;
	d->flushes = r;
}

void destage_flushes_end(struct domain *d, int status, const char *why)
{
	while (d->flushes) {
		struct domain_request *r = d->flushes;

		d->flushes = r->next;
		if (why)
			request_done(r, status, status ? 1 : 0, "%s: %s", d->name, why);
		else
			request_done(r, status, status ? 1 : 0, NULL);
	}
}
