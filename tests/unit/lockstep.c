/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pool/lock.c step by step: no time passes, so a sleeper that nobody wakes sleeps for ever, and is seen. The
 * schedules that tests/models/slots.pml has for its rules of waking, on the code; and random ones.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/lock.h"

#define ACTORS	  3u
#define SCHEDULES 4000u
#define ROUNDS	  2u /* of each actor in a random schedule */

enum why {
	AT,	/* it stands before the step that was asked for */
	SLEEPS, /* in futex_wait */
	ENDED,
};

static struct actor {
	pthread_t thread;
	sem_t go;
	struct holder me;
	const char *until; /* the step to stop before; NULL: only asleep or at its end */
	enum why why;
	unsigned rounds;
} * actors; /* new for each test: those of a schedule that failed stay where they are */

static struct ctl_hot hot;
static struct ctl_lock lock;
static sem_t back;
static unsigned now;	/* whose turn it is */
static unsigned inside; /* of the lock */
static uint64_t seed;	/* 0: as the script says */
static bool over;

/* ---- who goes on ---- */

static void turn_to(unsigned i)
{
	now = i;
	if (sem_post(&actors[i].go) < 0)
		abort();
	while (sem_wait(&back) < 0)
		;
}

static void turn_back(enum why why)
{
	struct actor *a = &actors[now];

	a->why = why;
	if (sem_post(&back) < 0)
		abort();
	while (sem_wait(&a->go) < 0)
		;
}

static uint32_t random_below(uint32_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % n;
}

void step(const char *what)
{
	const char *until = actors[now].until;

	if (seed ? random_below(3) == 0 : until && strcmp(until, what) == 0)
		turn_back(AT);
}

/* Lets actor i go on until it stands before `until`, sleeps or is at its end. */
static enum why run(unsigned i, const char *until)
{
	struct actor *a = &actors[i];

	assert_int_not_equal(a->why, SLEEPS);
	a->until = until;
	turn_to(i);
	return a->why;
}

int step_futex_wait(uint32_t *word, uint32_t expected)
{
	step("futex_wait");
	if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != expected)
		return -EAGAIN;
	turn_back(SLEEPS);
	return 0;
}

int step_futex_wake(uint32_t *word, int n)
{
	(void)word;
	(void)n; /* one */
	step("futex_wake");
	for (unsigned i = 0; i < ACTORS; i++) {
		if (actors[i].why != SLEEPS)
			continue;
		actors[i].why = AT;
		return 1;
	}
	return 0;
}

/* ---- what they do ---- */

/* In the lock: a step of its own. */
#define INSIDE "inside"

static void *takes_and_gives(void *arg)
{
	struct actor *a = arg;
	const struct control c = { .hot = &hot, .fd = -1 };

	while (sem_wait(&a->go) < 0)
		;
	while (!over) {
		if (a->rounds == 0) {
			turn_back(ENDED);
			continue;
		}
		a->rounds--;
		if (lock_acquire(&c, &lock, &a->me, 7, LOCK_FOREVER, 0) != LOCK_TAKEN || inside++)
			abort();
		step(INSIDE);
		inside--;
		lock_release(&lock);
	}
	return NULL;
}

static void begin(unsigned rounds)
{
	memset(&lock, 0, sizeof(lock));
	inside = 0;
	for (unsigned i = 0; i < ACTORS; i++) {
		actors[i].rounds = rounds;
		actors[i].why = AT;
	}
}

/* True if everybody comes to his end: nobody sleeps whom nobody will wake. */
static bool all_end(void)
{
	for (;;) {
		unsigned can[ACTORS], n = 0, ended = 0;

		for (unsigned i = 0; i < ACTORS; i++) {
			if (actors[i].why == AT)
				can[n++] = i;
			ended += actors[i].why == ENDED;
		}
		if (n == 0)
			return ended == ACTORS && lock.word == 0 && lock.waiters == 0;
		(void)run(can[seed ? random_below(n) : 0], NULL);
	}
}

static int set_up(void **state)
{
	(void)state;
	over = false;
	seed = 0;
	actors = calloc(ACTORS, sizeof(*actors));
	assert_non_null(actors);
	assert_int_equal(sem_init(&back, 0, 0), 0);
	for (unsigned i = 0; i < ACTORS; i++) {
		actors[i].me = (struct holder){ .slot = 1 + i, .generation = 1 };
		assert_int_equal(sem_init(&actors[i].go, 0, 0), 0);
		assert_int_equal(
			pthread_create(&actors[i].thread, NULL, takes_and_gives, &actors[i]), 0);
	}
	begin(1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ACTORS; i++)
		if (actors[i].why != ENDED)
			return -1;
	over = true;
	for (unsigned i = 0; i < ACTORS; i++) {
		(void)sem_post(&actors[i].go);
		pthread_join(actors[i].thread, NULL);
	}
	free(actors);
	return 0;
}

/* ---- schedules ---- */

enum {
	OWNER,
	WAITER,
	NEXT,
};

/* The owner gives the lock back between a waiter's count and its look at the word. */
static void counted_and_not_asleep(void **state)
{
	(void)state;
	assert_int_equal(run(OWNER, INSIDE), AT);
	assert_int_equal(run(WAITER, "load &lock->word"), AT);
	assert_int_equal(run(OWNER, NULL), ENDED);
	assert_true(all_end());
}

/* The same after its look, when nothing but the futex's own look is left. */
static void looked_and_not_asleep(void **state)
{
	(void)state;
	assert_int_equal(run(OWNER, INSIDE), AT);
	assert_int_equal(run(WAITER, "futex_wait"), AT);
	assert_int_equal(run(OWNER, NULL), ENDED);
	assert_true(all_end());
}

/* The owner has taken the wake upon itself and finds nobody asleep; meanwhile the next owner comes, the
 * waiter goes to sleep on that one's hold, and its release leaves the wake to the first. */
static void wake_left_to_another(void **state)
{
	(void)state;
	assert_int_equal(run(OWNER, INSIDE), AT);
	assert_int_equal(run(WAITER, "load &lock->word"), AT);
	assert_int_equal(run(OWNER, "store &lock->waking"), AT);
	assert_int_equal(run(NEXT, INSIDE), AT);
	assert_int_equal(run(WAITER, NULL), SLEEPS);
	assert_int_equal(run(NEXT, NULL), ENDED);
	assert_int_equal(actors[WAITER].why, SLEEPS);
	assert_int_equal(run(OWNER, NULL), ENDED);
	assert_int_equal(actors[WAITER].why, AT);
	assert_true(all_end());
}

/* The owner has stored 0 and not looked for waiters yet: who sleeps on the next owner's hold is woken by that
 * one, or by it. */
static void released_and_not_looked(void **state)
{
	(void)state;
	assert_int_equal(run(OWNER, "load &lock->waiters"), AT);
	assert_int_equal(run(NEXT, INSIDE), AT);
	assert_int_equal(run(WAITER, NULL), SLEEPS);
	assert_int_equal(run(OWNER, NULL), ENDED);
	assert_int_equal(run(NEXT, NULL), ENDED);
	assert_true(all_end());
}

/* A waiter comes while the owner stands before its release, after all that it could look at first. */
static void comes_before_the_release(void **state)
{
	(void)state;
	assert_int_equal(run(OWNER, "xchg &lock->word"), AT);
	assert_int_equal(run(WAITER, NULL), SLEEPS);
	assert_int_equal(run(OWNER, NULL), ENDED);
	assert_true(all_end());
}

/* Woken, and somebody else was faster: it sleeps again, and the next release wakes it again. */
static void woken_and_too_late(void **state)
{
	(void)state;
	assert_int_equal(run(OWNER, INSIDE), AT);
	assert_int_equal(run(WAITER, NULL), SLEEPS);
	assert_int_equal(run(OWNER, NULL), ENDED);
	assert_int_equal(actors[WAITER].why, AT);
	assert_int_equal(run(NEXT, INSIDE), AT);
	assert_int_equal(run(WAITER, NULL), SLEEPS);
	assert_int_equal(run(NEXT, NULL), ENDED);
	assert_true(all_end());
}

/* --seed N: that one alone. */
static uint64_t only;

static void at_random(void **state)
{
	(void)state;
	for (uint64_t i = only ? only : 1; i <= (only ? only : SCHEDULES); i++) {
		uint64_t own = i * UINT64_C(0x9e3779b97f4a7c15);

		begin(ROUNDS);
		seed = own;
		if (!all_end())
			fail_msg("a sleeper that nobody wakes: unit-lockstep --seed %llu",
				 (unsigned long long)i);
	}
}

int main(int argc, char **argv)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(counted_and_not_asleep),
		CASE(looked_and_not_asleep),
		CASE(wake_left_to_another),
		CASE(released_and_not_looked),
		CASE(comes_before_the_release),
		CASE(woken_and_too_late),
		CASE(at_random),
	};

	if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
		only = strtoull(argv[2], NULL, 10);
		cmocka_set_test_filter("at_random");
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
