/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A domain at work: registration, destaging, files that go, what the catalog keeps. */

#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/domain/internal.h"
#include "pool/dir/catalog.h"

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

	set_age(e, ENV_LONG_NS);
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

/* What a step trims is no ground for changed lines: the next rewrite says all of its block. */
static void a_step_ends_the_images(void **state)
{
	struct env *e = *state;
	struct answer r;
	int64_t saved;

	set_age(e, ENV_LONG_NS);
	r = env_join(e, &e->a, 0, "d");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	saved = env_file_number(e, "d", r.id, "saved_bytes");
	assert_true(saved > 0);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, 0);
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	assert_int_equal(env_file_number(e, "d", r.id, "saved_bytes"), saved);
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	assert_true(env_file_number(e, "d", r.id, "saved_bytes") > saved);
}

static void a_quarter_destages(void **state)
{
	struct env *e = *state;

	set_age(e, ENV_LONG_NS);
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

static void boot_and_incarnation_are_known(void **state)
{
	struct env *e = *state;
	struct answer r = env_join(e, &e->a, 0, "d");
	static const uint8_t zero[16];
	struct pool_domain pd;
	int index = catalog_domain_find(e->pool, (uint32_t)geteuid(), "d");

	assert_true(index >= 0);
	assert_int_equal(catalog_domain_get(e->pool, (uint32_t)index, &pd), 0);
	assert_int_equal(pd.incarnation, r.incarnation);
	assert_int_equal(pd.lane, r.lane);
	assert_memory_not_equal(pd.boot_id, zero, 16);
}

static void attached_and_never_came(void **state)
{
	struct env *e = *state;
	struct answer r = env_ask(e, DOMAIN_HELLO, "d", -1, 0);

	assert_int_equal(r.status, 0);
	assert_int_equal(r.control_fd, -1);
	assert_true(env_control_there(e, r.lane));
	env_wait(3500, !env_control_there(e, r.lane));
}

static void a_clock_step_renews_ctimes(void **state)
{
	struct env *e = *state;
	struct pool_file before, after;
	struct domain *d;

	env_join(e, &e->a, 0, "d");
	assert_int_equal(catalog_file_get(e->pool, 0, &before), 0);
	env_sleep_ms(20);
	d = e->set->first;
	pthread_mutex_lock(&d->lock);
	d->clock_step = true;
	pthread_mutex_unlock(&d->lock);
	domain_wake(d);
	env_wait(1000, (catalog_file_get(e->pool, 0, &after), after.ctime_ns > before.ctime_ns));
	assert_true(env_marked(e, 0));
	assert_rewrite_is_known(e, 0);
}

int serves_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(registers_destages_trims),	 CASE(same_inode_same_entry),
		CASE(flush_is_prompt),		 CASE(a_step_ends_the_images),
		CASE(a_quarter_destages),	 CASE(unlinked_file_goes),
		CASE(foreign_unlink_is_noticed), CASE(boot_and_incarnation_are_known),
		CASE(attached_and_never_came),	 CASE(a_clock_step_renews_ctimes),
	};

	return cmocka_run_group_tests_name("serves", tests, NULL, NULL);
}
