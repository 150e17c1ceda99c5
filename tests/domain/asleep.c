/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The worker's way to sleep: a record that comes after its look at the lane and before it is asleep. */

#include "cases.h"

#include <pthread.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"

static struct domain *watched;
static void (*before_sleep)(void);
static struct env *now;
static int64_t written;

/* The worker locks map_lock when it has decided how to sleep, and says so nowhere yet (linked with --wrap). */
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_lock(pthread_mutex_t *m);

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	struct domain *d = atomic_load_acquire(&watched);
	void (*call)(void) = NULL;

	if (d && m == &d->map_lock && d->who.tid == sys_gettid())
		call = atomic_xchg_seq(&before_sleep, NULL);
	if (call)
		call();
	return __real_pthread_mutex_lock(m);
}

/* From now on nothing but a wake ends a sleep without end. In the worker's thread. */
static void no_more_ticks(void)
{
	watched->tick_ns = UINT64_MAX;
}

static void write_once(void)
{
	atomic_store_seq(&written, env_write(&now->a, 0, 4096, 'x'));
}

static void at_the_next_sleep(struct env *e, void (*call)(void))
{
	atomic_store_seq(&before_sleep, call);
	/* wakes it; nothing is live */
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	env_wait(3000, atomic_load_seq(&before_sleep) == NULL);
}

static void a_record_before_it_sleeps(void **state)
{
	struct env *e = *state;

	now = e;
	written = 0;
	env_join(e, &e->a, 0, "d");
	atomic_store_seq(&watched, e->set->first);
	at_the_next_sleep(e, no_more_ticks);
	at_the_next_sleep(e, write_once);
	/* Nobody was asleep when it was appended, so nobody was woken: the worker must look again. */
	env_wait(3000, atomic_load_seq(&written) == 4096);
	wait_trimmed(e, "d");
	atomic_store_seq(&watched, NULL);
}

int asleep_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_record_before_it_sleeps),
	};

	return cmocka_run_group_tests_name("asleep", tests, NULL, NULL);
}
