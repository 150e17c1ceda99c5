/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of sleep_on: tests/models/space.pml. */
/* A domain's worker thread: requests, timers, destaging, sleep. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/overflow.h"
#include "daemon/destage/destage.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/guard.h"

void request_done(struct domain_request *r, int status, uint32_t exit_code, const char *format, ...)
{
	va_list ap;

	r->status = status;
	r->exit_code = exit_code;
	if (format) {
		va_start(ap, format);
		(void)vsnprintf(r->text, sizeof(r->text), format, ap);
		va_end(ap);
	}
	if (r->fd >= 0)
		(void)close(r->fd);
	r->fd = -1;
	r->done(r);
}

void domain_notify(const struct domain *d)
{
	if (d->set->notify)
		d->set->notify(d->set->notify_arg);
}

void domain_state_set(struct domain *d, enum domain_state state, const char *format, ...)
{
	static const char *const names[] = { "undecided", "ok", "held", "quarantined" };
	char reason[WIRE_TEXT] = "";
	bool changed;
	va_list ap;

	if (format) {
		va_start(ap, format);
		(void)vsnprintf(reason, sizeof(reason), format, ap);
		va_end(ap);
	}
	pthread_mutex_lock(&d->lock);
	changed = d->state != state || strcmp(d->reason, reason) != 0;
	d->state = state;
	memcpy(d->reason, reason, sizeof(reason));
	pthread_mutex_unlock(&d->lock);
	if (!changed)
		return;
	if (state == STATE_HELD || state == STATE_QUARANTINED)
		log_event(LOG_ERR, state == STATE_HELD ? LOG_ID_HELD : LOG_ID_QUARANTINED, d->name,
			  NULL, "%s: %s", names[state], reason);
	else
		log_msg(LOG_INFO, d->name, "%s%s%s", names[state], *reason ? ": " : "", reason);
	domain_notify(d);
}

void domain_error_set(struct domain *d, const char *format, ...)
{
	char text[WIRE_TEXT] = "";
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	pthread_mutex_lock(&d->lock);
	memcpy(d->last_error, text, sizeof(text));
	pthread_mutex_unlock(&d->lock);
}

void domain_fault(struct domain *d, const char *why)
{
	destage_flushes_end(d, -EBUSY, why);
	/* Our slot ends with the descriptor: whatever lock we hold there counts as a dead owner's. */
	detach(d);
	registry_forget_all(d);
	d->held_ns = now_monotonic_ns() + HELD_RETRY_NS;
	domain_state_set(d, STATE_HELD,
			 "%s; the records stay in the pool. Stop the database, then: pmemlogctl "
			 "recover --dry-run %s",
			 why, d->name);
}

void domain_push(struct domain *d, struct domain_request *r)
{
	bool stopped;

	r->next = NULL;
	pthread_mutex_lock(&d->lock);
	stopped = d->stop;
	if (!stopped) {
		*d->queue_end = r;
		d->queue_end = &r->next;
	}
	pthread_mutex_unlock(&d->lock);
	if (stopped)
		request_done(r, -ESHUTDOWN, 1, "the daemon stops");
	else
		domain_wake(d);
}

static int wake_word(uint32_t *word)
{
	(void)atomic_xchg_seq(word, 0);
	return futex_wake(word, 1);
}

void domain_wake(struct domain *d)
{
	pthread_mutex_lock(&d->map_lock);
	(void)GUARD(wake_word(d->sleep_word));
	pthread_mutex_unlock(&d->map_lock);
}

static bool work_waiting(struct domain *d)
{
	bool any;

	pthread_mutex_lock(&d->lock);
	any = d->queue || d->yields || d->stop || d->look || d->clock_step || d->fault;
	pthread_mutex_unlock(&d->lock);
	return any;
}

static int store_word(uint32_t *word, uint32_t v)
{
	atomic_store_seq(word, v);
	return 0;
}

/*
 * Sleeps on *word with value mode until woken or `until` (CLOCK_MONOTONIC; UINT64_MAX: for ever).
 * mode first, then a look at everything that would wake us; the other sides do their part first and
 * then look at the word. Sequentially consistent on both sides, so one of the two sees the other.
 */
static int sleep_on(struct domain *d, uint32_t *word, uint32_t mode, uint64_t until)
{
	uint64_t now = now_monotonic_ns();
	int r;

	pthread_mutex_lock(&d->map_lock);
	d->sleep_word = word;
	pthread_mutex_unlock(&d->map_lock);

	r = GUARD(store_word(word, mode));
	if (r < 0)
		return r;
	if (work_waiting(d) || until <= now || (d->attached && destage_news(d, mode)))
		return GUARD(store_word(word, 0));

	r = GUARD(futex_wait(word, mode, until == UINT64_MAX ? UINT64_MAX : until - now));
	if (r == -EFAULT)
		return r;
	return GUARD(store_word(word, 0));
}

static int sleep_domain(struct domain *d)
{
	uint64_t until = UINT64_MAX;
	uint32_t mode;

	if (!d->attached) {
		if (d->state == STATE_HELD)
			until = d->held_ns;
		return sleep_on(d, &d->own_sleep, 1, until);
	}
	mode = destage_sleep(d, &until);
	/* Somebody waits for the next record by message: every append wakes us. */
	if (log_waits_records(d, &until))
		mode = 3;
	/* Never longer than to the next tick: a client that cuts its control file short takes the word
	 * away under us, and then nobody can wake us on it. */
	until = min_of(until, d->tick_ns);
	/* Not on the clients' word where their wakes would only spin us: we wait for time to pass. */
	return sleep_on(d, mode ? &d->s.ctl.hot->asleep : &d->own_sleep, mode ? mode : 1, until);
}

static void serve(struct domain *d, struct domain_request *r)
{
	switch (r->kind) {
	case DOMAIN_HELLO:
		request_hello(d, r);
		return;
	case DOMAIN_REGISTER:
		request_register(d, r);
		return;
	case DOMAIN_FLUSH:
		destage_flush(d, r);
		return;
	case DOMAIN_GATE:
		request_gate(d, r);
		return;
	case DOMAIN_RECOVER:
		request_recover(d, r);
		return;
	case DOMAIN_LOG:
		request_log(d, r);
		return;
	case DOMAIN_LOG_LIST:
		request_log_list(d, r);
		return;
	}
	request_done(r, -EINVAL, 1, "unknown request");
}

/* Neither changes what a step works on but by adding a file. A process without the lane may be the first
 * of a new life, which ends the old one's: not inside a step. */
static bool light(const struct domain_request *r)
{
	return r->kind == DOMAIN_REGISTER ||
	       (r->kind == DOMAIN_HELLO && !(r->mode & WIRE_WANT_LANE));
}

void domain_serve_light(struct domain *d)
{
	struct domain_request *mine = NULL, **end = &mine, **at;
	bool any;

	pthread_mutex_lock(&d->lock);
	any = d->queue;
	pthread_mutex_unlock(&d->lock);
	if (!any || !slot_any_live(&d->s.ctl))
		return;
	pthread_mutex_lock(&d->lock);
	for (at = &d->queue; *at;) {
		struct domain_request *r = *at;

		if (!light(r)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->next = NULL;
		*end = r;
		end = &r->next;
	}
	d->queue_end = at;
	pthread_mutex_unlock(&d->lock);

	while (mine) {
		struct domain_request *r = mine;

		mine = r->next; /* r is its submitter's again once it is answered */
		r->next = NULL;
		serve(d, r);
	}
}

struct work {
	struct domain_request *requests;
	struct yield *yields;
	bool stop, look, clock_step, fault;
};

static struct work take_work(struct domain *d)
{
	struct work w;

	pthread_mutex_lock(&d->lock);
	w = (struct work){ d->queue, d->yields, d->stop, d->look, d->clock_step, d->fault };
	d->queue = NULL;
	d->queue_end = &d->queue;
	d->yields = NULL;
	d->look = d->clock_step = d->fault = false;
	pthread_mutex_unlock(&d->lock);
	return w;
}

static void do_work(struct domain *d)
{
	struct work w = take_work(d);
	bool tick = false;

	if (w.fault && d->attached)
		domain_fault(d,
			     "the control file or the lane was cut short by one of its processes");
	while (w.yields) {
		struct yield *y = w.yields;

		w.yields = y->next;
		registry_yield(d, y);
	}
	while (w.requests) {
		struct domain_request *r = w.requests;

		/* Read before it is answered: from then on it is the submitter's again. */
		w.requests = r->next;
		serve(d, r);
	}
	if (w.clock_step && d->attached)
		registry_clock_step(d);
	if (d->attached && now_monotonic_ns() >= d->tick_ns) {
		tick = true;
		d->tick_ns = now_monotonic_ns() + TICK_NS;
	}
	if (tick && registry_tick(d) < 0)
		domain_fault(d,
			     "the control file was changed or cut short by one of its processes");
	if (tick && d->attached)
		logs_remove_tick(d);
	if ((w.look || tick) && d->attached)
		(void)sessions_end(d, false);
	if (d->state == STATE_HELD && !d->attached && now_monotonic_ns() >= d->held_ns)
		domain_decide(d);
}

/* Clean stop: everything durable in the files where that is possible. Sessions go on without us. */
static void finish(struct domain *d)
{
	if (d->attached && !sessions_end(d, true) && d->attached) {
		if (destage_step(d) == 0)
			destage_flushes_end(d, 0, NULL);
		else
			log_msg(LOG_WARNING, d->name,
				"stopped with records that could not be destaged: they stay in the pool");
	}
	destage_flushes_end(d, -ESHUTDOWN, "the daemon stops");
	if (d->attached)
		detach(d);
	registry_forget_all(d);
}

void *domain_worker(void *arg)
{
	struct domain *d = arg;
	char thread_name[16];
	bool stop = false;

	(void)snprintf(thread_name, sizeof(thread_name), "d-%.12s", d->name);
	(void)prctl(PR_SET_NAME, thread_name);
	domain_io_enter(d);
	d->who.tid = sys_gettid();

	if (d->state == STATE_UNDECIDED)
		domain_decide(d);
	while (!stop) {
		int r = 0;

		do_work(d);
		if (d->attached) {
			r = destage_run(d);
			if (r == 0)
				log_waits_answer(d);
			if (r == -EFAULT || r == -EBADMSG)
				domain_fault(d,
					     r == -EFAULT
						     ? "the control file or the lane was cut short "
						       "by one of its processes"
						     : "the control file was damaged by one of its "
						       "processes");
		}
		pthread_mutex_lock(&d->lock);
		stop = d->stop;
		pthread_mutex_unlock(&d->lock);
		if (!stop && sleep_domain(d) == -EFAULT)
			domain_fault(d, "the control file was cut short by one of its processes");
	}
	do_work(d);
	finish(d);

	pthread_mutex_lock(&d->set->lock);
	d->exited = true;
	pthread_cond_signal(&d->set->exited);
	pthread_mutex_unlock(&d->set->lock);
	return NULL;
}
