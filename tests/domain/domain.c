/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's domains with real client processes, a real file system and an emulated pool. */

#include "env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "abi/lane.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "pool/dir/catalog.h"

/* As a reload does. */
static void set_age(struct env *e, uint64_t ns)
{
	atomic_store_release(&e->config.destage_age_ns, ns);
}

static void wait_trimmed(struct env *e, const char *domain)
{
	env_wait(3000, env_number(e, domain, "live_bytes") == 0);
}

static struct lane_beat beat_of(struct env *e, uint32_t lane)
{
	char path[512];
	struct lane_beat b = { .time_ns = 0 };
	int fd;

	(void)snprintf(path, sizeof(path), "%s/lane-%06u", e->config.pool, lane);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(pread(fd, &b, sizeof(b), offsetof(struct lane_header, beat)) ==
		    (ssize_t)sizeof(b));
	(void)close(fd);
	return b;
}

/* Recovery would take our own change of the file for a stranger's otherwise. */
static void assert_rewrite_is_known(struct env *e, unsigned n)
{
	struct pool_file f = { .used = 0 };
	struct stat st;
	uint64_t ctime_ns;

	for (uint32_t i = 0; i < POOL_FILES; i++)
		if (catalog_file_get(e->pool, i, &f) == 0 && f.ino == e->ino[n])
			break;
	assert_int_equal(fstat(e->fd[n], &st), 0);
	ctime_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec;
	assert_true(f.rewrite_until_ns >= ctime_ns);
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

/* ---- the daemon goes and comes ------------------------------------------------------------------- */

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

/* ---- hostile and unlucky clients ----------------------------------------------------------------- */

/* TSan's run-time faults inside its own lock on a word that is not there, and does not come back. */
static void skip_under_tsan(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}

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

static void second_domain_puts_both_into_bypass(void **state)
{
	struct env *e = *state;
	struct answer one, two;

	set_age(e, ENV_LONG_NS);
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

static struct {
	int token, file;
	unsigned syncs;
	uint64_t ino;
} stranger;

static void writes_and_lets_go(void)
{
	(void)!pwrite(stranger.file, "late", 4, 0);
	(void)close(stranger.token);
	stranger.token = -1;
	stranger.syncs = faults_syncs(stranger.ino);
}

/* A program without a session writes after the registration's sync and gives its token back before the
 * daemon looks at it: from then on an fsync has nothing to do, so the daemon must have made it durable. */
static void token_given_back_while_registering(void **state)
{
	struct env *e = *state;
	struct stat st;
	struct answer r;
	char path[512];

	assert_int_equal(fstat(e->fd[0], &st), 0);
	(void)snprintf(path, sizeof(path), "%s/bypass/%u:%u-%llu", e->config.run_dir,
		       major(st.st_dev), minor(st.st_dev), (unsigned long long)st.st_ino);
	stranger.token = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	assert_int_equal(flock(stranger.token, LOCK_SH), 0);
	stranger.file = e->fd[0];
	stranger.ino = e->ino[0];
	faults_after_sync(stranger.ino, writes_and_lets_go);

	r = env_join(e, &e->a, 0, "d");
	assert_int_equal(r.status, 0);
	assert_int_equal(stranger.token, -1);
	assert_int_equal(r.state, FILE_LANE);
	assert_true(faults_syncs(e->ino[0]) > stranger.syncs);
}

/* The daemon is restarted meanwhile: the next one cannot know which file that entry is. */
static void token_held_over_a_restart(void **state)
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
	assert_int_equal(r.state, FILE_BYPASS);
	env_daemon_stop(e);
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), 100);
	env_daemon_start(e);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_write(&e->a, 0, 100, 'x'), -ESTALE); /* registers anew, then */
	r = env_join(e, &e->b, 0, "d");
	assert_int_equal(r.state, FILE_BYPASS);
	(void)close(token);
	env_wait(3000, env_file_is(e, "d", r.id, "lane"));
}

/* In bypass for a while, then for good: stores to a mapping have no records, whoever gives a token back. */
static void mapped_while_a_token_is_held(void **state)
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
	assert_int_equal(r.state, FILE_BYPASS);
	assert_int_equal(env_op(&e->a, CLIENT_MAPPED), 0);
	(void)close(token);
	env_sleep_ms(2300);
	assert_true(env_file_is(e, "d", r.id, "bypass"));
	assert_int_equal(env_write(&e->a, 0, 100, 'y'), 100);
	assert_int_equal(env_number(e, "d", "records"), 0);
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
	assert_int_equal(env_write(&e->a, 0, 4096, 'x'), 4096);
	faults_set(e->ino[0], EIO);
	assert_int_equal(env_ask(e, DOMAIN_FLUSH, "d", -1, 0).status, -EBUSY);
	env_lose_pages(e, 0, 0, 4096);
	assert_int_equal(env_op(&e->a, CLIENT_FULL_BYPASS), 0);
	assert_int_equal(env_byte(e, 0, 0), 'x');
}

/* ---- the registry's books ------------------------------------------------------------------------ */

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

struct registering {
	struct env *e;
	const char *domain;
	unsigned n;
	struct answer answer;
};

static void *register_one(void *arg)
{
	struct registering *r = arg;

	r->answer = env_ask(r->e, DOMAIN_REGISTER, r->domain,
			    fcntl(r->e->fd[r->n], F_DUPFD_CLOEXEC, 0), 0);
	return NULL;
}

/* Each of two domains wants the other's file at the same time. */
static void crosswise(void **state)
{
	struct env *e = *state;
	struct registering one = { e, "one", 1, { 0 } }, two = { e, "two", 0, { 0 } };
	pthread_t a, b;

	env_join(e, &e->a, 0, "one");
	env_join(e, &e->b, 1, "two");
	assert_int_equal(pthread_create(&a, NULL, register_one, &one), 0);
	assert_int_equal(pthread_create(&b, NULL, register_one, &two), 0);
	(void)pthread_join(a, NULL);
	(void)pthread_join(b, NULL);
	assert_int_equal(one.answer.status, 0);
	assert_int_equal(two.answer.status, 0);
	assert_int_equal(one.answer.state, FILE_BYPASS);
	assert_int_equal(two.answer.state, FILE_BYPASS);
}

/* Both at once, and neither is in the other's table yet. */
static void at_the_same_time(void **state)
{
	struct env *e = *state;

	for (unsigned round = 0; round < 2; round++) {
		struct registering one = { e, "one", round, { 0 } },
				   two = { e, "two", round, { 0 } };
		pthread_t a, b;

		assert_int_equal(env_ask(e, DOMAIN_HELLO, "one", -1, 0).status, 0);
		assert_int_equal(env_ask(e, DOMAIN_HELLO, "two", -1, 0).status, 0);
		assert_int_equal(pthread_create(&a, NULL, register_one, &one), 0);
		assert_int_equal(pthread_create(&b, NULL, register_one, &two), 0);
		(void)pthread_join(a, NULL);
		(void)pthread_join(b, NULL);
		assert_int_equal(one.answer.status, 0);
		assert_int_equal(two.answer.status, 0);
		assert_true(env_file_is(e, "one", one.answer.id, "bypass"));
		assert_true(env_file_is(e, "two", two.answer.id, "bypass"));
	}
}

/* ---- heartbeat and sleep -------------------------------------------------------------------------- */

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

/* A lost wake-up would show as a record that waits for the next tick. */
static void no_wake_up_is_lost(void **state)
{
	struct env *e = *state;

	set_age(e, 0);
	env_join(e, &e->a, 0, "d");
	for (unsigned i = 0; i < 400; i++) {
		uint64_t begin = env_ms();

		assert_int_equal(env_write(&e->a, 0, 64, (uint8_t)i), 64);
		while (env_number(e, "d", "live_bytes") != 0 && env_ms() < begin + 400)
			;
		assert_true(env_ms() - begin < 400);
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(registers_destages_trims),
		TEST(same_inode_same_entry),
		TEST(flush_is_prompt),
		TEST(a_step_ends_the_images),
		TEST(a_quarter_destages),
		TEST(last_session_ends_clean),
		TEST(a_size_without_room),
		TEST(killed_client_is_noticed),
		TEST(successor_finds_all_durable),
		TEST(a_verdict_that_outlived),
		TEST(one_of_two_sessions_ends),
		TEST(goes_on_after_a_restart),
		TEST(heals_what_a_new_description_cannot_know),
		TEST(foreign_write_while_nobody_was_there),
		TEST(clean_stop_destages),
		TEST(session_ended_while_the_daemon_was_away),
		TEST(records_without_a_control_file_are_held),
		TEST(a_failed_sync_heals),
		TEST(a_long_heal_renews),
		TEST(others_are_synced_meanwhile),
		TEST(registers_inside_a_step),
		TEST(unlink_that_came_to_nothing),
		TEST(an_end_that_cannot_destage_recovers),
		TEST(control_file_cut_short),
		TEST(lane_cut_short),
		TEST(forged_head),
		TEST(forged_entry),
		TEST(a_command_closes_the_control_file),
		TEST(second_domain_puts_both_into_bypass),
		TEST(unlinked_file_goes),
		TEST(foreign_unlink_is_noticed),
		TEST(bypass_token),
		TEST(token_given_back_while_registering),
		TEST(token_held_over_a_restart),
		TEST(mapped_while_a_token_is_held),
		TEST(leaves_bypass_when_there_is_room),
		TEST(a_clients_failed_sync_heals),
		TEST(a_client_heals_before_its_fence),
		TEST(boot_and_incarnation_are_known),
		TEST(attached_and_never_came),
		TEST(a_clock_step_renews_ctimes),
		TEST(crosswise),
		TEST(at_the_same_time),
		TEST(beats_while_it_serves),
		TEST(no_beat_for_the_dead),
		TEST(no_wake_up_is_lost),
		TEST(idle_means_asleep),
	};

	if (getenv("DOMAIN_TEST"))
		cmocka_set_test_filter(getenv("DOMAIN_TEST"));
	return cmocka_run_group_tests_name("domain", tests, NULL, NULL);
}
