/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Disks whose syncs fail or take long. */

#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "pool/dir/catalog.h"

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

	set_age(e, ENV_LONG_NS);
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
	assert_rewrite_is_known(e, 0);
}

/* Would a recovery now take the file's ctime for ours? DESIGN 7: by more than a second later it is not. */
static bool rewrite_known(struct env *e, unsigned n)
{
	struct pool_file f = { .used = 0 };
	struct stat st;

	for (uint32_t i = 0; i < POOL_FILES; i++)
		if (catalog_file_get(e->pool, i, &f) == 0 && f.ino == e->ino[n])
			break;
	assert_int_equal(fstat(e->fd[n], &st), 0);
	return (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec <=
	       f.rewrite_until_ns + 1000000000u;
}

/* A heal that takes longer than rewrite_until reaches may be cut at any time. */
static void a_long_heal_renews(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	for (unsigned i = 0; i < 12; i++)
		assert_int_equal(env_write(&e->a, i * 8192u, 4096, 'x'), 4096);
	faults_set(e->ino[0], EIO);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, -EBUSY);
	faults_slow_writes(150);
	faults_set(0, 0);
	for (unsigned i = 0; i < 600 && env_number(e, "d", "live_bytes") != 0; i++) {
		assert_true(rewrite_known(e, 0));
		env_sleep_ms(50);
	}
	faults_slow_writes(0);
	assert_int_equal(env_number(e, "d", "live_bytes"), 0);
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

static struct {
	struct env *e;
	struct domain_request r;
	unsigned asked, answered; /* syncs of the second file by then */
	uint32_t done;
} light;

static void light_done(struct domain_request *r)
{
	(void)r;
	light.answered = faults_syncs(light.e->ino[1]);
	atomic_store_release(&light.done, 1); /* the test waits for it */
}

static void light_ask(void)
{
	light.asked = faults_syncs(light.e->ino[1]);
	domain_submit(light.e->set, (uint32_t)geteuid(), "d", &light.r);
}

/* A database that opens its next log while a step is on its way waits for one file's sync, not for all. */
static void registers_inside_a_step(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	env_join(e, &e->b, 1, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	memset(&light, 0, sizeof(light));
	light.e = e;
	light.r.kind = DOMAIN_REGISTER;
	light.r.done = light_done;
	light.r.fd = open(e->file[0], O_RDWR | O_CLOEXEC);
	(void)snprintf(light.r.path, sizeof(light.r.path), "%s", e->file[0]);
	faults_after_sync(e->ino[0], light_ask);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	env_wait(5000, atomic_load_acquire(&light.done));
	assert_int_equal(light.r.status, 0);
	assert_int_equal(light.answered, light.asked);
}

/* Killed between UNLINK and the call: a later write says that the file is there, to recovery, too. */
static void unlink_that_came_to_nothing(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	env_join(e, &e->b, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	(void)env_op(&e->a, CLIENT_UNLINK_DIES);
	client_end(&e->a, 1);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_true(catalog_flags(e) & POOL_FILE_UNLINKED);
	assert_int_equal(env_write(&e->b, 0, 100, 'y'), 100);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_false(catalog_flags(e) & POOL_FILE_UNLINKED);
}

static void an_end_that_cannot_destage_recovers(void **state)
{
	struct env *e = *state;
	struct answer r;

	set_age(e, ENV_LONG_NS);
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

static char control_file[320];
static uint32_t looked; /* 1: it was there, 2: it was not */

static void look_for_control_file(void)
{
	atomic_store_release(&looked, access(control_file, F_OK) == 0 ? 1 : 2);
}

/* As long as anything is live: it tells the next daemon that these records have had their sessions' end. */
static void an_end_removes_the_control_file_last(void **state)
{
	struct env *e = *state;
	struct answer r;

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	(void)snprintf(control_file, sizeof(control_file), "%s/control/%u", e->config.run_dir,
		       r.lane);
	assert_int_equal(access(control_file, F_OK), 0);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	looked = 0;
	faults_after_sync(e->ino[0], look_for_control_file);
	client_end(&e->a, 1);
	env_wait(5000, atomic_load_acquire(&looked) != 0);
	assert_int_equal(looked, 1);
	env_wait(5000, access(control_file, F_OK) != 0);
}

/* A client's sync fails: it says so in the counter, and the daemon must not trust the page cache. */
static void a_clients_failed_sync_heals(void **state)
{
	struct env *e = *state;
	struct answer r;

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	env_lose_pages(e, 0, 0, 4096);
	assert_int_equal(env_op(&e->a, CLIENT_DEGRADE), 0);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(env_byte(e, 0, 0), 'x');
	assert_int_equal(env_file_number(e, "d", r.id, "degraded"), 0);
	assert_rewrite_is_known(e, 0);
}

/* Our sync failed: a client that makes the file durable by itself must hear of it. */
static void a_client_heals_before_its_fence(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
	env_join(e, &e->a, 0, "d");
	/* Its description has seen a head that is not 0 before the write that counts: by itself it trusts it. */
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(env_write(&e->a, 0, 4096, 'w'), 4096);
		assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	}
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	faults_set(e->ino[0], EIO);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, -EBUSY);
	env_lose_pages(e, 0, 0, 4096);
	assert_int_equal(env_op(&e->a, CLIENT_FULL_BYPASS), 0);
	assert_int_equal(env_byte(e, 0, 0), 'x');
}

int failing_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_failed_sync_heals),
		CASE(a_long_heal_renews),
		CASE(others_are_synced_meanwhile),
		CASE(registers_inside_a_step),
		CASE(unlink_that_came_to_nothing),
		CASE(an_end_that_cannot_destage_recovers),
		CASE(an_end_removes_the_control_file_last),
		CASE(a_clients_failed_sync_heals),
		CASE(a_client_heals_before_its_fence),
	};

	return cmocka_run_group_tests_name("failing", tests, NULL, NULL);
}
