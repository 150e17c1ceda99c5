/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Recovery when calls fail, lanes are damaged, and records are given up. */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/crc.h"
#include "pool/dir/usc.h"
#include "tests/recover/outcome.h"

static void test_no_space_first(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_write(&w, 0, 512, 'y', 512);
	fault_set(FAULT_PWRITE, 1, 28 /* ENOSPC */);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	fault_set(FAULT_NONE, 0, 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 512, 'y', 512));
}

static void broken(enum fault which, unsigned n)
{
	world_file(&w, 1, "binlog", 'b', 4096);
	world_write(&w, 0, 0, 'x', 512);
	world_write(&w, 1, 512, 'y', 512);
	fault_set(which, n, 5 /* EIO */);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	fault_set(FAULT_NONE, 0, 0);
	assert_non_null(strstr(world_domain(&w).reason, "Input/output error"));
	assert_false(world_lane_empty(&w));
	assert_true(world_immutable(w.files[0].path));
	assert_true(world_marked(w.files[1].path));
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	assert_true(world_holds(w.files[1].path, 512, 'y', 512));
	assert_clean();
}

static void test_error_in_replay(void **state)
{
	(void)state;
	broken(FAULT_PWRITE, 2);
}

static void test_error_in_sync(void **state)
{
	(void)state;
	broken(FAULT_FDATASYNC_ALL, 1);
}

static void one_sync_fails(unsigned nth)
{
	world_file(&w, 1, "binlog", 'b', 4096);
	world_write(&w, 0, 0, 'x', 512);
	world_write(&w, 1, 512, 'y', 512);
	fault_set(FAULT_FDATASYNC, nth, 5 /* EIO */);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	fault_set(FAULT_NONE, 0, 0);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	assert_true(world_holds(w.files[1].path, 512, 'y', 512));
	assert_clean();
}

/* The kernel reports an error of its write-back to whoever syncs next, be it from before the replay. */
static void test_old_error_in_sync(void **state)
{
	(void)state;
	one_sync_fails(1);
}

/* Behind the bytes of two files, when both have been synced once: all is written anew. */
static void test_sync_fails_once(void **state)
{
	(void)state;
	one_sync_fails(3);
}

static void test_error_at_open(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	fault_set(FAULT_OPEN_BY_HANDLE, 1, 5);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	assert_non_null(strstr(world_domain(&w).reason, "Input/output error"));
	fault_set(FAULT_NONE, 0, 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

/* More files than a shell's limit of descriptors. */
static void test_few_descriptors(void **state)
{
	const int filled = 64;
	int fillers[64 + 1], n = 0, r;
	struct rlimit old, few;

	(void)state;
	for (unsigned i = 1; i < WORLD_FILES; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "binlog.%u", i);
		world_file(&w, i, name, 'b', 512);
		world_write(&w, i, 0, 'x', 512);
	}
	/* the lane's, and four on the way to a file: the third of three is one too many */
	do {
		fillers[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_true(fillers[n] >= 0);
	} while (fillers[n++] < filled);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = (rlim_t)filled + 1 + 5;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	r = world_recover(&w, plain, NULL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	while (n > 0)
		(void)close(fillers[--n]);
	assert_int_equal(r, RECOVER_CLEAN);
	assert_int_equal(few.rlim_cur, old.rlim_max);
	assert_true(world_holds(w.files[3].path, 0, 'x', 512));
}

/* An attempt with --apply that cannot be made lifts no quarantine. */
static void test_apply_not_mounted(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(removexattr(w.files[0].path, MARK), 0);
	assert_quarantined("mark-missing");
	world_umount(&w);
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_QUARANTINED);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	world_mount(&w);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

/* An administrator's own immutable attribute is not ours to take off. */
static void test_foreign_immutable(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_set_immutable(w.files[0].path, true);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	assert_true(world_immutable(w.files[0].path));
	world_set_immutable(w.files[0].path, false);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

static void test_discard(void **state)
{
	struct json_object *report;
	char path[600];
	struct stat st;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(removexattr(w.files[0].path, MARK), 0);
	assert_quarantined("mark-missing");
	run("cmp %s/lane-000001 %s/lane-000001", w.pool_dir, w.pool_dir);
	run("cp %s/lane-000001 %s/before", w.pool_dir, w.base);
	assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, &report), 0);
	assert_string_equal(report_text(report, "outcome"), "discarded");
	(void)snprintf(path, sizeof(path), "%s/lane", report_text(report, "kept"));
	run("cmp %s %s/before", path, w.base);
	(void)snprintf(path, sizeof(path), "%s/report.json", report_text(report, "kept"));
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 100);
	json_object_put(report);
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	assert_false(world_immutable(w.files[0].path));
	assert_clean();
	world_close(&w);
	world_open(&w);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

/* The disk is gone for good: records can be given up all the same, and what could not be done is told. */
static void test_discard_not_mounted(void **state)
{
	struct json_object *report;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_umount(&w);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, &report), 0);
	assert_non_null(strstr(report_text(report, "left"), "redo"));
	json_object_put(report);
	assert_clean();
	world_mount(&w);
}

static void discard_again(void)
{
	struct json_object *report;

	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_QUARANTINED);
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, &report), 0);
	json_object_put(report);
	assert_clean();
	assert_false(world_immutable(w.files[0].path));
	assert_false(world_marked(w.files[0].path));
	world_close(&w);
	world_open(&w);
	assert_true(w.lane_fd >= 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

static void test_damage_middle(void **state)
{
	uint64_t third;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_write(&w, 0, 512, 'x', 512);
	third = w.head;
	for (unsigned i = 2; i < 20; i++)
		world_write(&w, 0, i * 512, 'x', 512);
	lane_at(&w.lane, third)[100] ^= 4;
	discard_again();
}

static void test_damage_heartbeat(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_beat(&w, now_realtime_ns(), w.head);
	lane_at(&w.lane, 0)[70] ^= 1;
	discard_again();
}

static void test_damage_header(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	memset(w.lane.base, 0, 64);
	memset(w.lane.base + LANE_COPY_OFFSET, 0, 64);
	discard_again();
}

/* SIGBUS: the lane's file was cut off behind the mapping's back. */
static void test_damage_cut_off(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 20; i++)
		world_write(&w, 0, i * 512, 'x', 512);
	run("truncate -s 8192 %s/lane-000001", w.pool_dir);
	discard_again();
}

static void test_damage_gone(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	run("rm %s/lane-000001", w.pool_dir);
	discard_again();
}

/* Poison in the lane: the rest is kept, and the domain gets other memory. */
static void test_discard_poison(void **state)
{
	struct json_object *report;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(removexattr(w.files[0].path, MARK), 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	fault_set(FAULT_PREAD, 9, EIO);
	assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, &report), 0);
	fault_set(FAULT_NONE, 0, 0);
	assert_string_equal(report_text(report, "unreadable_bytes"), "2048");
	json_object_put(report);
	assert_clean();
	assert_int_not_equal(world_domain(&w).lane, w.domain.lane);
	world_close(&w);
	world_open(&w);
	assert_true(w.lane_fd >= 0);
	assert_int_equal(w.lane.ring_size, WORLD_RING);
}

/* The lane begins another life, as at a session's start or end. */
static void next_life(void)
{
	assert_int_equal(catalog_domain_get(w.pool, (uint32_t)w.index, &w.domain), 0);
	assert_int_equal(pool_lane_renew(w.pool, (uint32_t)w.index, &w.domain, &w.lane), 0);
	pool_lane_renewed(&w.domain, &w.lane);
	assert_true(catalog_domain_put(w.pool, (uint32_t)w.index, &w.domain) >= 0);
}

static void put_lane(const char *copy)
{
	world_close(&w);
	run("cat %s/%s > %s/lane-000001", w.base, copy, w.pool_dir);
	world_open(&w);
}

/* An older copy of the lane, of a time when it was empty, has no record of what was acknowledged since. */
static void test_older_lane_empty(void **state)
{
	(void)state;
	run("cp %s/lane-000001 %s/older", w.pool_dir, w.base);
	next_life();
	world_write(&w, 0, 0, 'x', 512);
	run("cp %s/lane-000001 %s/right", w.pool_dir, w.base);
	put_lane("older");
	assert_true(world_lane_empty(&w));
	assert_true(pool_lane_holds(w.pool, &w.domain));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
		assert_non_null(strstr(world_domain(&w).reason, "lane 1 is not the one"));
		assert_true(world_immutable(w.files[0].path));
	}
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_QUARANTINED);
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	assert_true(world_marked(w.files[0].path));
	put_lane("right");
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	assert_clean();
	/* what was right then is an older copy now */
	put_lane("right");
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, NULL), 0);
	assert_clean();
	w.domain = world_domain(&w);
	assert_false(pool_lane_holds(w.pool, &w.domain));
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

/* An entry of an earlier version does not know; its lane is taken for what it is, and known from then on. */
static void test_lane_of_earlier_version(void **state)
{
	uint64_t next;

	(void)state;
	memset(w.domain.lane_incarnation, 0, sizeof(w.domain.lane_incarnation));
	w.domain.incarnation = w.lane.incarnation + 1;
	assert_true(catalog_domain_put(w.pool, (uint32_t)w.index, &w.domain) >= 0);
	assert_false(pool_lane_holds(w.pool, &w.domain));
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	world_close(&w);
	world_open(&w);
	next = world_domain(&w).lane_incarnation[0];
	assert_true(next != 0 && next == w.lane.incarnation);
	assert_int_equal(world_domain(&w).lane_incarnation[1], 0);
}

static void test_lines(void **state)
{
	(void)state;
	/* 'x' is 0x78: four bits in each byte of the map, 64 lines; one is there */
	world_record(&w, RECORD_LINES, w.files[0].entry.id, 0, 'x', 80);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_non_null(strstr(world_domain(&w).reason, "LINES"));
}

static void test_unknown_type(void **state)
{
	(void)state;
	world_record(&w, 9, w.files[0].entry.id, 0, 0, 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_non_null(strstr(world_domain(&w).reason, "does not know"));
}

/* C17: an ordinary disk is named as such, with what to change; nothing stays behind. */
static void test_not_dax(void **state)
{
	struct pool_error e;
	char dir[300], state_dir[300];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "%s/pool", w.mount);
	(void)snprintf(state_dir, sizeof(state_dir), "%s/state2", w.base);
	assert_int_equal(pool_create(dir, state_dir, false, false, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, w.fs));
	assert_non_null(strstr(e.text, "dax=always"));
	assert_int_equal(rmdir(dir), 0);
}

/* D24 (a) to (d). */
static uint64_t fake_usc;

static uint64_t usc_fake(int fd)
{
	(void)fd;
	return fake_usc;
}

static void test_unsafe_shutdown(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_close(&w);
	usc_set_source(usc_fake);
	fake_usc = 7; /* unknown before: nothing can be concluded, 7 is noted */
	world_open(&w);
	assert_int_equal(world_domain(&w).verdict, VERDICT_NONE);
	assert_int_equal(w.pool->sb.unsafe_shutdown, 7);
	world_close(&w);
	fake_usc = UINT64_MAX; /* unknown now */
	world_open(&w);
	assert_int_equal(world_domain(&w).verdict, VERDICT_NONE);
	assert_int_equal(w.pool->sb.unsafe_shutdown, 7);
	world_close(&w);
	fake_usc = 8; /* dirty, and risen */
	world_open(&w);
	assert_int_equal(world_domain(&w).verdict, VERDICT_QUARANTINED);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_non_null(strstr(world_domain(&w).reason, "unsafe shutdown"));
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	world_close(&w);
	fake_usc = 9; /* clean, and risen */
	world_open(&w);
	assert_int_equal(world_domain(&w).verdict, VERDICT_NONE);
	usc_set_source(NULL);
}

/* Another device has another count; one that is not to be had meanwhile is not forgotten. */
static void test_unsafe_shutdown_fallen(void **state)
{
	static const uint64_t gap[] = { 9, UINT64_MAX, 8 };

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	usc_set_source(usc_fake);
	for (unsigned i = 0; i < 3; i++) {
		world_close(&w);
		fake_usc = gap[i];
		world_open(&w);
		assert_int_equal(world_domain(&w).verdict,
				 i < 2 ? VERDICT_NONE : VERDICT_QUARANTINED);
	}
	assert_non_null(strstr(world_domain(&w).reason, "has fallen"));
	assert_non_null(strstr(world_domain(&w).reason, "(9 -> 8)"));
	assert_null(strstr(world_domain(&w).reason, "counted an unsafe"));
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	usc_set_source(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_no_space_first),	     T(test_error_in_replay),
		T(test_error_in_sync),	     T(test_error_at_open),
		T(test_old_error_in_sync),   T(test_sync_fails_once),
		T(test_few_descriptors),     T(test_apply_not_mounted),
		T(test_foreign_immutable),   T(test_discard),
		T(test_discard_not_mounted), T(test_damage_middle),
		T(test_damage_heartbeat),    T(test_damage_header),
		T(test_damage_cut_off),	     T(test_damage_gone),
		T(test_discard_poison),	     T(test_lines),
		T(test_unknown_type),	     T(test_not_dax),
		T(test_unsafe_shutdown),     T(test_unsafe_shutdown_fallen),
		T(test_older_lane_empty),    T(test_lane_of_earlier_version),
	};

	/* faults FILE-SYSTEM [TESTS] */
	if (argc < 2)
		return 2;
	outcome_fs = argv[1];
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
