/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The heartbeat: every 100 ms time and head of each lane with live sessions, persisted by a thread
 * that makes no call on any file. It also notices that the clock was set. With no lane to beat for it sleeps for ever.
 */

#include <errno.h>
#include <sys/prctl.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "pool/guard.h"
#include "pool/slot.h"

/* How far CLOCK_REALTIME may move against CLOCK_MONOTONIC before ctimes are stored anew. Picked: a
 * quarter of the second by which recovery lets a ctime be later. */
#define CLOCK_STEP_NS INT64_C(250000000)

static int beat_one(struct domain *d)
{
	/* Published heads are durable (append drains first). */
	struct ctl_cell cell = control_head(&d->s.ctl);
	uint64_t tail = atomic_load_acquire(&d->s.ctl.hot->tail);
	uint64_t now = now_realtime_ns();

	/* Its sessions are over, and the worker may be busy with a file and not know it yet: whoever writes
	 * the files from now on must not pass for one of them. The worker's own changes have rewrite_until. */
	if (!slot_any_live(&d->s.ctl))
		return 0;
	/* A head that no lane can have: never into the pool. The worker will find it, too. */
	if (cell.head < tail || cell.head - tail > d->s.lane.ring_size || cell.head % 64 != 0)
		return -EBADMSG;
	lane_beat_write(&d->s.lane, now, cell.head);
	/* Relaxed: clients only compare them with the clock (file_touch_before). */
	atomic_store_relaxed(&d->s.ctl.hot->beat_head, cell.head);
	atomic_store_relaxed(&d->s.ctl.hot->beat_ns, now);
	return 0;
}

static int beat_guarded(struct domain *d)
{
	return GUARD(beat_one(d));
}

/* One round. Returns how many lanes beat. */
static unsigned beat_all(struct domain_set *set, bool step)
{
	unsigned n = 0;
	struct domain *d;

	pthread_mutex_lock(&set->lock);
	d = set->first;
	pthread_mutex_unlock(&set->lock);

	while (d) {
		bool wake = false, on;
		int r = 0;

		pthread_mutex_lock(&d->map_lock);
		on = d->beating;
		if (on) {
			n++;
			r = beat_guarded(d);
			if (r < 0)
				d->beating = false;
		}
		pthread_mutex_unlock(&d->map_lock);

		if (on && (step || r < 0)) {
			pthread_mutex_lock(&d->lock);
			d->clock_step = d->clock_step || step;
			d->fault = d->fault || r < 0;
			wake = true;
			pthread_mutex_unlock(&d->lock);
		}
		if (wake)
			domain_wake(d);

		pthread_mutex_lock(&set->lock);
		d = d->next;
		pthread_mutex_unlock(&set->lock);
	}
	return n;
}

static int64_t clock_offset(void)
{
	return (int64_t)(now_realtime_ns() - now_monotonic_ns());
}

static void *beat_thread(void *arg)
{
	struct domain_set *set = arg;
	int64_t offset = clock_offset();
	uint64_t next = now_monotonic_ns();

	(void)prctl(PR_SET_NAME, "heartbeat");
	pthread_mutex_lock(&set->beat_lock);
	while (!set->beat_stop) {
		int64_t moved = clock_offset() - offset;
		bool step = moved > CLOCK_STEP_NS || moved < -CLOCK_STEP_NS;
		unsigned wanted = set->beat_wanted;
		unsigned n;

		pthread_mutex_unlock(&set->beat_lock);
		if (step)
			offset += moved;
		n = beat_all(set, step);
		pthread_mutex_lock(&set->beat_lock);

		if (n == 0 && set->beat_wanted == wanted) {
			while (!set->beat_stop && set->beat_wanted == wanted)
				pthread_cond_wait(&set->beat_cond, &set->beat_lock);
			/* What happened to the clock meanwhile concerned no live file. */
			offset = clock_offset();
			next = now_monotonic_ns();
			continue;
		}
		next += BEAT_NS;
		if (next < now_monotonic_ns())
			next = now_monotonic_ns() + BEAT_NS;
		while (!set->beat_stop) {
			struct timespec t = { .tv_sec = (time_t)(next / SECOND_NS),
					      .tv_nsec = (long)(next % SECOND_NS) };

			if (pthread_cond_timedwait(&set->beat_cond, &set->beat_lock, &t) ==
			    ETIMEDOUT)
				break;
			if (set->beat_wanted != wanted)
				break; /* a new lane: its first beat at once */
		}
	}
	pthread_mutex_unlock(&set->beat_lock);
	return NULL;
}

void beat_set(struct domain *d, bool on)
{
	struct domain_set *set = d->set;

	pthread_mutex_lock(&d->map_lock);
	d->beating = on;
	pthread_mutex_unlock(&d->map_lock);
	if (!on)
		return;
	pthread_mutex_lock(&set->beat_lock);
	set->beat_wanted++;
	pthread_cond_signal(&set->beat_cond);
	pthread_mutex_unlock(&set->beat_lock);
}

int beat_start(struct domain_set *set)
{
	int r;

	cond_init(&set->beat_cond);
	r = pthread_create(&set->beat_thread, NULL, beat_thread, set);
	if (r == 0)
		set->beat_started = true;
	return -r;
}

void beat_stop(struct domain_set *set)
{
	if (!set->beat_started)
		return;
	pthread_mutex_lock(&set->beat_lock);
	set->beat_stop = true;
	pthread_cond_signal(&set->beat_cond);
	pthread_mutex_unlock(&set->beat_lock);
	pthread_join(set->beat_thread, NULL);
	set->beat_started = false;
}
