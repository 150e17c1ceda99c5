/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sessions end, the daemon goes and comes. */

#include "cases.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/dir/catalog.h"

static void last_session_ends_clean(void **state)
{
	struct env *e = *state;
	struct answer r, again;

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_ask(e, DOMAIN_GATE, "d", -1, 0).status, -EBUSY);
	client_end(&e->a, 0);
	domain_hangup(e->set, (uint32_t)geteuid(), "d");
	assert_all_gone(e, r.lane);

	/* the lane again, in another incarnation; the same file with a mark again */
	again = env_join(e, &e->b, 0, "d");
	assert_int_equal(again.status, 0);
	assert_int_equal(again.lane, r.lane);
	assert_true(again.incarnation != r.incarnation);
	assert_true(env_marked(e, 0));
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
}

/* A larger lane_size than the pool has room for: the domain keeps its lane, and is not left without. */
static void a_size_without_room(void **state)
{
	struct env *e = *state;
	uint64_t before = e->config.lane_size_bytes;
	struct answer r = env_join(e, &e->a, 0, "d"), again;

	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	client_end(&e->a, 1);
	assert_all_gone(e, r.lane);
	e->config.lane_size_bytes = UINT64_C(3) << 30;
	again = env_join(e, &e->b, 1, "d");
	assert_int_equal(again.status, 0);
	assert_int_equal(again.state, FILE_LANE);
	assert_int_equal(env_number(e, "d", "ring_size"), (int64_t)before);
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	e->config.lane_size_bytes = before;
}

static void killed_client_is_noticed(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");

	assert_int_equal(env_op(&e->a, CLIENT_LOOP), 0);
	env_sleep_ms(200);
	client_end(&e->a, 1); /* and no hangup: the look once a second finds it */
	assert_all_gone(e, r.lane);
	assert_true(env_byte(e, 0, 0) >= 0);
}

/* Bytes of a call that was killed before its record are in the page cache alone, and are read. */
static void successor_finds_all_durable(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d"), next;
	unsigned syncs;

	assert_int_equal(pwrite(e->fd[0], "half", 4, 0), 4);
	syncs = faults_syncs(e->ino[0]);
	client_end(&e->a, 1);
	next = env_join(e, &e->b, 0, "d"); /* at once: nobody has told the daemon */
	assert_true(next.incarnation != r.incarnation);
	assert_true(faults_syncs(e->ino[0]) > syncs);
	assert_int_equal(next.state, FILE_LANE);
}

/* Cut between the last entry and the verdict, recovery's end leaves the word of --apply: not for the next life. */
static void a_verdict_that_outlived(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	struct pool_error error = { "" };
	struct pool_domain d;
	int index;

	client_end(&e->a, 0);
	assert_all_gone(e, r.lane);
	env_daemon_stop(e);
	assert_int_equal(
		pool_open(&e->pool, e->config.pool, e->config.state_dir, true, false, &error), 0);
	index = catalog_domain_find(e->pool, (uint32_t)geteuid(), "d");
	assert_true(index >= 0);
	assert_int_equal(catalog_domain_get(e->pool, (uint32_t)index, &d), 0);
	d.verdict = VERDICT_REPLAY;
	d.flags = POOL_DOMAIN_APPLIED;
	assert_true(catalog_domain_put(e->pool, (uint32_t)index, &d) >= 0);
	e->pool = pool_close(e->pool);

	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(catalog_domain_get(e->pool, (uint32_t)index, &d), 0);
	assert_int_equal(d.verdict, VERDICT_NONE);
	assert_int_equal(d.flags, 0);
}

static void one_of_two_sessions_ends(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");

	assert_int_equal(env_join(e, &e->b, 1, "d").status, 0);
	client_end(&e->a, 1);
	domain_hangup(e->set, (uint32_t)geteuid(), "d");
	env_sleep_ms(1500);
	assert_true(env_control_there(e, r.lane));
	assert_true(env_marked(e, 0));
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_APPLY).status, -EBUSY);
}

static void goes_on_after_a_restart(void **state)
{
	struct env *e = *state;
	struct answer r;
	char text[512];

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	faults_set(e->ino[0], EIO);
	env_daemon_stop(e); /* cannot destage: the record stays live */
	assert_true(env_control_there(e, r.lane));
	assert_int_equal(env_write(&e->a, 4096, 4096, 'y'), 4096);
	/* What our new description cannot know of: the pages were dropped. */
	env_lose_pages(e, 0, 0, 8192);
	faults_set(0, 0);

	env_daemon_start(e);
	env_string(e, "d", "reason", text, sizeof(text));
	assert_true(env_state_is(e, "d", "ok"));
	wait_trimmed(e, "d");
	assert_int_equal(env_byte(e, 0, 0), 'x');
	assert_int_equal(env_byte(e, 0, 8191), 'y');
	/* and the session goes on */
	assert_int_equal(env_write(&e->a, 0, 100, 'z'), 100);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_true(env_marked(e, 0));
}

/* No error was ever seen: the new description alone is the reason. */
static void heals_what_a_new_description_cannot_know(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	env_daemon_stop(e);
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	env_lose_pages(e, 0, 0, 4096);
	env_daemon_start(e);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(env_byte(e, 0, 0), 'x');
	assert_rewrite_is_known(e, 0);
}

/* A domain without a session is not served, or its heartbeat would cover up a stranger's write. */
static void foreign_write_while_nobody_was_there(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	env_daemon_stop(e);
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	client_end(&e->a, 1);
	env_sleep_ms(1300);
	env_lose_pages(e, 0, 0, 4096); /* a restore, say */
	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "quarantined"));
	assert_int_equal(env_byte(e, 0, 0), 0);
	assert_int_equal(env_ask(e, DOMAIN_GATE, "d", -1, 0).status, -EBUSY);
	assert_int_equal(env_ask(e, DOMAIN_HELLO, "d", -1, 0).status, -EBUSY);
	assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_DRY_RUN).status, -EBUSY);
	/* the administrator's word */
	assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_DISCARD).status, 0);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_ask(e, DOMAIN_GATE, "d", -1, 0).status, 0);
	assert_int_equal(env_byte(e, 0, 0), 0);
	assert_false(env_marked(e, 0));
}

static void clean_stop_destages(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	env_daemon_stop(e);
	env_lose_pages(e, 0, 0, 100); /* nothing is live: must not come back */
	env_daemon_start(e);
	assert_int_equal(env_number(e, "d", "live_bytes"), 0);
	assert_int_equal(env_byte(e, 0, 0), 0);
}

static void session_ended_while_the_daemon_was_away(void **state)
{
	struct env *e = *state;
	struct answer r;

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	env_daemon_stop(e);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	client_end(&e->a, 1);
	env_daemon_start(e);
	assert_all_gone(e, r.lane);
	assert_int_equal(env_byte(e, 0, 99), 'x');
}

static void records_without_a_control_file_are_held(void **state)
{
	struct env *e = *state;
	struct answer r, gate;
	char path[512];

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	env_daemon_stop(e);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	client_end(&e->a, 1);
	(void)snprintf(path, sizeof(path), "%s/control/%u", e->config.run_dir, r.lane);
	assert_int_equal(unlink(path), 0);
	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "held"));
	gate = env_ask(e, DOMAIN_GATE, "d", -1, 0);
	assert_int_equal(gate.status, -EBUSY);
	assert_non_null(strstr(gate.text, "recover --apply"));
	assert_int_equal(env_ask(e, DOMAIN_HELLO, "d", -1, WIRE_WANT_LANE).status, -EBUSY);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, -EBUSY);
	assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_APPLY).status, 0);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_byte(e, 0, 99), 'x');
}

/* Unlinked, then its last user died inside RULE F on it: nothing is left that could be put right. */
static void gone_with_a_call_in_the_middle(void **state)
{
	struct env *e = *state;
	struct client_command k = { .op = CLIENT_UNLINK };
	struct answer r = env_join(e, &e->a, 0, "d");

	assert_int_equal(env_join(e, &e->b, 1, "d").status, 0);
	env_daemon_stop(e); /* or it would see the last name go */
	(void)snprintf(k.path, sizeof(k.path), "%s", e->file[0]);
	assert_int_equal(client_do(&e->a, &k, NULL, NULL), 0);
	(void)env_op(&e->a, CLIENT_FENCED_DIES);
	client_end(&e->a, 1);
	assert_int_equal(close(e->fd[0]), 0);
	e->fd[0] = -1;
	env_daemon_start(e);
	env_wait(3000, env_catalog_files(e) == 1);
	assert_int_equal(env_file_number(e, "d", r.id, "records"), -1);
	assert_true(env_state_is(e, "d", "ok"));
}

int life_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(last_session_ends_clean),
		CASE(a_size_without_room),
		CASE(killed_client_is_noticed),
		CASE(successor_finds_all_durable),
		CASE(a_verdict_that_outlived),
		CASE(one_of_two_sessions_ends),
		CASE(goes_on_after_a_restart),
		CASE(heals_what_a_new_description_cannot_know),
		CASE(foreign_write_while_nobody_was_there),
		CASE(clean_stop_destages),
		CASE(session_ended_while_the_daemon_was_away),
		CASE(records_without_a_control_file_are_held),
		CASE(gone_with_a_call_in_the_middle),
	};

	return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
