/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every row of the table in judge.h, with real files on ext4 and xfs. */
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

static void test_replay(void **state)
{
	struct json_object *report;
	uint64_t before = w.lane.incarnation;

	(void)state;
	world_file(&w, 1, "binlog", 'b', 0);
	world_write(&w, 0, 0, 'x', 512);
	world_write(&w, 1, 0, '1', 700);
	world_write(&w, 0, 256, 'y', 512); /* over the first: the later one wins */
	world_write(&w, 1, 700, '2', 700); /* grows the file */
	world_record(&w, RECORD_TOUCH, w.files[0].entry.id, 0, 0, 0);
	assert_int_equal(world_recover(&w, plain, &report), RECOVER_CLEAN);
	assert_string_equal(report_row(report, w.files[0].entry.id), "replay");
	assert_string_equal(report_text(report, "records"), "4");
	assert_string_equal(report_text(report, "live_bytes"), "2424");
	json_object_put(report);
	assert_true(world_holds(w.files[0].path, 0, 'x', 256));
	assert_true(world_holds(w.files[0].path, 256, 'y', 512));
	assert_true(world_holds(w.files[0].path, 768, 'a', 8192 - 768));
	assert_true(world_holds(w.files[1].path, 0, '1', 700));
	assert_true(world_holds(w.files[1].path, 700, '2', 700));
	assert_false(world_marked(w.files[0].path));
	assert_false(world_marked(w.files[1].path));
	assert_clean();
	world_close(&w);
	world_open(&w);
	assert_true(w.lane.incarnation != before);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	world_cut(&w);
	assert_true(world_holds(w.files[1].path, 700, '2', 700));
}

static void test_nothing_left(void **state)
{
	(void)state;
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_false(world_marked(w.files[0].path));
	assert_clean();
}

static void test_fence(void **state)
{
	uint64_t fence;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	fence = w.head;
	world_write(&w, 0, 1024, 'y', 512); /* appended before the FENCE, not below F */
	world_record(&w, RECORD_FENCE, w.files[0].entry.id, fence, 0, 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'a', 1024));
	assert_true(world_holds(w.files[0].path, 1024, 'y', 512));
}

/* D08: shrunk under RULE F; the old high record may not make it long again. */
static void test_fence_truncate(void **state)
{
	struct stat st;

	(void)state;
	world_write(&w, 0, 1 << 20, 'x', 4096);
	world_record(&w, RECORD_FENCE, w.files[0].entry.id, w.head, 0, 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_int_equal(stat(w.files[0].path, &st), 0);
	assert_int_equal(st.st_size, 8192);
}

static void test_not_mounted(void **state)
{
	struct json_object *report;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_umount(&w);
	assert_int_equal(world_recover(&w, plain, &report), RECOVER_HELD);
	assert_string_equal(report_row(report, w.files[0].entry.id), "not-mounted");
	json_object_put(report);
	assert_int_equal(world_domain(&w).verdict, VERDICT_HELD);
	assert_false(world_lane_empty(&w));
	world_mount(&w);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	assert_clean();
}

/* A snapshot of the volume is mounted beside it: which one is meant cannot be told. */
static void test_mounted_twice(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	run("sync -f %s && cp --sparse=always %s %s.copy && mkdir -p %s/copy", w.mount, w.image,
	    w.image, w.base);
	run("mount -o loop%s %s.copy %s/copy", strcmp(w.fs, "xfs") == 0 ? ",nouuid" : "", w.image,
	    w.base);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	run("umount %s/copy", w.base);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

/* A bind mount is the same device; a mount that another one hides is reached elsewhere or not at all. */
static void test_bind_and_hidden(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	run("mkdir -p '%s/a b' && mount --bind %s '%s/a b' && mount -o remount,bind,ro %s", w.base,
	    w.mount, w.base, w.mount);
	run("mount -t tmpfs hides %s", w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	run("umount %s && mount -o remount,bind,rw %s", w.mount, w.mount);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	run("umount '%s/a b'", w.base);
}

/* Both can be reached: the writable one is taken. */
static void test_bind_read_only(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	run("mkdir %s/bind && mount --bind %s %s/bind && mount -o remount,bind,ro %s", w.base,
	    w.mount, w.base, w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	run("umount %s/bind && mount -o remount,bind,rw %s", w.base, w.mount);
}

/* The path of the mount below leads to the one on top: they are not two. */
static void test_stacked(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_umount(&w);
	run("mount -t tmpfs below %s", w.mount);
	world_mount(&w);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_hidden_only(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	run("mount -t tmpfs hides %s", w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	run("umount %s", w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

static void test_read_only(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	run("mount -o remount,ro %s", w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_HELD);
	run("mount -o remount,rw %s", w.mount);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

/* D05: deleted through us; another file takes the inode at once. */
static void test_stale_unlinked(void **state)
{
	struct json_object *report;
	char path[300];

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_record(&w, RECORD_UNLINK, w.files[0].entry.id, 0, 0, 0);
	assert_int_equal(unlink(w.files[0].path), 0);
	(void)snprintf(path, sizeof(path), "%s/other", w.mount);
	run("printf BBBB > %s && sync -f %s", path, path);
	assert_int_equal(world_recover(&w, plain, &report), RECOVER_CLEAN);
	assert_string_equal(report_row(report, w.files[0].entry.id), "stale-unlinked");
	json_object_put(report);
	assert_true(world_holds(path, 0, 'B', 4));
	assert_int_not_equal(access(w.files[0].path, F_OK), 0);
	assert_clean();
}

/* The UNLINK record is trimmed, the catalog still knows. */
static void test_stale_unlinked_flag(void **state)
{
	struct pool_file *f = &w.files[0].entry;

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	f->flags |= POOL_FILE_UNLINKED;
	assert_true(catalog_file_put(w.pool, w.files[0].index, f) >= 0);
	assert_int_equal(unlink(w.files[0].path), 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
}

/* UNLINK is no fence: the name that went was not the last, or the cut came before the call. */
static void test_unlink_but_there(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	world_record(&w, RECORD_UNLINK, w.files[0].entry.id, 0, 0, 0);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_stale(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	/* restored from a backup: same name, same bytes, another file */
	run("cp -a %s %s.new && mv %s.new %s", w.files[0].path, w.files[0].path, w.files[0].path,
	    w.files[0].path);
	assert_quarantined("stale");
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_QUARANTINED);
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	/* one fails: the other file is not replayed either (G3) */
}

/* Deleted by others while a backup still holds it open: the handle leads to a file without a name. */
static void test_stale_held_open(void **state)
{
	int fd = open(w.files[0].path, O_RDONLY | O_CLOEXEC);

	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(unlink(w.files[0].path), 0);
	assert_quarantined("stale");
	(void)close(fd);
}

static void test_one_fails_all_stay(void **state)
{
	(void)state;
	world_file(&w, 1, "binlog", 'b', 4096);
	world_write(&w, 1, 0, 'x', 512);
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(unlink(w.files[0].path), 0);
	assert_quarantined("stale");
	assert_true(world_holds(w.files[1].path, 0, 'b', 4096));
	assert_true(world_immutable(w.files[1].path));
	assert_true(world_marked(w.files[1].path));
	assert_int_equal(open(w.files[1].path, O_RDWR), -1);
}

static void test_mark_missing(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(removexattr(w.files[0].path, MARK), 0);
	assert_quarantined("mark-missing");
	assert_true(world_immutable(w.files[0].path));
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
	assert_false(world_immutable(w.files[0].path));
	assert_clean();
}

/* byte: offset in the mark's value that belongs to lane, pool uuid, machine id. */
static void foreign_mark(size_t byte, const char *row)
{
	uint8_t value[128];
	uint32_t crc = 0;

	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(getxattr(w.files[0].path, MARK, value, sizeof(value)), sizeof(value));
	value[byte] ^= 1;
	memcpy(value + 8, &crc, 4);
	crc = crc32c(0, value, sizeof(value));
	memcpy(value + 8, &crc, 4);
	assert_int_equal(setxattr(w.files[0].path, MARK, value, sizeof(value), 0), 0);
	assert_quarantined(row);
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_mark_lane(void **state)
{
	(void)state;
	foreign_mark(12, "mark-foreign");
}

static void test_mark_pool(void **state)
{
	(void)state;
	foreign_mark(16, "mark-foreign");
}

static void test_mark_machine(void **state)
{
	(void)state;
	foreign_mark(32, "mark-foreign");
}

static void test_mark_copy(void **state)
{
	(void)state;
	foreign_mark(64, "mark-foreign"); /* its handle is another file's */
}

static void test_mark_damaged(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(setxattr(w.files[0].path, MARK, "zzz", 3, 0), 0);
	assert_quarantined("mark-foreign");
}

/* A real rollback: an image of the volume from before the ctime that the catalog knows. */
static void test_ctime_older(void **state)
{
	int fd;

	(void)state;
	run("sync -f %s && cp --sparse=always %s %s.old", w.mount, w.image, w.image);
	fd = open(w.files[0].path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	usleep(20000);
	assert_int_equal(pwrite(fd, "newer", 5, 0), 5);
	assert_int_equal(register_refresh(w.pool, fd, w.files[0].index), 0);
	(void)close(fd);
	world_write(&w, 0, 0, 'x', 512);
	world_umount(&w);
	run("cp --sparse=always %s.old %s", w.image, w.image);
	world_mount(&w);
	assert_quarantined("ctime-older");
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_ctime_later(void **state)
{
	(void)state;
	w.time_ns = now_realtime_ns() - 5 * SECOND;
	world_write(&w, 0, 0, 'x', 512);
	run("printf foreign | dd of=%s conv=notrunc status=none && sync -f %s", w.files[0].path,
	    w.files[0].path);
	assert_quarantined("ctime-later");
	assert_true(world_holds(w.files[0].path, 7, 'a', 8192 - 7));
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

/* The same change, known as ours: by a later record of another file, heartbeat, rewrite_until, slack. */
static void ctime_known(int how)
{
	struct pool_file *f = &w.files[0].entry;
	uint64_t now = now_realtime_ns();

	w.time_ns = how == 3 ? now - SECOND / 2 : now - 5 * SECOND;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(chmod(w.files[0].path, 0640), 0);
	if (how == 0) {
		w.time_ns = now;
		world_record(&w, RECORD_TOUCH, f->id, 0, 0, 0);
	} else if (how == 1) {
		world_beat(&w, now, w.head);
	} else if (how == 2) {
		f->rewrite_until_ns = now + SECOND / 5;
		assert_true(catalog_file_put(w.pool, w.files[0].index, f) >= 0);
	}
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_ctime_record(void **state)
{
	(void)state;
	ctime_known(0);
}

static void test_ctime_beat(void **state)
{
	(void)state;
	ctime_known(1);
}

static void test_ctime_rewrite(void **state)
{
	(void)state;
	ctime_known(2);
}

static void test_ctime_slack(void **state)
{
	(void)state;
	ctime_known(3);
}

static const char *row_now(void)
{
	static char row[40];
	struct json_object *report;

	(void)world_recover(&w, dry, &report);
	(void)snprintf(row, sizeof(row), "%s", report_row(report, w.files[0].entry.id));
	json_object_put(report);
	return row;
}

/* A heartbeat's time with one bit flipped, wherever that puts it, excuses no later change by others. */
static void test_beat_damaged(void **state)
{
	struct lane_beat *beat = &lane_header(&w.lane)->beat;

	(void)state;
	w.time_ns = now_realtime_ns() - 5 * SECOND;
	world_write(&w, 0, 0, 'x', 512);
	world_beat(&w, now_realtime_ns() - 3 * SECOND, w.head);
	run("printf foreign | dd of=%s conv=notrunc status=none && sync -f %s", w.files[0].path,
	    w.files[0].path);
	assert_string_equal(row_now(), "ctime-later");
	for (unsigned bit = 0; bit < 128; bit++) {
		uint64_t *word = bit < 64 ? &beat->time_ns : &beat->time_check;

		*word ^= UINT64_C(1) << bit % 64;
		if (strcmp(row_now(), "ctime-later") != 0)
			fail_msg("bit %u hides a foreign write: %s", bit, row_now());
		*word ^= UINT64_C(1) << bit % 64;
	}
	assert_quarantined("ctime-later");
}

/* Torn between its words, it still excuses what the beat before excused; an earlier version's, too. */
static void test_beat_torn(void **state)
{
	struct lane_beat *beat = &lane_header(&w.lane)->beat, line[2];
	uint64_t now = now_realtime_ns();

	(void)state;
	w.time_ns = now - 5 * SECOND;
	world_write(&w, 0, 0, 'x', 512);
	for (int earlier = 0; earlier < 2; earlier++) {
		world_beat(&w, now + 4 * SECOND, w.head - 64);
		line[0] = *beat;
		if (earlier)
			line[0].time_check = 0;
		world_beat(&w, now + 4 * SECOND + SECOND / 10, w.head);
		line[1] = *beat;
		assert_int_equal(chmod(w.files[0].path, 0640), 0);
		for (unsigned mix = 0; mix < 8; mix++) {
			beat->time_ns = line[mix & 1].time_ns;
			beat->head = line[mix >> 1 & 1].head;
			beat->time_check = line[mix >> 2].time_check;
			assert_string_equal(row_now(), "replay");
		}
	}
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_clock_wait(void **state)
{
	struct recover_options o = { .clock_wait_ns = 5 * SECOND };
	uint64_t then = now_realtime_ns() + SECOND / 2;

	(void)state;
	w.time_ns = then;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(world_recover(&w, o, NULL), RECOVER_CLEAN);
	assert_true(now_realtime_ns() >= then);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_clock_behind(void **state)
{
	struct recover_options o = { .clock_wait_ns = SECOND / 5 };
	struct json_object *report;

	(void)state;
	w.time_ns = now_realtime_ns() + 3600 * SECOND;
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(world_recover(&w, o, &report), RECOVER_QUARANTINED);
	assert_string_equal(report_row(report, w.files[0].entry.id), "clock");
	json_object_put(report);
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

static void test_unknown_file(void **state)
{
	(void)state;
	world_write(&w, 0, 0, 'x', 512);
	w.files[0].entry.id += 1000;
	world_write(&w, 0, 0, 'x', 512);
	assert_quarantined("unknown-file");
	assert_int_equal(world_recover(&w, apply, NULL), RECOVER_QUARANTINED);
}

/* G7: a domain that names another domain's file in its records changes nothing in it. */
static void test_other_domains_file(void **state)
{
	struct pool_file f;

	(void)state;
	assert_int_equal(catalog_file_get(w.pool, w.files[0].index, &f), 0);
	f.lane += 1;
	assert_true(catalog_file_put(w.pool, w.files[0].index, &f) >= 0);
	world_write(&w, 0, 0, 'x', 512);
	assert_quarantined("unknown-file");
	assert_true(world_holds(w.files[0].path, 0, 'a', 8192));
}

/* A file that was let go after a FENCE: its dead records are no damage. */
static void test_unknown_but_fenced(void **state)
{
	(void)state;
	world_record(&w, RECORD_WRITE, 77, 0, 'x', 512);
	world_record(&w, RECORD_FENCE, 77, w.head, 0, 0);
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(w.files[0].path, 0, 'x', 512));
}

/* S02: what lies at the path now is of no interest. */
static void test_path_swapped(void **state)
{
	char moved[300], victim[300];

	(void)state;
	(void)snprintf(moved, sizeof(moved), "%s/moved", w.mount);
	(void)snprintf(victim, sizeof(victim), "%s/victim", w.mount);
	run("printf vvvvvvvv > %s && mv %s %s && ln -s %s %s", victim, w.files[0].path, moved,
	    victim, w.files[0].path);
	world_write(&w, 0, 0, 'x', 512);
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
	assert_true(world_holds(victim, 0, 'v', 8));
	assert_true(world_holds(moved, 0, 'x', 512));
	assert_int_equal(unlink(w.files[0].path), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_replay),
		T(test_nothing_left),
		T(test_fence),
		T(test_fence_truncate),
		T(test_not_mounted),
		T(test_mounted_twice),
		T(test_bind_and_hidden),
		T(test_bind_read_only),
		T(test_stacked),
		T(test_hidden_only),
		T(test_read_only),
		T(test_stale_unlinked),
		T(test_stale_unlinked_flag),
		T(test_unlink_but_there),
		T(test_stale),
		T(test_stale_held_open),
		T(test_one_fails_all_stay),
		T(test_mark_missing),
		T(test_mark_lane),
		T(test_mark_pool),
		T(test_mark_machine),
		T(test_mark_copy),
		T(test_mark_damaged),
		T(test_ctime_older),
		T(test_ctime_later),
		T(test_ctime_record),
		T(test_ctime_beat),
		T(test_ctime_rewrite),
		T(test_ctime_slack),
		T(test_beat_damaged),
		T(test_beat_torn),
		T(test_clock_wait),
		T(test_clock_behind),
		T(test_unknown_file),
		T(test_other_domains_file),
		T(test_unknown_but_fenced),
		T(test_path_swapped),
	};

	/* rows FILE-SYSTEM [TESTS] */
	if (argc < 2)
		return 2;
	outcome_fs = argv[1];
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
