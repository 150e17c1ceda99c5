/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's domains with real client processes, a real file system and an emulated pool. */

#include "env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/dir/catalog.h"

static void wait_trimmed(struct env *e, const char *domain)
{
	env_wait(3000, env_number(e, domain, "live_bytes") == 0);
}

/* ---- the ordinary way -------------------------------------------------------------------------- */

static void registers_destages_trims(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	unsigned syncs;

	assert_int_equal(r.status, 0);
	assert_int_equal(r.state, FILE_LANE);
	assert_true(env_marked(e, 0));
	assert_int_equal(env_catalog_files(e), 1);
	syncs = faults_syncs(e->ino[0]);

	assert_int_equal(env_write(&e->a, 0, 5000, 'x'), 5000);
	assert_true(env_number(e, "d", "live_bytes") > 0);
	assert_int_equal(env_byte(e, 0, 4999), 'x');
	wait_trimmed(e, "d"); /* by age: 200 ms */
	assert_true(faults_syncs(e->ino[0]) > syncs);
	assert_int_equal(env_number(e, "d", "sessions"), 1);
	assert_int_equal(env_file_number(e, "d", r.id, "records"), 1);
	assert_true(env_file_is(e, "d", r.id, "lane"));
	assert_int_equal(env_op(&e->a, CLIENT_SYNC), 0);
}

static void same_inode_same_entry(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	struct answer again =
		env_ask(e, DOMAIN_REGISTER, "d", fcntl(e->fd[0], F_DUPFD_CLOEXEC, 0), 0);

	assert_int_equal(again.status, 0);
	assert_int_equal(again.entry, r.entry);
	assert_int_equal(again.id, r.id);
	again = env_ask(e, DOMAIN_REGISTER, "d", open(e->file[0], O_RDONLY | O_CLOEXEC), 0);
	assert_int_equal(again.status, -EINVAL);
	again = env_ask(e, DOMAIN_REGISTER, "d", open(e->dir, O_RDONLY | O_CLOEXEC), 0);
	assert_int_equal(again.status, -EINVAL);
}

static void flush_is_prompt(void **state)
{
	struct env *e = *state;
	unsigned syncs;

	e->config.destage_age_ns = ENV_LONG_NS;
	env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	env_sleep_ms(300);
	assert_true(env_number(e, "d", "live_bytes") > 0);
	syncs = faults_syncs(e->ino[0]);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(env_number(e, "d", "live_bytes"), 0);
	assert_true(faults_syncs(e->ino[0]) > syncs);
	/* nothing live: nothing to do */
	syncs = faults_syncs(e->ino[0]);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(faults_syncs(e->ino[0]), syncs);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "none", -1, 0).status, -ENOENT);
}

static void a_quarter_destages(void **state)
{
	struct env *e = *state;

	e->config.destage_age_ns = ENV_LONG_NS;
	env_join(e, &e->a, 0, "d");
	for (uint64_t i = 0; i < 40; i++)
		assert_int_equal(env_write(&e->a, i * 8192, 8192, 'x'), 8192);
	env_wait(2000, env_number(e, "d", "live_bytes") < (int64_t)ENV_RING / 4);
	/* many times round the ring: never full for long */
	for (uint64_t i = 0; i < 600; i++)
		assert_int_equal(env_write(&e->a, (i % 40) * 8192, 8192, (uint8_t)i), 8192);
	assert_true(env_number(e, "d", "wraps") > 2);
	assert_int_equal(env_number(e, "d", "destage_errors"), 0);
}

/* ---- ends of sessions --------------------------------------------------------------------------- */

static void assert_all_gone(struct env *e, uint32_t lane)
{
	env_wait(3500, !env_control_there(e, lane));
	assert_false(env_marked(e, 0));
	assert_int_equal(env_catalog_files(e), 0);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_ask(e, DOMAIN_GATE, "d", -1, 0).status, 0);
}

static void last_session_ends_clean(void **state)
{
	struct env *e = *state;
	struct answer r, again;

	e->config.destage_age_ns = ENV_LONG_NS;
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

/* ---- the daemon goes and comes ------------------------------------------------------------------- */

static void goes_on_after_a_restart(void **state)
{
	struct env *e = *state;
	struct answer r;
	char text[512];

	e->config.destage_age_ns = ENV_LONG_NS;
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

static void clean_stop_destages(void **state)
{
	struct env *e = *state;

	e->config.destage_age_ns = ENV_LONG_NS;
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

	e->config.destage_age_ns = ENV_LONG_NS;
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

	e->config.destage_age_ns = ENV_LONG_NS;
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

/* ---- failing disks ------------------------------------------------------------------------------- */

static uint32_t catalog_flags(struct env *e)
{
	struct pool_file f;

	for (uint32_t i = 0; i < POOL_FILES; i++)
		if (catalog_file_get(e->pool, i, &f) == 0)
			return f.flags;
	return 0;
}

static void a_failed_sync_heals(void **state)
{
	struct env *e = *state;
	struct answer r, flush;
	int64_t live;

	e->config.destage_age_ns = ENV_LONG_NS;
	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	live = env_number(e, "d", "live_bytes");
	faults_set(e->ino[0], EIO);
	flush = env_ask(e, DOMAIN_FLUSH, "d", -1, 0);
	assert_int_equal(flush.status, -EBUSY);
	assert_int_equal(flush.exit_code, 1);
	assert_non_null(strstr(flush.text, "disk reports an error"));
	assert_true(env_number(e, "d", "live_bytes") >= live);
	assert_true(env_number(e, "d", "destage_errors") > 0);
	assert_true(env_file_number(e, "d", r.id, "degraded") == 1);
	assert_true(catalog_flags(e) & POOL_FILE_DEGRADED);
	/* the kernel called the pages clean and dropped them */
	env_lose_pages(e, 0, 0, 4096);
	faults_set(0, 0);
	wait_trimmed(e, "d");
	assert_int_equal(env_byte(e, 0, 0), 'x');
	env_wait(2000, env_file_number(e, "d", r.id, "degraded") == 0);
	assert_false(catalog_flags(e) & POOL_FILE_DEGRADED);
}

static void others_are_synced_meanwhile(void **state)
{
	struct env *e = *state;
	struct answer one, two;
	unsigned syncs;

	one = env_join(e, &e->a, 0, "d");
	two = env_join(e, &e->b, 1, "d");
	assert_int_equal(one.status | two.status, 0);
	faults_set(e->ino[0], ENOSPC);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	syncs = faults_syncs(e->ino[1]);
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	env_wait(2000, faults_syncs(e->ino[1]) > syncs);
	assert_int_equal(env_file_number(e, "d", two.id, "degraded"), 0);
	assert_true(env_number(e, "d", "live_bytes") > 0);
	/* what was synced is not synced again and again */
	syncs = faults_syncs(e->ino[1]);
	env_sleep_ms(1500);
	assert_int_equal(faults_syncs(e->ino[1]), syncs);
	faults_set(0, 0);
	wait_trimmed(e, "d");
}

static void an_end_that_cannot_destage_recovers(void **state)
{
	struct env *e = *state;
	struct answer r;

	e->config.destage_age_ns = ENV_LONG_NS;
	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	faults_set(e->ino[0], EIO);
	env_lose_pages(e, 0, 0, 4096);
	client_end(&e->a, 1);
	env_wait(3500, !env_state_is(e, "d", "ok"));
	assert_int_equal(env_ask(e, DOMAIN_GATE, "d", -1, 0).status, -EBUSY);
	faults_set(0, 0);
	if (env_state_is(e, "d", "held"))
		env_wait(8000, env_state_is(e, "d", "ok")); /* by itself */
	else
		assert_int_equal(env_ask(e, DOMAIN_RECOVER, "d", -1, WIRE_RECOVER_APPLY).status, 0);
	assert_int_equal(env_byte(e, 0, 0), 'x');
	assert_all_gone(e, r.lane);
}

/* ---- hostile and unlucky clients ----------------------------------------------------------------- */

static void cut_short(struct env *e, enum client_op op)
{
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

	env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(client_do(&e->a, &k, NULL, NULL), 0);
	env_wait(3000, !env_state_is(e, "d", "ok"));
}

static void second_domain_puts_both_into_bypass(void **state)
{
	struct env *e = *state;
	struct answer one, two;

	e->config.destage_age_ns = ENV_LONG_NS;
	one = env_join(e, &e->a, 0, "one");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	two = env_join(e, &e->b, 0, "two");
	assert_int_equal(two.status, 0);
	assert_int_equal(two.state, FILE_BYPASS);
	assert_true(env_file_is(e, "one", one.id, "bypass"));
	/* its records are fenced: no replay can put them over what the other one writes now */
	assert_int_equal(env_file_number(e, "one", one.id, "live_bytes"), 0);
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	assert_int_equal(env_write(&e->a, 100, 100, 'z'), 100);
	assert_int_equal(env_file_number(e, "two", two.id, "live_bytes"), 0);
	assert_int_equal(env_file_number(e, "one", one.id, "live_bytes"), 0);
	client_end(&e->a, 1);
	client_end(&e->b, 1);
	env_wait(4000, env_catalog_files(e) == 0);
	assert_int_equal(env_byte(e, 0, 0), 'y');
}

static void unlinked_file_goes(void **state)
{
	struct env *e = *state;
	struct client_command k = { .op = CLIENT_UNLINK };
	struct answer r = env_join(e, &e->a, 0, "d");

	(void)snprintf(k.path, sizeof(k.path), "%s", e->file[0]);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(client_do(&e->a, &k, NULL, NULL), 0);
	env_wait(2500, env_file_number(e, "d", r.id, "records") == -1);
	assert_int_equal(env_catalog_files(e), 0);
	assert_int_equal(env_number(e, "d", "live_bytes"), 0);
	/* whoever still has the file hears that its entry is gone */
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), -ESTALE);
}

static void foreign_unlink_is_noticed(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");

	assert_int_equal(unlink(e->file[0]), 0);
	env_wait(2000, env_file_number(e, "d", r.id, "records") == -1);
	assert_int_equal(env_catalog_files(e), 0);
}

static void bypass_token(void **state)
{
	struct env *e = *state;
	struct stat st;
	struct answer r;
	char path[512];
	int token;

	assert_int_equal(fstat(e->fd[0], &st), 0);
	(void)snprintf(path, sizeof(path), "%s/bypass/%u:%u-%llu", e->config.run_dir,
		       major(st.st_dev), minor(st.st_dev), (unsigned long long)st.st_ino);
	token = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	assert_int_equal(flock(token, LOCK_SH), 0);

	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(r.status, 0);
	assert_int_equal(r.state, FILE_BYPASS);
	assert_false(env_marked(e, 0));
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_number(e, "d", "live_bytes"), 0);
	env_sleep_ms(1500);
	assert_false(env_marked(e, 0));
	(void)close(token);
	env_wait(3000, env_file_is(e, "d", r.id, "lane"));
	assert_true(env_marked(e, 0));
	assert_int_equal(env_write(&e->a, 0, 100, 'y'), 100);
	assert_true(env_number(e, "d", "records") == 1);
	/* the id is one that recovery knows */
	env_daemon_stop(e);
	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_file_number(e, "d", r.id, "degraded"), 0);
}

static void leaves_bypass_when_there_is_room(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");

	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_op(&e->a, CLIENT_FULL_BYPASS), 0);
	assert_true(env_file_is(e, "d", r.id, "bypass"));
	env_wait(2500, env_file_is(e, "d", r.id, "lane"));
	assert_int_equal(env_write(&e->a, 0, 100, 'y'), 100);
	wait_trimmed(e, "d");
}

/* ---- heartbeat and sleep -------------------------------------------------------------------------- */

static uint64_t wakeups(void)
{
	struct answer_line {
		char text[256];
	} line;
	uint64_t sum = 0, n;
	char path[64];
	FILE *f;

	/* voluntary switches of every thread but this one */
	for (int tid = (int)sys_gettid() + 1; tid < (int)sys_gettid() + 4000; tid++) {
		(void)snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
		f = fopen(path, "re");
		if (!f)
			continue;
		while (fgets(line.text, sizeof(line.text), f))
			if (sscanf(line.text, "voluntary_ctxt_switches: %lu", &n) == 1)
				sum += n;
		(void)fclose(f);
	}
	return sum;
}

static void idle_means_asleep(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	uint64_t before;

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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(registers_destages_trims),
		TEST(same_inode_same_entry),
		TEST(flush_is_prompt),
		TEST(a_quarter_destages),
		TEST(last_session_ends_clean),
		TEST(killed_client_is_noticed),
		TEST(one_of_two_sessions_ends),
		TEST(goes_on_after_a_restart),
		TEST(clean_stop_destages),
		TEST(session_ended_while_the_daemon_was_away),
		TEST(records_without_a_control_file_are_held),
		TEST(a_failed_sync_heals),
		TEST(others_are_synced_meanwhile),
		TEST(an_end_that_cannot_destage_recovers),
		TEST(control_file_cut_short),
		TEST(lane_cut_short),
		TEST(forged_head),
		TEST(second_domain_puts_both_into_bypass),
		TEST(unlinked_file_goes),
		TEST(foreign_unlink_is_noticed),
		TEST(bypass_token),
		TEST(leaves_bypass_when_there_is_room),
		TEST(idle_means_asleep),
	};

	if (getenv("DOMAIN_TEST"))
		cmocka_set_test_filter(getenv("DOMAIN_TEST"));
	return cmocka_run_group_tests_name("domain", tests, NULL, NULL);
}
