/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Clients that cut, forge and lie: their own domain is held, and nobody else notices. */

#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "abi/control.h"

static void cut_short(struct env *e, enum client_op op)
{
	skip_under_tsan();
	env_join(e, &e->a, 0, "victim");
	env_join(e, &e->b, 1, "other");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_op(&e->a, op), 0);
	env_wait(3000, !env_state_is(e, "victim", "ok"));
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "other", -1, 0).status, 0);
	assert_true(env_state_is(e, "other", "ok"));
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "victim", -1, 0).status, -EBUSY);
	assert_int_equal(env_ask(e, DOMAIN_GATE, "victim", -1, 0).status, -EBUSY);
	env_daemon_stop(e);
	env_daemon_start(e);
	assert_true(env_state_is(e, "other", "ok"));
	assert_false(env_state_is(e, "victim", "ok"));
}

static void control_file_cut_short(void **state)
{
	cut_short(*state, CLIENT_CUT_CONTROL);
}

static void lane_cut_short(void **state)
{
	cut_short(*state, CLIENT_CUT_LANE);
}

static void forged_head(void **state)
{
	struct env *e = *state;
	struct client_command k = { .op = CLIENT_FORGE_HEAD, .a = UINT64_C(1) << 60 };

	struct answer r = env_join(e, &e->a, 0, "d");

	set_age(e, ENV_LONG_NS); /* so that the heartbeat meets it first */
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(client_do(&e->a, &k, NULL, NULL), 0);
	/* at once: before anybody else has noticed */
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, -EBUSY);
	env_wait(3000, !env_state_is(e, "d", "ok"));
	assert_true(beat_of(e, r.lane).head < UINT64_C(1) << 40);
}

static void forged_entry(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	struct lane_beat first, second;

	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_op(&e->a, CLIENT_FORGE_ID), 0);
	env_wait(3000, !env_state_is(e, "d", "ok"));
	/* held: whoever writes the files then must not pass for us */
	first = beat_of(e, r.lane);
	env_sleep_ms(300);
	second = beat_of(e, r.lane);
	assert_int_equal(first.time_ns, second.time_ns);
}

/* A child that has the control file mapped and no slot yet must not find it open over a new incarnation. */
static void a_command_closes_the_control_file(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	uint32_t ctl_state;
	char path[512];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/control/%u", e->config.run_dir, r.lane);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_op(&e->a, CLIENT_FORGE_ID), 0);
	env_wait(3000, !env_state_is(e, "d", "ok"));
	assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_APPLY).status, -EBUSY);
	client_end(&e->a, 1);
	assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_APPLY).status, 0);
	assert_true(pread(fd, &ctl_state, sizeof(ctl_state), offsetof(struct ctl_head, state)) ==
		    sizeof(ctl_state));
	assert_int_equal(ctl_state, CTL_CLOSED);
	(void)close(fd);
}

int hostile_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(control_file_cut_short),
		CASE(lane_cut_short),
		CASE(forged_head),
		CASE(forged_entry),
		CASE(a_command_closes_the_control_file),
	};

	return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
