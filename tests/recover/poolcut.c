/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pool directory on a real file system: creation, opening, lanes, catalog, ids, registration cut at every
 * step, with what was not drained lost in part, and every name and file that was not synced gone. Afterwards the
 * pool opens, says the old or the new, and what was answered is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/dir/files.h"
#include "pool/ops.h"
#include "tests/recover/world.h"

#define RING	  65536u
#define STEPS_MAX 2000u

static const char *fs_name;
static struct world w;
static struct pool_error error;
static uint64_t seed_base = 1;
static uint64_t seeds = 1;

/* What the child got as an answer, seen by us. */
static struct answers {
	unsigned done; /* calls that returned */
	uint64_t generation, last_id;
	uint32_t index;
} * answers;

/* The state directory: in turn on the same file system, whose journal then takes other names along, and on one
 * that loses nothing. */
static void place_state(bool apart)
{
	(void)snprintf(w.state_dir, sizeof(w.state_dir), "%.100s/state", apart ? w.base : w.mount);
}

static int setup(void **state)
{
	(void)state;
	world_begin(&w, fs_name);
	if (strcmp(fs_name, "ext4") == 0) {
		/* room for two pools */
		world_umount(&w);
		run("truncate -s 96M %s && mkfs.ext4 -q -F -b 4096 %s", w.image, w.image);
		world_mount(&w);
	}
	(void)snprintf(w.pool_dir, sizeof(w.pool_dir), "%.100s/pool", w.mount);
	place_state(false);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_end(&w);
	return 0;
}

static int create(bool force)
{
	return pool_create(w.pool_dir, w.state_dir, true, force, &error);
}

static void nothing_there(void)
{
	run("rm -rf %s %s/state %s/state && sync -f %s", w.pool_dir, w.base, w.mount, w.mount);
}

static void a_pool(void)
{
	nothing_there();
	if (create(false) < 0)
		fail_msg("%s", error.text);
	run("sync -f %s", w.mount);
}

static void open_pool(void)
{
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
		fail_msg("the pool does not open: %s", error.text);
}

static void close_pool(void)
{
	w.pool = pool_close(w.pool);
}

/* Opened again and again it says the same, and the mirror knows its generation. */
static void assert_opens(void)
{
	struct pool_state s;

	open_pool();
	assert_int_equal(state_read(w.state_dir, &s), 0);
	assert_int_equal(s.generation, w.pool->sb.generation);
	assert_memory_equal(s.uuid, w.pool->sb.uuid, sizeof(s.uuid));
	assert_string_equal(w.pool->warning, "");
	assert_int_equal(w.pool->damaged_files, 0);
	close_pool();
}

static bool one_cut(unsigned n, uint64_t seed, void (*prepare)(void), void (*body)(void *),
		    void (*check)(bool died))
{
	bool died;

	prepare();
	memset(answers, 0, sizeof(*answers));
	died = die_torn_at_step(n, seed, body, NULL);
	world_cut(&w);
	check(died);
	return died;
}

/* prepare, then body killed at each step in turn, the cut, then check. Last: not killed, and the cut. */
static void each_cut(const char *name, void (*prepare)(void), void (*body)(void *),
		     void (*check)(bool died))
{
	for (uint64_t seed = 0; seed < seeds; seed++) {
		bool died = true;
		unsigned n;

		for (n = 1; died; n++) {
			assert_true(n < STEPS_MAX);
			place_state((n + seed) & 1);
			died = one_cut(n, seed_base + seed * 1000003 + n, prepare, body, check);
		}
		place_state((n + seed) & 1);
		assert_false(one_cut(STEPS_MAX, seed_base, prepare, body, check));
		print_message("%s: %s: %u steps\n", fs_name, name, n - 1);
		assert_true(n > 3);
	}
}

/* ---- creation ----------------------------------------------------------------------------------- */

static void body_create(void *arg)
{
	(void)arg;
	steps_begin();
	if (create(false) < 0)
		_exit(1);
	answers->done = 1;
}

static void check_created(bool died)
{
	/* Not there, or not whole: made again without force, since it never held anything. */
	if (died && pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0) {
		if (create(false) < 0)
			fail_msg("neither opened nor made: %s", error.text);
	} else if (died) {
		close_pool();
	}
	assert_opens();
	assert_opens();
}

static void test_create(void **state)
{
	(void)state;
	each_cut("create", nothing_there, body_create, check_created);
}

static uint8_t old_uuid[16];

static void a_pool_to_replace(void)
{
	struct pool_domain d = { .name = "db" };
	struct lane l;
	int fd;

	a_pool();
	open_pool();
	memcpy(old_uuid, w.pool->sb.uuid, sizeof(old_uuid));
	if (pool_lane_create(w.pool, &d, RING, &l, &fd, &error) < 0)
		fail_msg("%s", error.text);
	pool_lane_close(&l, fd);
	close_pool();
	run("sync -f %s", w.mount);
}

static void body_replace(void *arg)
{
	(void)arg;
	steps_begin();
	if (create(true) < 0)
		_exit(1);
	answers->done = 1;
}

/* The old pool with its lane, or the new one; in between force is asked for again. */
static void check_replaced(bool died)
{
	int r = pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error);

	if (r < 0 && died) {
		if (create(true) < 0)
			fail_msg("neither opened nor made: %s", error.text);
		open_pool();
	} else if (r < 0) {
		fail_msg("the new pool does not open: %s", error.text);
	}
	if (memcmp(w.pool->sb.uuid, old_uuid, sizeof(old_uuid)) == 0) {
		struct pool_domain d;
		struct lane l;
		int fd;

		assert_true(died);
		assert_int_equal(catalog_domain_get(w.pool, 0, &d), 0);
		if (pool_lane_open(w.pool, &d, &l, &fd, &error) < 0)
			fail_msg("%s", error.text);
		pool_lane_close(&l, fd);
	} else {
		assert_int_equal(catalog_domain_find(w.pool, 0, "db"), -ENOENT);
	}
	close_pool();
	assert_opens();
}

static void test_replace(void **state)
{
	(void)state;
	each_cut("create --force", a_pool_to_replace, body_replace, check_replaced);
}

/* ---- opening: the generation and its mirror -------------------------------------------------------- */

static void body_open(void *arg)
{
	(void)arg;
	steps_begin();
	for (int i = 0; i < 2; i++) {
		if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
			_exit(1);
		answers->generation = w.pool->sb.generation;
		w.pool = pool_close(w.pool);
	}
}

/* What was opened once is the newest ever after: an older copy would be told by its generation. */
static void check_opened(bool died)
{
	struct pool_state s;

	(void)died;
	assert_int_equal(state_read(w.state_dir, &s), 0);
	assert_true(s.generation >= answers->generation);
	open_pool();
	assert_true(w.pool->sb.generation > answers->generation);
	close_pool();
	assert_opens();
}

static void test_open(void **state)
{
	(void)state;
	each_cut("open", a_pool, body_open, check_opened);
}

/* ---- ids -------------------------------------------------------------------------------------------- */

static void body_ids(void *arg)
{
	(void)arg;
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
		_exit(1);
	steps_begin();
	for (int i = 0; i < 3000; i++) {
		uint64_t id = pool_new_file_id(w.pool);

		if (id <= answers->last_id)
			_exit(1);
		answers->last_id = id;
	}
}

static void check_ids(bool died)
{
	(void)died;
	open_pool();
	assert_true(pool_new_file_id(w.pool) > answers->last_id);
	close_pool();
}

static void test_ids(void **state)
{
	(void)state;
	each_cut("ids", a_pool, body_ids, check_ids);
}

/* ---- lanes -------------------------------------------------------------------------------------------- */

static int make_lane(const char *name, uint64_t ring)
{
	struct pool_domain d = { .uid = 0 };
	struct lane l;
	int fd, r;

	(void)snprintf(d.name, sizeof(d.name), "%s", name);
	r = pool_lane_create(w.pool, &d, ring, &l, &fd, &error);
	if (r == 0)
		pool_lane_close(&l, fd);
	return r;
}

static void body_lanes(void *arg)
{
	(void)arg;
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
		_exit(1);
	steps_begin();
	/* the third takes the first one's place */
	if (make_lane("a", RING) < 0)
		_exit(1);
	answers->done = 1;
	if (make_lane("b", RING) < 0)
		_exit(1);
	answers->done = 2;
	if (make_lane("a", 2 * RING) < 0)
		_exit(1);
	answers->done = 3;
}

/* True if the domain is there; its lane is whole and empty then. */
static bool lane_there(const char *name, uint64_t *ret_ring)
{
	int index = catalog_domain_find(w.pool, 0, name);
	struct pool_domain d;
	struct lane l;
	int fd;

	if (index < 0)
		return false;
	assert_int_equal(catalog_domain_get(w.pool, (uint32_t)index, &d), 0);
	if (pool_lane_open(w.pool, &d, &l, &fd, &error) < 0)
		fail_msg("the lane of %s: %s", name, error.text);
	*ret_ring = l.ring_size;
	pool_lane_close(&l, fd);
	w.index = index;
	assert_true(world_lane_empty(&w));
	return true;
}

static void check_lanes(bool died)
{
	uint64_t a = 0, b = 0;

	(void)died;
	open_pool();
	assert_true(lane_there("a", &a) || answers->done < 1);
	assert_true(lane_there("b", &b) || answers->done < 2);
	if (answers->done == 3)
		assert_int_equal(a, 2 * RING);
	/* and go on as if nothing had been */
	assert_int_equal(make_lane("a", RING), 0);
	assert_int_equal(make_lane("c", RING), 0);
	close_pool();
	assert_opens();
}

static void test_lanes(void **state)
{
	(void)state;
	each_cut("lanes", a_pool, body_lanes, check_lanes);
}

/* discard: an unreadable lane gives way to a new one */
static void body_lane_replace(void *arg)
{
	struct pool_domain d;

	(void)arg;
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
		_exit(1);
	steps_begin();
	if (catalog_domain_get(w.pool, 0, &d) < 0)
		_exit(1);
	d.verdict = VERDICT_NONE;
	if (pool_lane_replace(w.pool, 0, &d, &error) < 0)
		_exit(1);
	answers->done = 1;
}

static void a_damaged_lane(void)
{
	struct pool_domain d;

	a_pool_to_replace();
	run("dd if=/dev/urandom of=%s/lane-000001 bs=4096 count=1 conv=notrunc status=none && "
	    "sync -f %s",
	    w.pool_dir, w.mount);
	open_pool();
	assert_int_equal(catalog_domain_get(w.pool, 0, &d), 0);
	d.verdict = VERDICT_QUARANTINED;
	assert_int_equal(catalog_domain_put(w.pool, 0, &d), 0);
	close_pool();
	run("sync -f %s", w.mount);
}

/* Never an empty lane for a domain that still counts as quarantined by its damage, nor none for a clean one. */
static void check_lane_replaced(bool died)
{
	struct pool_domain d;
	struct lane l;
	int fd, r;

	open_pool();
	assert_int_equal(catalog_domain_get(w.pool, 0, &d), 0);
	r = pool_lane_open(w.pool, &d, &l, &fd, &error);
	if (r == 0)
		pool_lane_close(&l, fd);
	if (!died)
		assert_int_equal(d.verdict, VERDICT_NONE);
	assert_int_equal(r == 0, d.verdict == VERDICT_NONE);
	d.verdict = VERDICT_NONE;
	if (r < 0)
		assert_int_equal(pool_lane_replace(w.pool, 0, &d, &error), 0);
	close_pool();
	assert_opens();
}

static void test_lane_replace(void **state)
{
	(void)state;
	each_cut("lane replaced", a_damaged_lane, body_lane_replace, check_lane_replaced);
}

/* ---- a lane's lives ---------------------------------------------------------------------------------- */

#define LIVES 3u

static void body_lives(void *arg)
{
	struct pool_domain d;
	struct lane l;
	int fd;

	(void)arg;
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0 ||
	    catalog_domain_get(w.pool, 0, &d) < 0 ||
	    pool_lane_open(w.pool, &d, &l, &fd, &error) < 0)
		_exit(1);
	steps_begin();
	for (unsigned i = 0; i < LIVES; i++) {
		/* each from what lies there, as the next daemon would */
		if (catalog_domain_get(w.pool, 0, &d) < 0 || pool_lane_renew(w.pool, 0, &d, &l) < 0)
			_exit(1);
		/* a recovery that is cut and begins again renews once more before it is told */
		if (i == 1 && pool_lane_renew(w.pool, 0, &d, &l) < 0)
			_exit(1);
		pool_lane_renewed(&d, &l);
		if (catalog_domain_put(w.pool, 0, &d) < 0)
			_exit(1);
		answers->done++;
	}
}

static void a_lane(void)
{
	a_pool_to_replace();
	run("cp %s/lane-000001 %s/older && sync -f %s", w.pool_dir, w.base, w.mount);
}

/* Whatever the cut left, the lane is its domain's and empty; once a new life was told, the copy is not. */
static void check_lives(bool died)
{
	struct pool_domain d;

	assert_int_equal(answers->done == LIVES, !died);
	open_pool();
	assert_int_equal(catalog_domain_get(w.pool, 0, &d), 0);
	assert_false(pool_lane_holds(w.pool, &d));
	run("cat %s/older > %s/lane-000001", w.base, w.pool_dir);
	if (answers->done > 0)
		assert_true(pool_lane_holds(w.pool, &d));
	close_pool();
	assert_opens();
}

static void test_lives(void **state)
{
	(void)state;
	each_cut("a lane's lives", a_lane, body_lives, check_lives);
}

/* ---- catalog -------------------------------------------------------------------------------------------- */

#define ENTRIES 3u

static struct pool_file entry_of(unsigned i, unsigned version)
{
	struct pool_file f = { .id = 100 + i, .lane = 1 };

	memset(f.path, 'a' + (int)(i + version) % 26, sizeof(f.path) - 1);
	f.ctime_ns = version;
	return f;
}

static void body_catalog(void *arg)
{
	(void)arg;
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
		_exit(1);
	steps_begin();
	for (unsigned version = 1; version <= 2; version++)
		for (unsigned i = 0; i < ENTRIES; i++) {
			struct pool_file f = entry_of(i, version);

			if (catalog_file_put(w.pool, 10 + i, &f) < 0)
				_exit(1);
			answers->done++;
		}
	for (unsigned i = 0; i < ENTRIES; i++) {
		if (catalog_file_drop(w.pool, 10 + i) < 0)
			_exit(1);
		answers->done++;
	}
}

/* Each entry is as some put or drop left it: the last one that returned, or the one after it. */
static void check_catalog(bool died)
{
	(void)died;
	open_pool();
	assert_int_equal(w.pool->damaged_files, 0);
	for (unsigned i = 0; i < ENTRIES; i++) {
		struct pool_file f, wanted;
		int r = catalog_file_get(w.pool, 10 + i, &f);
		unsigned sure = (answers->done + ENTRIES - 1 - i) / ENTRIES; /* changes of it */
		unsigned version;

		if (r == -ENOENT) {
			assert_true(sure == 0 || sure >= 2);
			if (sure == 2)
				assert_int_equal(answers->done % ENTRIES, i);
			continue;
		}
		assert_int_equal(r, 0);
		assert_true(sure < 3);
		version = (unsigned)f.ctime_ns;
		assert_true(version == sure || version == sure + 1);
		wanted = entry_of(i, version);
		assert_string_equal(f.path, wanted.path);
	}
	close_pool();
}

static void test_catalog(void **state)
{
	(void)state;
	each_cut("catalog", a_pool, body_catalog, check_catalog);
}

/* ---- registration ------------------------------------------------------------------------------------------ */

static void a_new_file(void)
{
	a_pool_to_replace();
	(void)snprintf(w.files[0].path, sizeof(w.files[0].path), "%.200s/redo", w.mount);
	run("rm -f %s && sync -f %s", w.files[0].path, w.mount);
}

static void body_register(void *arg)
{
	struct pool_file f;
	int fd, own;

	(void)arg;
	if (pool_open(&w.pool, w.pool_dir, w.state_dir, true, false, &error) < 0)
		_exit(1);
	/* made by the database just before, and never synced by it */
	fd = open(w.files[0].path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "written before", 14) != 14)
		_exit(1);
	steps_begin();
	if (register_stamp(w.pool, fd, 1, w.files[0].path, NULL, &f, &answers->index, &own,
			   &error) < 0)
		_exit(1);
	answers->done = 1;
	/* another ctime, which is not on the disk yet */
	if (fchmod(fd, 0640) < 0 || register_refresh(w.pool, own, answers->index) < 0)
		_exit(1);
	answers->done = 2;
	if (register_release(w.pool, own, answers->index) < 0)
		_exit(1);
	answers->done = 3;
}

/* No mark without an entry; registered: the file is there with its name, its bytes and its mark. */
static void check_registered(bool died)
{
	const char *path = w.files[0].path;
	bool marked = world_marked(path);
	struct pool_file f;
	struct stat st;
	int index;

	open_pool();
	index = catalog_file_next(w.pool, 1, 0, &f);
	if (marked)
		assert_true(index >= 0);
	/* Or recovery would take the volume for one that was rolled back. */
	if (marked && stat(path, &st) == 0)
		assert_true(st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec >=
			    f.ctime_ns);
	if (answers->done == 1 || answers->done == 2) {
		char bytes[15] = "";
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		assert_true(fd >= 0);
		assert_int_equal(read(fd, bytes, 14), 14);
		assert_string_equal(bytes, "written before");
		(void)close(fd);
		/* the release is under way behind it */
		if (answers->done == 1)
			assert_true(marked && index >= 0);
	}
	if (!died)
		assert_true(!marked && index < 0);
	close_pool();
}

static void test_register(void **state)
{
	(void)state;
	each_cut("register", a_new_file, body_register, check_registered);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_create), T(test_replace), T(test_open),
		T(test_ids),	T(test_lanes),	 T(test_lane_replace),
		T(test_lives),	T(test_catalog), T(test_register),
	};

	/* poolcut FILE-SYSTEM [SEEDS [TESTS [FIRST-SEED]]] */
	if (argc < 2)
		return 2;
	fs_name = argv[1];
	if (argc > 2)
		seeds = strtoull(argv[2], NULL, 0);
	if (argc > 3)
		cmocka_set_test_filter(argv[3]);
	if (argc > 4)
		seed_base = strtoull(argv[4], NULL, 0);
	answers = mmap(NULL, sizeof(*answers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (answers == MAP_FAILED)
		return 2;
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
