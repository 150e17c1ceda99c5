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
#include "tests/recover/world.h"

#define SECOND UINT64_C(1000000000)
#define MARK   "user.pmemlogd.owner"

static const char *fs_name;
static struct world w;
static const struct recover_options plain;
static const struct recover_options apply = { .apply = true };
static const struct recover_options dry = { .dry_run = true };

static unsigned descriptors;

static int setup(void **state)
{
	(void)state;
	descriptors = world_descriptors();
	world_begin(&w, fs_name);
	world_pool(&w);
	world_file(&w, 0, "redo", 'a', 8192);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < WORLD_FILES; i++) {
		if (w.files[i].path[0] && access(w.files[i].path, F_OK) == 0)
			world_set_immutable(w.files[i].path, false);
	}
	world_end(&w);
	/* A descriptor that is left keeps a file system from being unmounted. */
	return world_descriptors() == descriptors ? 0 : -1;
}

/* Everything that RECOVER_CLEAN promises. */
static void assert_clean(void)
{
	struct pool_domain d = world_domain(&w);

	assert_int_equal(d.verdict, VERDICT_NONE);
	assert_int_equal(d.flags, 0);
	assert_string_equal(d.reason, "");
	assert_int_equal(world_entries(&w), 0);
	assert_true(world_lane_empty(&w));
}

/* Quarantined in that row, nothing changed but the attribute; a second run says the same. */
static void assert_quarantined(const char *row)
{
	struct json_object *report;
	uint64_t id = w.files[0].entry.id;

	assert_int_equal(world_recover(&w, dry, &report), RECOVER_QUARANTINED);
	assert_string_equal(report_row(report, id), row);
	json_object_put(report);
	assert_int_equal(world_domain(&w).verdict, VERDICT_NONE);

	assert_int_equal(world_recover(&w, plain, &report), RECOVER_QUARANTINED);
	assert_string_equal(report_row(report, id), row);
	assert_string_equal(report_text(report, "outcome"), "quarantined");
	json_object_put(report);
	assert_int_equal(world_domain(&w).verdict, VERDICT_QUARANTINED);
	assert_true(strlen(world_domain(&w).reason) > 20);
	assert_false(world_lane_empty(&w));
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
}

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
	broken(FAULT_FDATASYNC, 1);
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

static void test_lines(void **state)
{
	(void)state;
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

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
		T(test_clock_wait),
		T(test_clock_behind),
		T(test_unknown_file),
		T(test_other_domains_file),
		T(test_unknown_but_fenced),
		T(test_path_swapped),
		T(test_no_space_first),
		T(test_error_in_replay),
		T(test_error_in_sync),
		T(test_error_at_open),
		T(test_few_descriptors),
		T(test_apply_not_mounted),
		T(test_foreign_immutable),
		T(test_discard),
		T(test_discard_not_mounted),
		T(test_damage_middle),
		T(test_damage_heartbeat),
		T(test_damage_header),
		T(test_damage_cut_off),
		T(test_damage_gone),
		T(test_lines),
		T(test_unknown_type),
		T(test_not_dax),
		T(test_unsafe_shutdown),
	};

	if (argc != 2)
		return 2;
	fs_name = argv[1];
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
