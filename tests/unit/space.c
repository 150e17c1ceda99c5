/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/space.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "env.h"
#include "pool/append.h"
#include "pool/lanelock.h"
#include "pool/slot.h"

#define RING 65536u

static struct env e;
static struct control other;

static int set_up(void **state)
{
	(void)state;
	env_make(&e, RING);
	other = env_other(&e);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	control_unmap(&other, false);
	env_free(&e);
	return 0;
}

static void counts(void **state)
{
	struct ctl_hot *hot = e.s.ctl.hot;

	(void)state;
	assert_int_equal(space_for(0), 128 + 128);
	assert_int_equal(space_for(1), 256 + 128);
	assert_int_equal(space_for(65), 384 + 128);

	assert_int_equal(space_reserve(&e.s, &e.who, 1024), SPACE_OK);
	assert_int_equal(space_reserve(&e.s, &e.who, 64), SPACE_OK);
	assert_int_equal(hot->reserved_bytes, 1088);
	assert_int_equal(e.s.ctl.slots[1].note, 1088);
	assert_int_equal(space_release(&e.s, &e.who, 1024), 0);
	assert_int_equal(hot->reserved_bytes, 64);
	assert_int_equal(e.s.ctl.slots[1].note, 64);
	/* never more than is noted */
	assert_int_equal(space_release(&e.s, &e.who, 1024), 0);
	assert_int_equal(hot->reserved_bytes, 0);
	assert_int_equal(e.s.ctl.slots[1].note, 0);
}

static void full_to_the_byte(void **state)
{
	(void)state;
	assert_int_equal(space_reserve(&e.s, &e.who, RING), SPACE_OK);
	assert_int_equal(space_reserve(&e.s, &e.who, 64), SPACE_FULL);
	assert_int_equal(e.s.ctl.hot->full_waits, 1);
	assert_int_equal(space_release(&e.s, &e.who, RING), 0);

	/* a live file keeps 128 bytes for itself, its record the rest */
	assert_int_equal(env_write(&e, env_file(&e, 0), 0, 64, NULL), 0);
	assert_int_equal(e.s.ctl.hot->live_files, 1);
	assert_int_equal(space_reserve(&e.s, &e.who, RING - 128 - 128 + 64), SPACE_FULL);
	assert_int_equal(space_reserve(&e.s, &e.who, RING - 128 - 128), SPACE_OK);
	assert_int_equal(space_reserve(&e.s, &e.who, UINT64_MAX), SPACE_FULL);
}

static void reserves(void *arg)
{
	struct session s = e.s;
	struct caller who = env_caller();

	(void)arg;
	if (slot_take(&s.ctl, ENV_INCARNATION, &s.me) < 0 ||
	    space_reserve(&s, &who, 4096) != SPACE_OK)
		abort();
}

static void recounts(void **state)
{
	struct ctl_hot *hot = e.s.ctl.hot;
	int a = env_fork(reserves, NULL), b = env_fork(reserves, NULL);

	(void)state;
	assert_int_equal(env_write(&e, env_file(&e, 5), 0, 64, NULL), 0);
	assert_int_equal(env_write(&e, env_file(&e, 6), 0, 64, NULL), 0);
	assert_int_equal(space_reserve(&e.s, &e.who, 128), SPACE_OK);
	assert_int_equal(hot->reserved_bytes, 2 * 4096 + 128);
	env_kill(b);
	hot->live_files = 77;
	hot->reserved_bytes = 1;
	assert_int_equal(space_recount(&e.s, &e.who), 0);
	assert_int_equal(hot->reserved_bytes, 4096 + 128);
	assert_int_equal(hot->live_files, 2);
	assert_int_equal(e.s.ctl.slots[3].note, 0);
	assert_int_equal(e.s.ctl.slots[2].note, 4096);
	env_kill(a);
	assert_int_equal(space_recount(&e.s, &e.who), 0);
	assert_int_equal(hot->reserved_bytes, 128);
}

/* Nobody takes the dead ones' files or slots again: who needs the room gets it all the same. */
static void dead_ones_give_back(void **state)
{
	int a = env_fork(reserves, NULL), b = env_fork(reserves, NULL);

	(void)state;
	assert_int_equal(space_reserve(&e.s, &e.who, RING - 4096), SPACE_FULL);
	env_kill(b);
	assert_int_equal(space_reserve(&e.s, &e.who, RING - 4096 + 64), SPACE_FULL);
	assert_int_equal(space_reserve(&e.s, &e.who, RING - 4096), SPACE_OK);
	assert_int_equal(e.s.ctl.hot->reserved_bytes, RING);
	env_kill(a);
	assert_int_equal(space_reserve(&e.s, &e.who, 4096), SPACE_OK);
	assert_int_equal(e.s.ctl.hot->reserved_bytes, RING);
}

static void publishes_tail(void **state)
{
	struct ctl_hot *hot = e.s.ctl.hot;
	struct ctl_file *f = env_file(&e, 0), *g = env_file(&e, 1);

	(void)state;
	assert_false(space_file_live(&e.s, f));
	assert_int_equal(env_write(&e, f, 0, 64, NULL), 0);
	assert_int_equal(env_write(&e, g, 0, 64, NULL), 0);
	assert_true(space_file_live(&e.s, f));
	assert_int_equal(hot->live_files, 2);
	assert_int_equal(space_publish_tail(&e.s, &e.who, 128), 0);
	assert_false(space_file_live(&e.s, f));
	assert_true(space_file_live(&e.s, g));
	assert_int_equal(hot->live_files, 1);
	assert_int_equal(hot->tail, 128);
	assert_int_equal(hot->trim_seq, 1);
	g->fence = 256;
	assert_false(space_file_live(&e.s, g));
}

static void holds_the_lane(void *arg)
{
	struct session s = e.s;
	struct caller who = env_caller();

	(void)arg;
	if (slot_take(&s.ctl, ENV_INCARNATION, &s.me) < 0 || lane_lock(&s, &who) < 0)
		abort();
}

/* live_files is counted and changed under the lane lock, by the daemon, too: it moves nothing beside a client that
 * has it, and gives up after a second. */
static void daemon_waits_for_the_lane(void **state)
{
	struct ctl_hot *hot = e.s.ctl.hot;
	uint64_t begin;
	int client;

	(void)state;
	assert_int_equal(env_write(&e, env_file(&e, 0), 0, 64, NULL), 0);
	client = env_fork(holds_the_lane, NULL);
	e.s.is_daemon = true;
	begin = env_ms();
	assert_int_equal(space_publish_tail(&e.s, &e.who, 128), -ETIMEDOUT);
	assert_true(env_ms() - begin >= 990);
	assert_int_equal(hot->tail, 0);
	assert_int_equal(hot->live_files, 1);
	assert_int_not_equal(hot->lane_lock.word, 0);
	env_kill(client);
	assert_int_equal(space_publish_tail(&e.s, &e.who, 128), 0);
	assert_int_equal(hot->tail, 128);
	assert_int_equal(hot->live_files, 0);
}

static uint64_t wait_ms(int *ret)
{
	uint64_t begin = env_ms();

	*ret = space_wait(&e.s, atomic_load_acquire(&e.s.ctl.hot->trim_seq));
	return env_ms() - begin;
}

/* Nothing moves: reconnect_timeout (200 ms here), then bypass. Without a daemon its clock word may
 * say what it will. */
static void *ticks(void *arg)
{
	int *stop = arg;

	while (!atomic_load_acquire(stop)) {
		atomic_add_seq(&e.s.ctl.hot->daemon_ns, 1);
		env_sleep_ms(10);
	}
	return NULL;
}

static void stalls(void **state)
{
	pthread_t t;
	int r, stop = 0;
	uint64_t ms = wait_ms(&r);

	(void)state;
	assert_int_equal(r, SPACE_STALLED);
	assert_true(ms >= 195 && ms < 1500);
	assert_int_equal(e.s.ctl.hot->space_waiters, 0);

	/* given up once: the next file's writer need not find out again */
	ms = wait_ms(&r);
	assert_int_equal(r, SPACE_STALLED);
	assert_true(ms < 100);

	/* but a daemon that has moved is waited for again */
	e.s.ctl.hot->daemon_seq++;
	ms = wait_ms(&r);
	assert_int_equal(r, SPACE_STALLED);
	assert_true(ms >= 195 && ms < 1500);

	e.s.ctl.hot->daemon_ns++;
	assert_int_equal(pthread_create(&t, NULL, ticks, &stop), 0);
	ms = wait_ms(&r);
	atomic_store_release(&stop, 1);
	pthread_join(t, NULL);
	assert_int_equal(r, SPACE_STALLED);
	assert_true(ms >= 195 && ms < 1500);

	e.s.is_daemon = true;
	ms = wait_ms(&r);
	assert_int_equal(r, SPACE_STALLED);
	assert_true(ms < 100);
}

/* A daemon that tries keeps the writer waiting, ten times the timeout at most. */
static void waits_for_a_living_daemon(void **state)
{
	pthread_t t;
	struct holder d;
	int r, stop = 0;
	uint64_t ms;

	(void)state;
	assert_int_equal(slot_take_daemon(&other, &d), 0);
	assert_int_equal(pthread_create(&t, NULL, ticks, &stop), 0);
	ms = wait_ms(&r);
	atomic_store_release(&stop, 1);
	pthread_join(t, NULL);
	assert_int_equal(r, SPACE_STALLED);
	assert_true(ms >= 1900 && ms < 5000);
}

static void *trims(void *arg)
{
	struct session s = e.s;
	struct caller who = env_caller();

	(void)arg;
	/* as the destager: sleeps until it is woken */
	while (atomic_load_seq(&s.ctl.hot->asleep) != 0)
		env_sleep_ms(1);
	env_sleep_ms(20);
	if (space_publish_tail(&s, &who, 0) < 0)
		abort();
	return NULL;
}

static void wakes_and_is_woken(void **state)
{
	pthread_t t;
	uint64_t ms;
	int r;

	(void)state;
	e.s.head_copy.reconnect_timeout_ns = UINT64_C(60000000000);
	e.s.ctl.hot->asleep = 2;
	assert_int_equal(pthread_create(&t, NULL, trims, NULL), 0);
	ms = wait_ms(&r);
	pthread_join(t, NULL);
	assert_int_equal(r, SPACE_OK);
	assert_int_equal(e.s.ctl.hot->asleep, 0);
	assert_true(ms < 5000);
	/* moved before the wait began: no wait */
	assert_int_equal(space_wait(&e.s, 0), SPACE_OK);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(counts),
		CASE(full_to_the_byte),
		CASE(recounts),
		CASE(dead_ones_give_back),
		CASE(publishes_tail),
		CASE(daemon_waits_for_the_lane),
		CASE(stalls),
		CASE(waits_for_a_living_daemon),
		CASE(wakes_and_is_woken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
