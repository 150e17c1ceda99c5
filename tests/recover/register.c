/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registration: identity, owner mark, catalog; what a cut in the middle leaves. */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/sys.h"
#include "tests/recover/world.h"

static const char *fs_name;
static struct world w;
static const struct recover_options plain;

static int setup(void **state)
{
	(void)state;
	world_begin(&w, fs_name);
	world_pool(&w);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_end(&w);
	return 0;
}

static int make(const char *name, char path[300])
{
	int fd;

	(void)snprintf(path, 300, "%s/%s", w.mount, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	return fd;
}

static int stamp(int fd, struct pool_file *f, uint32_t *index, int *own, struct pool_error *e)
{
	return register_stamp(w.pool, fd, w.domain.lane, NULL, NULL, f, index, own, e);
}

static void test_stamp(void **state)
{
	struct pool_file f, kept;
	struct pool_error e;
	struct stat a, b;
	char path[300];
	uint32_t index, again;
	int fd = make("redo", path), own, own2;
	uint64_t id;

	(void)state;
	/* what was written before is durable from now on */
	assert_int_equal(write(fd, "before", 6), 6);
	steps_synced_directory = 0;
	assert_int_equal(stamp(fd, &f, &index, &own, &e), 0);
	assert_int_equal(stat(w.mount, &a), 0);
	assert_int_equal(steps_synced_directory, a.st_ino);
	id = f.id;
	assert_true(id > 0);
	assert_string_equal(f.path, path);
	assert_int_equal(fstat(fd, &a) | fstat(own, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(f.ino, a.st_ino);
	assert_int_equal(fcntl(own, F_GETFL) & O_ACCMODE, O_RDWR);
	assert_true(fcntl(own, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(mark_read(own, w.pool, &f), MARK_OURS);
	assert_int_equal(catalog_file_get(w.pool, index, &kept), 0);
	assert_int_equal(kept.ctime_ns, a.st_ctim.tv_sec * INT64_C(1000000000) + a.st_ctim.tv_nsec);
	/* again: the same id and entry */
	assert_int_equal(stamp(fd, &f, &again, &own2, &e), 0);
	assert_int_equal(f.id, id);
	assert_int_equal(again, index);
	(void)close(own2);
	/* name, mark and entry survive a cut at once */
	(void)close(fd);
	(void)close(own);
	world_cut(&w);
	assert_true(world_marked(path));
	assert_true(world_holds(path, 0, 'b', 1));
	assert_int_equal(identity_open(&f, O_RDWR, &own), IDENTITY_OK);
	assert_int_equal(register_release(w.pool, own, index), 0);
	(void)close(own);
	assert_false(world_marked(path));
	world_cut(&w);
	assert_false(world_marked(path));
	assert_int_equal(world_entries(&w), 0);
}

static void test_ids_never_again(void **state)
{
	uint64_t last = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < 1500; k++) {
			uint64_t id = pool_new_file_id(w.pool);

			assert_true(id > last);
			last = id;
		}
		world_close(&w);
		world_open(&w);
	}
}

static void refused(int fd, int error)
{
	struct pool_error e = { "" };
	struct pool_file f;
	uint32_t index;
	int own;

	assert_int_equal(stamp(fd, &f, &index, &own, &e), error);
	assert_true(strlen(e.text) > 10);
	assert_int_equal(world_entries(&w), 0);
}

static void test_refused(void **state)
{
	char path[300];
	int fd = make("f", path), other, pair[2];

	(void)state;
	other = open(path, O_RDONLY | O_CLOEXEC);
	refused(other, -EINVAL);
	(void)close(other);
	other = open(w.mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	refused(other, -EINVAL);
	(void)close(other);
	assert_int_equal(pipe(pair), 0);
	refused(pair[1], -EINVAL);
	(void)close(pair[0]);
	(void)close(pair[1]);
	/* not in trust_fs; nor a file that has no name */
	other = open(w.base, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	refused(other, -EOPNOTSUPP);
	(void)close(other);
	other = memfd_create("x", MFD_CLOEXEC);
	refused(other, -EOPNOTSUPP);
	(void)close(other);
	other = open(w.mount, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	refused(other, -EOPNOTSUPP);
	(void)close(other);
	/* not to be found by recovery: no mount of it in this namespace */
	run("mount -t tmpfs hides %s", w.mount);
	refused(fd, -EOPNOTSUPP);
	run("umount %s", w.mount);
	assert_false(world_marked(path));
	(void)close(fd);
}

static void test_trust_fs(void **state)
{
	static const char *const trust[] = { "zfs", "tmpfs", NULL };
	struct pool_error e = { "" };
	struct pool_file f;
	char path[300];
	uint32_t index;
	int fd, own, r;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/on-tmpfs", w.base);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = register_stamp(w.pool, fd, w.domain.lane, NULL, trust, &f, &index, &own, &e);
	/* tmpfs has user xattrs since 6.6 */
	if (r != -EOPNOTSUPP) {
		assert_int_equal(r, 0);
		(void)close(own);
	}
	(void)close(fd);
}

/* A copy made with its xattrs: the copied mark is replaced. */
static void test_copy(void **state)
{
	struct pool_error e = { "" };
	struct pool_file f, g;
	char path[300], copy[300];
	uint32_t index;
	int fd = make("redo", path), own, copied;

	(void)state;
	assert_int_equal(stamp(fd, &f, &index, &own, &e), 0);
	(void)close(own);
	run("cp -a --preserve=xattr %s %s.copy", path, path);
	copied = make("redo.copy", copy);
	assert_true(world_marked(copy));
	assert_int_equal(identity_of(copied, NULL, &g), 0);
	g.lane = w.domain.lane;
	assert_int_equal(mark_read(copied, w.pool, &g), MARK_COPY);
	assert_int_equal(stamp(copied, &g, &index, &own, &e), 0);
	assert_true(g.id != f.id);
	assert_int_equal(mark_read(copied, w.pool, &g), MARK_OURS);
	(void)close(own);
	(void)close(fd);
	(void)close(copied);
}

/* Another pool's mark is refused until it is adopted. */
static void test_foreign_adopt(void **state)
{
	struct pool_error e = { "" };
	struct pool_file f;
	char path[300];
	uint32_t index;
	int fd = make("redo", path), own;

	(void)state;
	assert_int_equal(stamp(fd, &f, &index, &own, &e), 0);
	(void)close(own);
	assert_int_equal(register_adopt(w.pool, fd, &e), -EBUSY);
	world_pool(&w); /* another uuid */
	refused(fd, -EXDEV);
	assert_int_equal(register_adopt(w.pool, fd, &e), 0);
	assert_false(world_marked(path));
	assert_int_equal(register_adopt(w.pool, fd, &e), 0);
	assert_int_equal(stamp(fd, &f, &index, &own, &e), 0);
	(void)close(own);
	(void)close(fd);
}

static void test_two_domains(void **state)
{
	struct pool_domain d = { .name = "other" };
	struct pool_error e = { "" };
	struct pool_file f, g;
	struct lane l;
	char path[300];
	uint32_t index;
	int fd = make("redo", path), own, lane_fd;

	(void)state;
	assert_int_equal(pool_lane_create(w.pool, &d, 65536, &l, &lane_fd, &e), 0);
	pool_lane_close(&l, lane_fd);
	assert_int_not_equal(d.lane, w.domain.lane);
	assert_int_equal(stamp(fd, &f, &index, &own, &e), 0);
	(void)close(own);
	assert_int_equal(register_stamp(w.pool, fd, d.lane, NULL, NULL, &g, &index, &own, &e),
			 -EBUSY);
	assert_int_equal(world_entries(&w), 1);
	assert_int_equal(mark_read(fd, w.pool, &f), MARK_OURS);
	/* let go: the other one may have it */
	assert_int_equal(register_release(w.pool, fd, index = 0), 0);
	assert_int_equal(register_stamp(w.pool, fd, d.lane, NULL, NULL, &g, &index, &own, &e), 0);
	(void)close(own);
	(void)close(fd);
}

/* Renamed to and fro while it is registered: never an error, never another file's directory only. */
static void test_names_move(void **state)
{
	struct pool_error e = { "" };
	struct pool_file f;
	char path[300];
	uint32_t index;
	int fd = make("redo", path), own;
	pid_t pid;

	(void)state;
	run("mkdir %s/d1 %s/d2", w.mount, w.mount);
	pid = fork();
	if (pid == 0) {
		char a[320], b[320];

		(void)snprintf(a, sizeof(a), "%s/d1/redo", w.mount);
		(void)snprintf(b, sizeof(b), "%s/d2/redo", w.mount);
		(void)rename(path, a);
		for (;;) {
			(void)rename(a, b);
			(void)rename(b, a);
		}
	}
	for (int i = 0; i < 30; i++) {
		assert_int_equal(stamp(fd, &f, &index, &own, &e), 0);
		(void)close(own);
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)close(fd);
}

static char crash_path[300];

static void body_stamp(void *arg)
{
	struct pool_error e;
	struct pool_file f;
	uint32_t index;
	int fd, own;

	(void)arg;
	world_open(&w);
	fd = open(crash_path, O_RDWR | O_CLOEXEC);
	steps_begin();
	if (register_stamp(w.pool, fd, w.domain.lane, NULL, NULL, &f, &index, &own, &e) < 0)
		_exit(1);
	if (*(bool *)arg && register_release(w.pool, own, index) < 0)
		_exit(1);
}

/* A mark that the catalog does not know would keep the file shut for ever without a daemon. */
static void test_crash(void **state)
{
	bool release = true, died = true;

	(void)state;
	for (unsigned n = 1; died; n++) {
		int fd = make("redo", crash_path);

		assert_int_equal(write(fd, "1234", 4), 4);
		assert_int_equal(fsync(fd), 0);
		(void)close(fd);
		world_pool(&w);
		world_close(&w);
		died = die_at_step(n, body_stamp, &release);
		world_cut(&w);
		world_open(&w);
		if (world_marked(crash_path))
			assert_int_equal(world_entries(&w), 1);
		assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
		assert_false(world_marked(crash_path));
		assert_int_equal(world_entries(&w), 0);
		assert_true(world_holds(crash_path, 0, '1', 1));
	}
}

/* Registered again (a daemon that was restarted) while old records are live: the stamp is our own change. */
static void test_crash_live(void **state)
{
	bool release = false, died = true;

	(void)state;
	for (unsigned n = 1; died; n++) {
		world_pool(&w);
		world_file(&w, 0, "redo", 'a', 4096);
		w.time_ns = now_realtime_ns() - UINT64_C(5000000000);
		world_write(&w, 0, 0, 'x', 512);
		(void)snprintf(crash_path, sizeof(crash_path), "%s", w.files[0].path);
		world_close(&w);
		died = die_at_step(n, body_stamp, &release);
		world_open(&w);
		assert_int_equal(world_recover(&w, plain, NULL), RECOVER_CLEAN);
		assert_true(world_holds(crash_path, 0, 'x', 512));
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_stamp),	     T(test_ids_never_again),
		T(test_refused),     T(test_trust_fs),
		T(test_copy),	     T(test_foreign_adopt),
		T(test_two_domains), T(test_names_move),
		T(test_crash_live),  T(test_crash),
	};

	if (argc != 2)
		return 2;
	fs_name = argv[1];
	world_need_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
