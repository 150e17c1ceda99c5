/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "env.h"
#include "pool/slot_word.h"

static struct env e;
static struct ctl_lock *lock;

static int set_up(void **state)
{
	(void)state;
	env_make(&e, 65536);
	lock = &e.s.ctl.files[0].lock;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	env_free(&e);
	return 0;
}

static int take(uint64_t timeout_ms, int stale_self)
{
	return lock_acquire(&e.s.ctl, lock, &e.s.me, sys_gettid(),
			    timeout_ms == UINT64_MAX ? LOCK_FOREVER : timeout_ms * 1000000,
			    stale_self);
}

static void free_one(void **state)
{
	(void)state;
	assert_int_equal(take(0, 0), LOCK_TAKEN);
	assert_true(lock->word == (UINT64_C(1) << 48 | UINT64_C(1) << 24 | sys_gettid()));
	lock_release(lock);
	assert_true(lock->word == 0);
	assert_int_equal(take(0, 1), LOCK_TAKEN); /* nothing stale is nothing to take over */
	lock_release(lock);
	assert_int_equal(e.s.ctl.hot->owner_died, 0);
}

static void own_word(void **state)
{
	(void)state;
	assert_int_equal(take(UINT64_MAX, 0), LOCK_TAKEN);
	assert_int_equal(take(UINT64_MAX, 0), -EDEADLK);
	assert_int_equal(take(UINT64_MAX, 1), LOCK_OWNER_DIED);
	assert_int_equal(e.s.ctl.hot->owner_died, 1);
	lock_release(lock);
	assert_int_equal(take(0, 0), LOCK_TAKEN);
	lock_release(lock);
}

/* What a child does: a slot of its own, then the lock. */
static void child_takes(void *arg)
{
	struct holder me;

	(void)arg;
	if (slot_take(&e.s.ctl, ENV_INCARNATION, &me) < 0 ||
	    lock_acquire(&e.s.ctl, lock, &me, sys_gettid(), LOCK_FOREVER, 0) != LOCK_TAKEN)
		abort();
}

static void dead_process(void **state)
{
	int pid = env_fork(child_takes, NULL);
	uint64_t begin, ms;

	(void)state;
	/* alive, however long: no time limit */
	assert_int_equal(take(350, 0), -ETIMEDOUT);
	assert_int_equal(word_slot(lock->word), 2);
	env_kill(pid);
	begin = env_ms();
	errno = 123;
	assert_int_equal(take(UINT64_MAX, 0), LOCK_OWNER_DIED);
	assert_int_equal(errno, 123);
	ms = env_ms() - begin;
	assert_true(ms >= 90 && ms < 3000);
	assert_int_equal(e.s.ctl.hot->owner_died, 1);
	assert_int_equal(word_slot(lock->word), 1);
	lock_release(lock);
}

/* The slot has a new holder by now: its byte is locked, the generation gives the dead one away. */
static void reused_slot(void **state)
{
	int dead = env_fork(child_takes, NULL), live;
	uint64_t word = lock->word;

	(void)state;
	env_kill(dead);
	lock->word = 0;
	live = env_fork(child_takes, NULL);
	assert_int_equal(word_slot(lock->word), word_slot(word));
	assert_int_not_equal(word_generation(lock->word), word_generation(word));
	lock->word = word;
	assert_int_equal(take(UINT64_MAX, 0), LOCK_OWNER_DIED);
	lock_release(lock);
	env_kill(live);
}

static void *thread_takes(void *arg)
{
	int *hold_ms = arg;

	assert_int_equal(take(UINT64_MAX, 0), LOCK_TAKEN);
	if (*hold_ms > 0) {
		int ms = *hold_ms;

		atomic_store_release(hold_ms, 0); /* has it now */
		env_sleep_ms((unsigned)ms);
		lock_release(lock);
	}
	return NULL;
}

static void dead_thread(void **state)
{
	pthread_t t;
	int none = 0;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, thread_takes, &none), 0);
	pthread_join(t, NULL);
	assert_int_equal(take(UINT64_MAX, 0), LOCK_OWNER_DIED);
	lock_release(lock);
}

static void living_thread(void **state)
{
	pthread_t t;
	int ms = 300;
	uint64_t begin;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, thread_takes, &ms), 0);
	while (atomic_load_acquire(&ms) != 0)
		cpu_relax();
	begin = env_ms();
	assert_int_equal(take(UINT64_MAX, 0), LOCK_TAKEN);
	assert_true(env_ms() - begin >= 200);
	assert_int_equal(e.s.ctl.hot->owner_died, 0);
	lock_release(lock);
	pthread_join(t, NULL);
}

/* A sleeper is woken by the release and does not wait for its next look, 100 ms later. */
static void wakes(void **state)
{
	unsigned soon = 0;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		pthread_t t;
		int ms = 20;
		uint64_t begin = env_ms();

		assert_int_equal(pthread_create(&t, NULL, thread_takes, &ms), 0);
		while (atomic_load_acquire(&ms) != 0)
			cpu_relax();
		assert_int_equal(take(UINT64_MAX, 0), LOCK_TAKEN);
		soon += env_ms() - begin < 80;
		lock_release(lock);
		pthread_join(t, NULL);
	}
	assert_true(soon >= 2); /* a busy machine may delay some */
	assert_int_equal(lock->waiters, 0);
}

/* Somebody is on the way to sleep and was not woken: the next release must try again. */
static void wakes_nobody(void **state)
{
	(void)state;
	lock->waiters = 1;
	assert_int_equal(take(0, 0), LOCK_TAKEN);
	lock_release(lock);
	assert_int_equal(lock->waking, 0);
	/* a wake is under way: no second one */
	lock->waking = 1;
	assert_int_equal(take(0, 0), LOCK_TAKEN);
	lock_release(lock);
	assert_int_equal(lock->waking, 1);
}

/* One that was woken and killed before it ran: the others get the lock at their next look. */
static void woken_and_killed(void **state)
{
	pthread_t t;
	int ms = 30;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, thread_takes, &ms), 0);
	while (atomic_load_acquire(&ms) != 0)
		cpu_relax();
	atomic_store_seq(&lock->waking, 1);
	assert_int_equal(take(UINT64_MAX, 0), LOCK_TAKEN);
	assert_int_equal(lock->waking, 0);
	lock_release(lock);
	pthread_join(t, NULL);
}

static void nobody_s_word(void **state)
{
	uint64_t begin = env_ms();

	(void)state;
	lock->word = ~UINT64_C(0);
	assert_int_equal(take(UINT64_MAX, 0), LOCK_OWNER_DIED);
	lock_release_died(lock);
	assert_int_equal(take(UINT64_MAX, 0), LOCK_OWNER_DIED);
	assert_true(env_ms() - begin < 90); /* at once */
	lock_release(lock);
	assert_int_equal(take(UINT64_MAX, 0), LOCK_TAKEN);
	lock_release(lock);
}

static unsigned counter; /* plain: the lock is what makes it right */

static void *counts(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 20000; i++) {
		if (take(UINT64_MAX, 0) != LOCK_TAKEN)
			abort();
		counter++;
		lock_release(lock);
	}
	return NULL;
}

static void excludes(void **state)
{
	pthread_t t[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, counts, NULL), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(counter, 80000);
	assert_int_equal(lock->waiters, 0);
	assert_int_equal(e.s.ctl.hot->owner_died, 0);
}

/* Several wait for a dead owner: one takes over, the others get it in turn. */
static void one_takes_over(void **state)
{
	int pid = env_fork(child_takes, NULL);
	pthread_t t[4];
	int died;

	(void)state;
	env_kill(pid);
	counter = 0;
	died = take(UINT64_MAX, 0);
	assert_int_equal(died, LOCK_OWNER_DIED);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, counts, NULL), 0);
	lock_release(lock);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(counter, 80000);
	assert_int_equal(e.s.ctl.hot->owner_died, 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(free_one),	     CASE(own_word),	 CASE(dead_process),
		CASE(reused_slot),   CASE(dead_thread),	 CASE(living_thread),
		CASE(wakes),	     CASE(wakes_nobody), CASE(woken_and_killed),
		CASE(nobody_s_word), CASE(excludes),	 CASE(one_takes_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
