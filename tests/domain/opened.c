/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the daemon's description of a file cannot know: a write that is under way while it is opened. Its
 * bytes are in the page cache already and may be lost to a write-back that fails; somebody else, without the
 * library, is told of that before we open, so that no sync of ours tells; its record comes after. And what
 * happens to a file between the daemon's heal and its last look at it.
 */

#include "env.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "daemon/domain/internal.h"

static struct env *now; /* for calls from the worker's thread */
static int64_t in_between[2];

static void set_age(struct env *e, uint64_t ns)
{
	atomic_store_release(&e->config.destage_age_ns, ns);
}

static int64_t write_held(struct client *c, uint64_t offset, uint64_t n, uint8_t byte)
{
	struct client_command k = { .op = CLIENT_WRITE_HELD, .a = offset, .b = n, .c = byte };

	return client_do(c, &k, NULL, NULL);
}

/* All that was acknowledged is durable, and nothing is left of it in the lane. */
static void assert_flushed(struct env *e, uint64_t offset, uint8_t byte)
{
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(env_number(e, "d", "live_bytes"), 0);
	assert_int_equal(env_byte(e, 0, offset), byte);
}

/* A daemon comes while a write is under way. */
static void a_write_over_a_restart(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	assert_int_equal(write_held(&e->a, 4096, 4096, 'x'), 4096);
	env_daemon_stop(e);
	env_lose_pages(e, 0, 4096, 4096);
	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_op(&e->a, CLIENT_SYNC), 4096);
	assert_flushed(e, 8191, 'x');
}

/* One session heals after the sync that failed, and the next write is under way when the daemon opens the
 * file anew. */
static void between_failure_and_reopening(void)
{
	in_between[0] = env_op(&now->b, CLIENT_FENCE);
	in_between[1] = write_held(&now->a, 4096, 4096, 'y');
	env_lose_pages(now, 0, 4096, 4096);
	faults_set(0, 0);
}

static void a_write_over_a_failed_sync(void **state)
{
	struct env *e = *state;
	struct answer r;

	now = e;
	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	env_join(e, &e->b, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	faults_set(e->ino[0], EIO);
	faults_before_reopen(between_failure_and_reopening);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(in_between[0], 0);
	assert_int_equal(in_between[1], 4096);
	/* the other session's heal and FENCE have settled what had failed before */
	assert_int_equal(env_file_number(e, "d", r.id, "degraded"), 0);
	assert_int_equal(env_op(&e->a, CLIENT_SYNC), 4096);
	assert_flushed(e, 8191, 'y');
	assert_int_equal(env_byte(e, 0, 4095), 'x');
}

/* A file that a new daemon cannot open at once: what is written meanwhile is older than its description. */
static void opened_late(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	env_daemon_stop(e);
	faults_open_by_handle(EIO);
	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	env_lose_pages(e, 0, 0, 4096);
	faults_open_by_handle(0);
	env_wait(5000, env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status == 0);
	assert_flushed(e, 0, 'x');
}

/* Between the daemon's heal and its last look: a session heals, too, and clears the counter; then a sync of
 * another fails, which was all that told of it. */
static void heal_and_fail_again(void)
{
	in_between[0] = env_op(&now->b, CLIENT_FENCE);
	in_between[1] = env_write(&now->a, 4096, 4096, 'y');
	(void)env_op(&now->a, CLIENT_DEGRADE);
	env_lose_pages(now, 0, 4096, 4096);
}

static void cleared_and_raised_again(void **state)
{
	struct env *e = *state;

	now = e;
	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	env_join(e, &e->b, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	assert_int_equal(env_op(&e->a, CLIENT_DEGRADE), 0);
	faults_after_sync(e->ino[0], heal_and_fail_again);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(in_between[0], 0);
	assert_int_equal(in_between[1], 4096);
	assert_flushed(e, 8191, 'y');
	assert_int_equal(env_byte(e, 0, 4095), 'x');
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_write_over_a_restart),
		TEST(a_write_over_a_failed_sync),
		TEST(opened_late),
		TEST(cleared_and_raised_again),
	};

	if (getenv("DOMAIN_TEST"))
		cmocka_set_test_filter(getenv("DOMAIN_TEST"));
	return cmocka_run_group_tests_name("opened", tests, NULL, NULL);
}
