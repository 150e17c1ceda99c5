/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Heartbeat, and sleep without a timer. */

#include "cases.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"

static uint64_t wakeups(void)
{
	char path[64], line[256], me[16];
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *t;
	uint64_t sum = 0, n;

	assert_non_null(tasks);
	(void)snprintf(me, sizeof(me), "%u", sys_gettid());
	while ((t = readdir(tasks))) {
		FILE *f;

		if (t->d_name[0] == '.' || strcmp(t->d_name, me) == 0)
			continue; /* all threads but this one */
		(void)snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", t->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
				sum += n;
		if (f)
			(void)fclose(f);
	}
	(void)closedir(tasks);
	return sum;
}

static void beats_while_it_serves(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	struct lane_beat first, second;

	set_age(e, ENV_LONG_NS);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	env_sleep_ms(250);
	first = beat_of(e, r.lane);
	assert_true(now_realtime_ns() - first.time_ns < UINT64_C(250000000));
	assert_true(first.head > 0);
	env_sleep_ms(300);
	second = beat_of(e, r.lane);
	assert_true(second.time_ns >= first.time_ns + UINT64_C(150000000));

	skip_under_tsan();
	/* held: whoever writes the files then must not pass for us */
	assert_int_equal(env_op(&e->a, CLIENT_CUT_CONTROL), 0);
	env_wait(2000, env_state_is(e, "d", "held"));
	first = beat_of(e, r.lane);
	env_sleep_ms(500);
	second = beat_of(e, r.lane);
	assert_int_equal(first.time_ns, second.time_ns);
}

/* Killed, and the worker does not look before the grace of its HELLO is over: whoever writes the files
 * meanwhile must not pass for it. */
static void no_beat_for_the_dead(void **state)
{
	struct env *e = *state;
	struct lane_beat first, second;
	struct answer r;

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	client_end(&e->a, 1);
	env_sleep_ms(20); /* one that was under way */
	first = beat_of(e, r.lane);
	env_sleep_ms(350);
	second = beat_of(e, r.lane);
	assert_int_equal(first.time_ns, second.time_ns);
}

/* All threads but this one: the daemon's. One that runs, or could, or waits for the disk, is not asleep. */
static bool all_asleep(void)
{
	char path[64], line[256], me[16], how;
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *t;
	bool all = true;

	assert_non_null(tasks);
	(void)snprintf(me, sizeof(me), "%u", sys_gettid());
	while (all && (t = readdir(tasks))) {
		FILE *f;

		if (t->d_name[0] == '.' || strcmp(t->d_name, me) == 0)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", t->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "State: %c", &how) == 1)
				all = how == 'S';
		if (f)
			(void)fclose(f);
	}
	(void)closedir(tasks);
	return all;
}

/* A lost wake-up: a record is due, and everybody sleeps till the next tick, a second later. Not a matter of
 * time: on a busy machine the worker may be ready, and not get a processor, for as long. */
static void no_wake_up_is_lost(void **state)
{
	struct env *e = *state;

	set_age(e, 0);
	env_join(e, &e->a, 0, "d");
	for (unsigned i = 0; i < 400; i++) {
		uint64_t begin = env_ms();
		unsigned asleep = 0;

		assert_int_equal(env_write(&e->a, 0, 64, (uint8_t)i), 64);
		while (env_number(e, "d", "live_bytes") != 0) {
			if (env_ms() < begin + 20)
				continue; /* the next write is to meet it falling asleep */
			env_sleep_ms(10);
			asleep = all_asleep() ? asleep + 1 : 0;
			assert_true(asleep < 10);
			assert_true(env_ms() < begin + 60000);
		}
	}
}

static void idle_means_asleep(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	uint64_t before;

	skip_under_tsan(); /* it has a thread of its own */
	before = wakeups();
	env_sleep_ms(1000);
	assert_true(wakeups() > before + 5); /* the heartbeat: or this test sees nothing */
	client_end(&e->a, 1);
	assert_all_gone(e, r.lane);
	env_sleep_ms(300);
	before = wakeups();
	env_sleep_ms(2500);
	assert_int_equal(wakeups(), before);
}

int beat_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(beats_while_it_serves),
		CASE(no_beat_for_the_dead),
		CASE(no_wake_up_is_lost),
		CASE(idle_means_asleep),
	};

	return cmocka_run_group_tests_name("beat", tests, NULL, NULL);
}
