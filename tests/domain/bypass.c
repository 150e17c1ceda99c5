/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Files that may not be accelerated now: a second domain has them, or a program without a session. */

#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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

int bypass_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(second_domain_puts_both_into_bypass),
		CASE(bypass_token),
		CASE(token_given_back_while_registering),
		CASE(token_held_over_a_restart),
		CASE(mapped_while_a_token_is_held),
		CASE(leaves_bypass_when_there_is_room),
		CASE(crosswise),
		CASE(at_the_same_time),
	};

	return cmocka_run_group_tests_name("bypass", tests, NULL, NULL);
}
