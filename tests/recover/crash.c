/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Recovery killed before each of its steps, with and without loss of power, and run again: the same result,
 * and at no moment in between a state that lets a database start too early.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/sys.h"
#include "tests/recover/world.h"

static const char *fs_name;
static struct world w;
static const struct recover_options plain;
static const struct recover_options apply = { .apply = true };

static int setup(void **state)
{
	(void)state;
	world_begin(&w, fs_name);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		if (w.files[i].path[0] && access(w.files[i].path, F_OK) == 0)
			world_set_immutable(w.files[i].path, false);
	}
	world_end(&w);
	return 0;
}

/* Two files with records, one without, one deleted. The pool is closed at the end. */
static void fill(void)
{
	world_pool(&w);
	world_file(&w, 0, "redo", 'a', 4096);
	world_file(&w, 1, "binlog", 'b', 0);
	world_file(&w, 2, "idle", 'c', 512);
	world_file(&w, 3, "purged", 'd', 512);
	/* Long ago: what recovery itself does to the files is known as its own by rewrite_until alone. */
	w.time_ns = now_realtime_ns() - UINT64_C(5000000000);
	world_write(&w, 0, 0, 'x', 512);
	world_write(&w, 3, 0, 'z', 512);
	world_write(&w, 1, 0, '1', 700);
	world_record(&w, RECORD_UNLINK, w.files[3].entry.id, 0, 0, 0);
	world_write(&w, 0, 256, 'y', 512);
	world_write(&w, 1, 700, '2', 700);
	(void)unlink(w.files[3].path);
	run("sync -f %s", w.mount);
}

static bool replayed(void)
{
	return world_holds(w.files[0].path, 0, 'x', 256) &&
	       world_holds(w.files[0].path, 256, 'y', 512) &&
	       world_holds(w.files[0].path, 768, 'a', 4096 - 768) &&
	       world_holds(w.files[1].path, 0, '1', 700) &&
	       world_holds(w.files[1].path, 700, '2', 700);
}

static void assert_end(void)
{
	struct pool_domain d = world_domain(&w);

	assert_true(replayed());
	assert_int_equal(d.verdict, VERDICT_NONE);
	assert_int_equal(d.flags, 0);
	assert_int_equal(world_entries(&w), 0);
	assert_true(world_lane_empty(&w));
	for (unsigned i = 0; i < 3; i++) {
		assert_false(world_marked(w.files[i].path));
		assert_false(world_immutable(w.files[i].path));
	}
}

static bool untouched(void)
{
	return world_holds(w.files[0].path, 0, 'a', 4096) &&
	       !world_holds(w.files[1].path, 0, '1', 1);
}

/* Whatever lies on the disk now: what would a start of the database find? */
static void assert_safe(bool given_up)
{
	struct pool_domain d = world_domain(&w);

	for (unsigned i = 0; i < 3; i++) {
		if (world_marked(w.files[i].path))
			assert_true(world_entries(&w) > 0);
	}
	if (given_up)
		return;
	if (!untouched() && !world_lane_empty(&w))
		assert_int_equal(d.verdict, VERDICT_REPLAY);
	/* an empty lane, a missing mark of a file with records: its bytes are in the file for good */
	if (world_lane_empty(&w) || !world_marked(w.files[1].path))
		assert_true(replayed());
	if (d.verdict == VERDICT_NONE && world_entries(&w) == 0)
		assert_true(world_lane_empty(&w));
}

/* The lane is another than before: then its image is kept. */
static void assert_kept(void)
{
	run("cd %s; cmp -s %s/lane-000001 before && exit 0; "
	    "for d in state/quarantine/*; do cmp -s $d/lane before && test -s $d/report.json && exit 0; "
	    "done; exit 1",
	    w.base, w.pool_dir);
}

static void body_recover(void *arg)
{
	struct recover_options o = { .apply = *(bool *)arg };

	world_open(&w);
	steps_begin();
	if (world_recover(&w, o, NULL) != RECOVER_CLEAN)
		_exit(1);
}

static void body_discard(void *arg)
{
	(void)arg;
	world_open(&w);
	steps_begin();
	if (recover_discard(w.pool, (uint32_t)w.index, NULL) < 0)
		_exit(1);
}

/* Kills at every stride-th step, from the first. */
static void each_step(void (*prepare)(void), void (*body)(void *), bool with_apply, bool power,
		      unsigned stride)
{
	unsigned n = 1 - stride;
	bool died = true;

	while (died) {
		n += stride;
		assert_true(n < 1000);
		prepare();
		world_close(&w);
		died = die_at_step(n, body, &with_apply);
		if (power)
			world_cut(&w);
		world_open(&w);
		assert_safe(body == body_discard);
		if (body == body_discard)
			assert_kept();
		if (body == body_discard) {
			/* Half discarded is still kept down. */
			if (world_domain(&w).verdict == VERDICT_QUARANTINED)
				assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, NULL),
						 0);
			assert_int_equal(world_domain(&w).verdict, VERDICT_NONE);
			assert_int_equal(world_entries(&w), 0);
			assert_false(world_immutable(w.files[0].path));
			assert_false(world_marked(w.files[1].path));
			world_close(&w);
			world_open(&w);
			assert_true(w.lane_fd >= 0);
			assert_true(world_lane_empty(&w));
		} else {
			/* Without --apply also where it was given before the crash, once it had an effect. */
			bool had_effect = world_domain(&w).verdict != VERDICT_QUARANTINED;
			int r = world_recover(&w, plain, NULL);

			if (with_apply && !had_effect)
				r = world_recover(&w, apply, NULL);
			if (r != RECOVER_CLEAN)
				fail_msg("step %u: outcome %d: %s", n, r, world_domain(&w).reason);
			assert_end();
		}
		world_close(&w);
	}
	print_message("%s: %u steps\n", fs_name, n);
	assert_true(n > 10);
}

static void prepare_marked(void)
{
	fill();
	(void)removexattr(w.files[0].path, "user.pmemlogd.owner");
	run("sync -f %s", w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_true(world_immutable(w.files[1].path));
	run("cp %s/lane-000001 %s/before", w.pool_dir, w.base);
}

static void prepare_damaged(void)
{
	fill();
	memset(w.lane.base, 0, 64);
	memset(w.lane.base + LANE_COPY_OFFSET, 0, 64);
	run("cp %s/lane-000001 %s/before", w.pool_dir, w.base);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
}

static void test_kill(void **state)
{
	(void)state;
	each_step(fill, body_recover, false, false, 3);
}

static void test_power(void **state)
{
	(void)state;
	each_step(fill, body_recover, false, true, 1);
}

/* The same with what was not drained in part, also inside the catalog's and the header's lines. */
static void test_torn(void **state)
{
	bool died = true, no = false;
	unsigned n;

	(void)state;
	for (n = 1; died; n += 2) {
		fill();
		world_close(&w);
		died = die_torn_at_step(n, n / 2, body_recover, &no);
		world_cut(&w);
		/* and again a little later, with other bytes lost */
		if (died && n % 4 == 1 && die_torn_at_step(1 + n % 29, n, body_recover, &no))
			world_cut(&w);
		world_open(&w);
		assert_safe(false);
		if (world_recover(&w, plain, NULL) != RECOVER_CLEAN)
			fail_msg("step %u: %s", n, world_domain(&w).reason);
		assert_end();
		world_close(&w);
	}
	print_message("%s: %u steps\n", fs_name, n);
}

static void test_apply_kill(void **state)
{
	(void)state;
	each_step(prepare_marked, body_recover, true, false, 7);
}

static void test_apply_power(void **state)
{
	(void)state;
	each_step(prepare_marked, body_recover, true, true, 3);
}

static void test_discard_power(void **state)
{
	(void)state;
	each_step(prepare_marked, body_discard, false, true, 3);
}

static void test_discard_damaged_kill(void **state)
{
	(void)state;
	each_step(prepare_damaged, body_discard, false, false, 5);
}

static void body_quarantine(void *arg)
{
	(void)arg;
	world_open(&w);
	steps_begin();
	if (world_recover(&w, plain, NULL) != RECOVER_QUARANTINED)
		_exit(1);
}

/* The second of two files is gone: what is said is this, and not that the attribute changed the first. */
static void test_quarantine_power(void **state)
{
	bool died = true;

	(void)state;
	for (unsigned n = 1; died; n++) {
		fill();
		(void)unlink(w.files[1].path);
		run("sync -f %s", w.mount);
		world_close(&w);
		died = die_at_step(n, body_quarantine, NULL);
		world_cut(&w);
		world_open(&w);
		assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
		assert_non_null(strstr(world_domain(&w).reason, "binlog"));
		assert_true(untouched());
		assert_true(world_immutable(w.files[0].path));
		assert_true(world_immutable(w.files[2].path));
		assert_int_equal(recover_discard(w.pool, (uint32_t)w.index, NULL), 0);
	}
}

/* Killed again and again, each time one step further: never away from the same end. */
static void test_many_crashes(void **state)
{
	bool no = false;

	(void)state;
	fill();
	world_close(&w);
	for (unsigned n = 1; die_at_step(n, body_recover, &no); n++)
		world_cut(&w);
	world_open(&w);
	assert_end();
}

/* The replay was cut off; before the next start somebody restored the file: not overwritten. */
static void test_foreign_after_crash(void **state)
{
	bool no = false;
	unsigned n = 1;

	(void)state;
	do {
		fill();
		world_close(&w);
		if (!die_at_step(n++, body_recover, &no))
			fail_msg("never in the middle");
		world_open(&w);
	} while (world_domain(&w).verdict != VERDICT_REPLAY);
	usleep(1400000);
	run("printf restored | dd of=%s conv=notrunc status=none", w.files[0].path);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
	assert_true(world_holds(w.files[0].path, 0, 'r', 1));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_kill),
		T(test_power),
		T(test_torn),
		T(test_apply_kill),
		T(test_apply_power),
		T(test_discard_power),
		T(test_discard_damaged_kill),
		T(test_quarantine_power),
		T(test_many_crashes),
		T(test_foreign_after_crash),
	};

	if (argc != 2)
		return 2;
	fs_name = argv[1];
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
