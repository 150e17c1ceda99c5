/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The folder of a native log on a real file system: made, written, trimmed, written by a second life, removed; the
 * daemon killed at every step, and the power cut behind it, at once or after the next daemon has opened it.
 * Afterwards what was answered is there, byte by byte, and nothing beyond it is believed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/logs/store.h"
#include "tests/recover/world.h"

#define STEPS_MAX 500u
#define CAPACITY  (256u * 1024) /* a segment holds four of these records */
#define RECORD	  20000u
#define BATCH	  3u

static const char *fs_name;
static struct world w;

/* What the child got as an answer, seen by us. The daemon has these in the catalog. */
static struct answers {
	bool created, removing, removed;
	uint64_t known; /* durable end; what is below has left the lane */
	uint64_t first;
} * answers;

static struct log_name the_log(void)
{
	return (struct log_name){
		.state_dir = w.state_dir, .uid = 7, .domain = "d", .name = "log"
	};
}

static int setup(void **state)
{
	(void)state;
	world_begin(&w, fs_name);
	(void)snprintf(w.state_dir, sizeof(w.state_dir), "%.100s/state", w.mount);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_end(&w);
	return 0;
}

static uint8_t byte_at(uint64_t lsn)
{
	return (uint8_t)(lsn * 31 + (lsn >> 9));
}

static int put(struct log_store *s)
{
	static uint8_t bytes[RECORD];

	for (uint32_t i = 0; i < RECORD; i++)
		bytes[i] = byte_at(s->end + i);
	return log_store_put(s, s->end, 1, bytes, RECORD);
}

/* Some records and their sync; then the catalog has the new end, and the lane is trimmed. */
static void put_batch(struct log_store *s)
{
	for (unsigned i = 0; i < BATCH; i++)
		if (put(s) < 0)
			_exit(1);
	if (log_store_sync(s) < 0)
		_exit(1);
	answers->known = s->disk;
}

/* One step of a daemon that takes what the log has for durable: without a catalog's word for it. */
static void body(void *arg)
{
	struct log_name n = the_log();
	struct log_store s;

	(void)arg;
	steps_begin();
	if (log_store_create(&n, 0600, CAPACITY) < 0)
		_exit(1);
	answers->created = true;
	if (log_store_open(&s, &n, LOG_STORE_UNKNOWN, true) < 0)
		_exit(1);
	for (unsigned i = 0; i < 4; i++)
		put_batch(&s);
	if (log_store_trim(&s, 5 * RECORD + 1) < 0)
		_exit(1);
	answers->first = s.first;
	put_batch(&s);
	if (log_store_meta(&s) < 0)
		_exit(1);
	log_store_close(&s);
	if (log_store_open(&s, &n, answers->known, true) < 0)
		_exit(1);
	put_batch(&s);
	log_store_close(&s);
	answers->removing = true;
	if (log_store_remove(&n) < 0)
		_exit(1);
	answers->removed = true;
}

/* All records from first to end, one after another, as they were put. */
static void check_bytes(const struct log_store *s)
{
	uint64_t lsn = s->first;

	while (lsn < s->end) {
		struct segment_reader r;
		struct segment_frame f;
		uint64_t first;
		int fd = log_store_segment(s, lsn, &first);

		assert_true(fd >= 0);
		assert_int_equal(segment_begin(&r, fd, first), 0);
		while (lsn < s->end && segment_next(&r, &f) == 1) {
			if (f.lsn < lsn)
				continue;
			assert_int_equal(f.lsn, lsn);
			assert_int_equal(f.length, RECORD);
			for (uint32_t i = 0; i < f.length; i++)
				assert_int_equal(r.payload[i], byte_at(lsn + i));
			lsn += f.length;
		}
		segment_end(&r);
		(void)close(fd);
	}
	assert_int_equal(lsn, s->end);
}

static void check(void)
{
	struct log_name n = the_log();
	struct log_store s;
	int r = log_store_open(&s, &n, LOG_STORE_UNKNOWN, false);

	if (r == -ENOENT) {
		assert_true(!answers->created || answers->removing);
		return;
	}
	if (r < 0)
		fail_msg("does not open by itself: %s", s.why);
	assert_false(answers->removed);
	assert_true(s.end >= answers->known);
	check_bytes(&s);
	log_store_close(&s);

	r = log_store_open(&s, &n, answers->known, true);
	if (r < 0)
		fail_msg("does not open: %s", s.why);
	assert_int_equal(s.end, answers->known);
	assert_true(s.first >= answers->first);
	check_bytes(&s);
	/* and it goes on */
	assert_int_equal(put(&s), 0);
	assert_int_equal(log_store_sync(&s), 0);
	log_store_close(&s);
	assert_int_equal(log_store_open(&s, &n, answers->known + RECORD, true), 0);
	check_bytes(&s);
	log_store_close(&s);
}

/* The next daemon has no word of the catalog: what it finds it takes for durable, and answers so. */
static void next_life(void)
{
	struct log_name n = the_log();
	struct log_store s;
	int r = log_store_open(&s, &n, LOG_STORE_UNKNOWN, true);

	if (r == -ENOENT)
		return;
	if (r < 0)
		fail_msg("does not open after a kill: %s", s.why);
	assert_true(s.disk >= answers->known);
	answers->known = s.disk;
	log_store_close(&s);
}

static void each_cut(bool next)
{
	bool died = true;
	unsigned n;

	for (n = 1; died; n++) {
		assert_true(n < STEPS_MAX);
		run("rm -rf %s && mkdir %s && sync -f %s", w.state_dir, w.state_dir, w.mount);
		memset(answers, 0, sizeof(*answers));
		died = die_at_step(n, body, NULL);
		if (next)
			next_life();
		world_cut(&w);
		check();
	}
	print_message("%s: %u steps\n", fs_name, n - 1);
	assert_true(n > 30);
	assert_true(answers->removed);
}

static void test_cut(void **state)
{
	(void)state;
	each_cut(false);
}

static void test_killed_then_cut(void **state)
{
	(void)state;
	each_cut(true);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_cut), T(test_killed_then_cut) };

	/* logcut FILE-SYSTEM [TESTS] */
	if (argc < 2)
		return 2;
	fs_name = argv[1];
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	answers = mmap(NULL, sizeof(*answers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (answers == MAP_FAILED)
		return 2;
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
