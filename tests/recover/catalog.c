/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Catalog and lanes: damage, torn writes, full tables, files that nobody names. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/ops.h"
#include "tests/recover/poolenv.h"

static off_t domain_at(unsigned index, unsigned copy)
{
	return (off_t)(POOL_DOMAINS_OFFSET + (index * 2 + copy) * POOL_ENTRY_BYTES);
}

static off_t file_at(unsigned index, unsigned copy)
{
	return (off_t)(POOL_FILES_OFFSET + (index * 2 + copy) * POOL_ENTRY_BYTES);
}

static void test_catalog_damage(void **state)
{
	struct pool *p = must_open();
	struct pool_file f = { .id = 5, .lane = 1, .handle_bytes = 8, .path = "x" }, got;
	int index;

	(void)state;
	make_lane(p, "db");
	index = catalog_file_put(p, UINT32_MAX, &f);
	assert_true(index >= 0);
	pool_close(p);
	/* any byte of one copy: the other counts, and the next put mends it */
	for (off_t at = 0; at < POOL_ENTRY_BYTES; at += 7) {
		flip(domain_at(0, at & 1) + at);
		flip(file_at((unsigned)index, at & 1) + at);
		p = must_open();
		assert_int_equal(p->damaged_files, 0);
		assert_int_equal(catalog_domain_find(p, (uint32_t)getuid(), "db"), 0);
		assert_int_equal(catalog_file_get(p, (uint32_t)index, &got), 0);
		assert_int_equal(got.id, 5);
		pool_close(p);
		flip(domain_at(0, at & 1) + at);
		flip(file_at((unsigned)index, at & 1) + at);
	}
	/* both copies of a file: known as damaged, and never given out again */
	flip(file_at((unsigned)index, 0) + 100);
	flip(file_at((unsigned)index, 1) + 101);
	p = must_open();
	assert_int_equal(p->damaged_files, 1);
	assert_int_equal(catalog_file_get(p, (uint32_t)index, &got), -EBADMSG);
	assert_int_equal(catalog_file_put(p, UINT32_MAX, &f), index + 1);
	pool_close(p);
	/* both copies of a domain: whose records lie there? */
	flip(domain_at(0, 0) + 100);
	flip(domain_at(0, 1) + 20);
	refused(-EBADMSG, "domain is damaged");
}

static const struct pool_ops *real_ops;
static unsigned drains_left; /* behind a store */
static bool stored;

static void cut_copy(void *dst, const void *src, size_t n)
{
	stored = true;
	if (drains_left > 0)
		real_ops->copy(dst, src, n);
	else
		memcpy(dst, src, n / 2 & ~(size_t)7); /* torn */
}

static void cut_flush(const void *p, size_t n)
{
	real_ops->flush(p, n);
}

static void cut_drain(void)
{
	real_ops->drain();
	if (!stored)
		return;
	stored = false;
	if (drains_left == 0)
		_exit(0);
	drains_left--;
}

static const struct pool_ops cut_ops = { cut_copy, cut_flush, cut_drain };

/* A put that is torn in its first or second copy: the old entry or the new one, never none. */
static void test_catalog_torn(void **state)
{
	(void)state;
	for (unsigned cut = 0; cut < 3; cut++) {
		struct pool_file f = { .id = 1, .lane = 1 }, got;
		struct pool *p = must_open();
		int status, index = catalog_file_put(p, UINT32_MAX, &f);
		pid_t pid = fork();

		if (pid == 0) {
			real_ops = pool_ops;
			pool_ops = &cut_ops;
			drains_left = cut;
			f.id = 2;
			f.path[200] = 'x'; /* so that half of the entry is not all of it */
			(void)catalog_file_put(p, (uint32_t)index, &f);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		pool_close(p);
		p = must_open();
		assert_int_equal(catalog_file_get(p, (uint32_t)index, &got), 0);
		assert_int_equal(got.id, cut == 0 ? 1 : 2);
		/* the first put of a free entry, torn */
		pid = fork();
		if (pid == 0) {
			real_ops = pool_ops;
			pool_ops = &cut_ops;
			drains_left = 0;
			f.path[200] = 'x';
			(void)catalog_file_put(p, 4000 + cut, &f);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		pool_close(p);
		p = must_open();
		assert_int_equal(p->damaged_files, 0);
		assert_int_equal(catalog_file_get(p, 4000 + cut, &got), -ENOENT);
		pool_close(p);
	}
}

/* One copy is damaged: a put that is torn then may not take the other one too. */
static void test_catalog_torn_and_damaged(void **state)
{
	struct pool_file f = { .id = 1, .lane = 1 }, got;
	struct pool *p = must_open();
	int status, index = catalog_file_put(p, UINT32_MAX, &f);

	(void)state;
	for (unsigned copy = 0; copy < 2; copy++) {
		pid_t pid;

		assert_int_equal(catalog_file_put(p, (uint32_t)index, &f), index);
		flip(file_at((unsigned)index, copy) + 100);
		pid = fork();
		if (pid == 0) {
			real_ops = pool_ops;
			pool_ops = &cut_ops;
			drains_left = 0;
			f.path[200] = 'x';
			(void)catalog_file_put(p, (uint32_t)index, &f);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(catalog_file_get(p, (uint32_t)index, &got), 0);
		assert_int_equal(got.id, 1);
	}
	pool_close(p);
}

static void test_catalog_full(void **state)
{
	struct pool *p = must_open();
	struct pool_domain d = { .uid = 1 }, got;

	(void)state;
	for (unsigned i = 0; i < POOL_DOMAINS; i++)
		assert_int_equal(catalog_domain_put(p, UINT32_MAX, &d), i);
	assert_int_equal(catalog_domain_put(p, UINT32_MAX, &d), -ENOSPC);
	assert_int_equal(catalog_domain_drop(p, 17), 0);
	assert_int_equal(catalog_domain_drop(p, 17), 0);
	assert_int_equal(catalog_domain_get(p, 17, &got), -ENOENT);
	assert_int_equal(catalog_domain_put(p, UINT32_MAX, &d), 17);
	assert_int_equal(catalog_domain_get(p, POOL_DOMAINS, &got), -EINVAL);
	assert_int_equal(catalog_domain_put(p, POOL_DOMAINS, &d), -EINVAL);
	pool_close(p);
}

static void test_lanes(void **state)
{
	struct pool *p = must_open();
	struct pool_domain a = make_lane(p, "a"), b = make_lane(p, "b"), old = a;
	struct pool_error e;
	struct stat st;
	struct lane l;
	char path[300];
	int fd;

	(void)state;
	assert_int_not_equal(a.lane, b.lane);
	pool_lane_path(p, a.lane, path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_uid, getuid());
	assert_int_equal(st.st_size, LANE_HEADER_BYTES + 65536);
	assert_true(st.st_blocks * 512 >= st.st_size);
	/* another size: a new file under a new number, the old one gone */
	assert_int_equal(pool_lane_create(p, &a, 131072 + 5, &l, &fd, &e), 0);
	assert_int_equal(a.ring_size, 131072);
	pool_lane_close(&l, fd);
	assert_int_not_equal(a.lane, old.lane);
	assert_int_equal(stat(path, &st), -1);
	/* not while it holds records, nor when it cannot be read */
	make_live(p, &a);
	old = a;
	assert_int_equal(pool_lane_create(p, &old, 65536, &l, &fd, &e), -EBUSY);
	pool_lane_path(p, b.lane, path, sizeof(path));
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(pool_lane_open(p, &b, &l, &fd, &e), -ENXIO);
	assert_int_equal(pool_lane_create(p, &b, 65536, &l, &fd, &e), -EBUSY);
	/* another lane's file under its name */
	run("cp %s/lane-%06u %s", pool_dir, a.lane, path);
	b.ring_size = a.ring_size;
	assert_int_equal(pool_lane_open(p, &b, &l, &fd, &e), -EBADMSG);
	/* sizes out of range */
	old = (struct pool_domain){ .uid = (uint32_t)getuid(), .name = "c" };
	assert_int_equal(pool_lane_create(p, &old, 4096, &l, &fd, &e), -EINVAL);
	assert_int_equal(pool_lane_create(p, &old, UINT64_C(1) << 33, &l, &fd, &e), -EINVAL);
	/* a link that somebody laid there is not followed */
	run("ln -s /etc/passwd %s/lane-000009 ; rm %s", pool_dir, path);
	old.lane = 9;
	old.ring_size = 65536;
	assert_int_equal(pool_lane_open(p, &old, &l, &fd, &e), -ELOOP);
	pool_close(p);
}

/* Pages that were cleared of poison read as zeros: a domain's entry is lost, its records are not. */
static void test_orphans(void **state)
{
	static const uint8_t zeros[2 * POOL_ENTRY_BYTES];
	struct pool *p = must_open();
	struct pool_domain a = make_lane(p, "a"), b = make_lane(p, "b");
	char path[300];

	(void)state;
	make_live(p, &b);
	pool_close(p);
	/* what a cut leaves of a creation: removed */
	run("cp %s/lane-%06u %s/keep", pool_dir, b.lane, base);
	run("truncate -s 70000 %s/lane-000007; touch %s/lane-000008 %s/lane-x %s/lane-0000099",
	    pool_dir, pool_dir, pool_dir, pool_dir);
	poke(domain_at(0, 0), zeros, sizeof(zeros)); /* a's entry; its lane is empty */
	p = must_open();
	pool_lane_path(p, a.lane, path, sizeof(path));
	assert_int_equal(access(path, F_OK), -1);
	pool_close(p);
	run("cd %s && test ! -e lane-000007 && test ! -e lane-000008 && test -e lane-x && "
	    "test -e lane-0000099",
	    pool_dir);
	/* records of nobody */
	poke(domain_at(1, 0), zeros, sizeof(zeros));
	refused(-EBADMSG, "knows no domain");
	run("cmp %s/lane-%06u %s/keep", pool_dir, b.lane, base);
}

/* Empty, but with files: sessions may have it mapped, and go on. Its number is given to nobody else. */
static void test_orphan_with_files(void **state)
{
	static const uint8_t zeros[2 * POOL_ENTRY_BYTES];
	struct pool_file f = { .id = 5, .path = "some/file" };
	struct pool *p = must_open();
	struct pool_domain a = make_lane(p, "a"), b;
	int index;

	(void)state;
	f.lane = a.lane;
	index = catalog_file_put(p, UINT32_MAX, &f);
	assert_true(index >= 0);
	pool_close(p);
	poke(domain_at(0, 0), zeros, sizeof(zeros));
	refused(-EBADMSG, "entry was lost");
	run("test -e %s/lane-%06u && rm %s/lane-%06u", pool_dir, a.lane, pool_dir, a.lane);
	p = must_open();
	b = make_lane(p, "b");
	assert_int_not_equal(b.lane, a.lane);
	assert_int_equal(catalog_file_drop(p, (uint32_t)index), 0);
	assert_int_equal(make_lane(p, "c").lane, a.lane);
	pool_close(p);
}

/* Random damage: opening refuses, or everything that was in the pool is there unchanged. */
static void test_random_damage(void **state)
{
	struct pool_file f = { .id = 5, .handle_bytes = 8, .path = "some/file" }, got;
	struct pool *p = must_open();
	struct pool_domain d = make_lane(p, "db"), found;
	unsigned refusals = 0;
	int index;

	(void)state;
	srandom(20261130);
	f.lane = d.lane;
	index = catalog_file_put(p, UINT32_MAX, &f);
	pool_close(p);
	for (unsigned n = 0; n < 150; n++) {
		unsigned flips = 1 + (unsigned)random() % 3;
		off_t at[3];

		for (unsigned i = 0; i < flips; i++) {
			at[i] = random() % (2 * 104 + 2 * 512 + 2 * 512);
			if (at[i] < 208)
				at[i] = at[i] < 104 ? at[i] : POOL_SB_BYTES + at[i] - 104;
			else if (at[i] < 208 + 1024)
				at[i] = domain_at(0, 0) + at[i] - 208;
			else
				at[i] = file_at((unsigned)index, 0) + at[i] - 208 - 1024;
			flip(at[i]);
		}
		if (pool_open(&p, pool_dir, state_dir, true, false, &error) < 0) {
			refusals++;
			assert_true(strlen(error.text) > 10);
			while (flips-- > 0)
				flip(at[flips]);
			continue;
		}
		assert_int_equal(catalog_domain_find(p, d.uid, "db"), 0);
		assert_int_equal(catalog_domain_get(p, 0, &found), 0);
		assert_int_equal(found.lane, d.lane);
		if (catalog_file_get(p, (uint32_t)index, &got) == 0)
			assert_string_equal(got.path, f.path);
		else
			assert_int_equal(p->damaged_files, 1);
		/* whole again for the next round */
		assert_int_equal(catalog_domain_put(p, 0, &found), 0);
		assert_int_equal(catalog_file_put(p, (uint32_t)index, &f), index);
		pool_close(p);
	}
	print_message("%u of 150 refused\n", refusals);
	assert_in_range(refusals, 1, 149);
}

/* Memory that vanishes under the mapping does not kill us: SIGBUS while the catalog is read. */
static void test_sigbus(void **state)
{
	struct pool *p = must_open();
	struct pool_domain d;
	struct pool_file f = { .id = 1 };

	(void)state;
	assert_int_equal(catalog_domain_put(p, 3, &(struct pool_domain){ .uid = 1 }), 3);
	assert_int_equal(truncate(pool_file, 4096), 0);
	assert_int_equal(catalog_domain_get(p, 3, &d), -EBADMSG);
	assert_int_equal(catalog_file_put(p, 3, &f), -EFAULT);
	pool_close(p);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_catalog_damage),	   T(test_catalog_torn),  T(test_catalog_torn_and_damaged),
		T(test_catalog_full),	   T(test_lanes),	  T(test_orphans),
		T(test_orphan_with_files), T(test_random_damage), T(test_sigbus),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
