/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pool directory: creation, and what opening refuses without changing a byte. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/crc.h"
#include "pool/dir/files.h"
#include "tests/recover/poolenv.h"

static void test_create_refusals(void **state)
{
	char dir[200];

	(void)state;
	assert_int_equal(pool_create(pool_dir, state_dir, true, false, &error), -EEXIST);
	assert_non_null(strstr(error.text, "--force"));
	/* foreign files */
	(void)snprintf(dir, sizeof(dir), "%s/other", base);
	run("mkdir %s && touch %s/precious", dir, dir);
	assert_int_equal(pool_create(dir, state_dir, true, false, &error), -ENOTEMPTY);
	assert_non_null(strstr(error.text, "precious"));
	/* this machine's pool is another one */
	run("rm %s/precious; mkdir %s/lost+found", dir, dir);
	assert_int_equal(pool_create(dir, state_dir, true, false, &error), -EEXIST);
	assert_non_null(strstr(error.text, "pool.state"));
	assert_int_equal(pool_create(dir, state_dir, true, true, &error), 0);
	/* not absolute; not durable */
	assert_int_equal(pool_create("relative", state_dir, true, true, &error), -EINVAL);
	run("rm -rf %s && mkdir %s", dir, dir);
	assert_int_equal(pool_create(dir, state_dir, false, true, &error), -EOPNOTSUPP);
	assert_non_null(strstr(error.text, "emulate"));
	assert_non_null(strstr(error.text, "MAP_SYNC"));
	assert_int_equal(rmdir(dir), 0); /* nothing left behind */
}

static void test_create_force(void **state)
{
	struct pool *p = must_open();
	uint8_t uuid[16];
	struct stat st;

	(void)state;
	memcpy(uuid, p->sb.uuid, 16);
	make_lane(p, "db");
	assert_int_equal(pool_create(pool_dir, state_dir, true, true, &error), -EBUSY);
	assert_non_null(strstr(error.text, "in use by process"));
	pool_close(p);
	assert_int_equal(pool_create(pool_dir, state_dir, true, true, &error), 0);
	p = must_open();
	assert_memory_not_equal(uuid, p->sb.uuid, 16);
	assert_int_equal(catalog_domain_find(p, (uint32_t)getuid(), "db"), -ENOENT);
	assert_int_equal(fstatat(p->dir_fd, "lane-000001", &st, 0), -1);
	pool_close(p);
}

/* D35: no room for the pool, then for a lane. */
static void test_no_space(void **state)
{
	struct pool_domain d = { .uid = (uint32_t)getuid(), .name = "db" };
	struct pool *p;
	struct lane l;
	char dir[200];
	int fd;

	(void)state;
	if (geteuid() != 0) {
		print_message("SKIP: a small tmpfs needs root\n");
		skip();
	}
	(void)snprintf(dir, sizeof(dir), "%s/small", base);
	run("mkdir %s && mount -t tmpfs -o size=8m small %s", dir, dir);
	assert_int_equal(pool_create(dir, state_dir, true, true, &error), -ENOSPC);
	run("test -z \"$(ls -A %s)\" && mount -o remount,size=20m %s", dir, dir);
	assert_int_equal(pool_create(dir, state_dir, true, true, &error), 0);
	assert_int_equal(pool_open(&p, dir, state_dir, true, false, &error), 0);
	assert_int_equal(pool_lane_create(p, &d, 64u << 20, &l, &fd, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "no space"));
	assert_int_equal(faccessat(p->dir_fd, "lane-000001", F_OK, 0), -1);
	assert_int_equal(catalog_domain_find(p, d.uid, "db"), -ENOENT);
	pool_close(p);
	run("umount %s", dir);
}

static void test_blocks_are_there(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stat(pool_file, &st), 0);
	assert_int_equal(st.st_size, POOL_BYTES);
	assert_true((uint64_t)st.st_blocks * 512 >= POOL_BYTES);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_open_twice(void **state)
{
	struct pool *p = must_open(), *q;
	char pid[40];

	(void)state;
	(void)snprintf(pid, sizeof(pid), "process %ld", (long)getpid());
	refused(-EBUSY, pid);
	assert_int_equal(pool_open(&q, pool_dir, state_dir, true, true, &error), 0);
	assert_int_equal(catalog_domain_drop(q, 0), 0); /* nothing there: nothing to do */
	assert_int_equal(catalog_domain_put(q, 0, &(struct pool_domain){ .uid = 1 }), -EROFS);
	assert_int_equal(pool_new_file_id(q), 0);
	pool_close(q);
	pool_close(p);
	pool_close(must_open());
}

static void test_generation(void **state)
{
	struct pool *p = must_open();
	uint64_t generation = p->sb.generation;
	struct pool_state s;

	(void)state;
	pool_close(p);
	p = must_open();
	assert_int_equal(p->sb.generation, generation + 1);
	assert_int_equal(state_read(state_dir, &s), 0);
	assert_int_equal(s.generation, generation + 1);
	pool_close(p);
	/* the mirror one behind: the cut came between the two */
	s.generation--;
	assert_int_equal(state_write(state_dir, &s), 0);
	p = must_open();
	assert_int_equal(p->sb.generation, generation + 2);
	pool_close(p);
	/* two behind: the state directory is an older copy */
	s.generation = generation;
	assert_int_equal(state_write(state_dir, &s), 0);
	refused(-ESTALE, "older copy");
}

static void test_older_pool(void **state)
{
	(void)state;
	run("cp -r %s %s.old", pool_dir, pool_dir);
	pool_close(must_open());
	run("rm -rf %s && mv %s.old %s", pool_dir, pool_dir, pool_dir);
	refused(-ESTALE, "this machine has seen");
}

static void test_blank_pool(void **state)
{
	(void)state;
	run("dd if=/dev/zero of=%s bs=1M count=17 conv=notrunc status=none", pool_file);
	refused(-EBADMSG, "blank");
	run("rm %s", pool_file);
	refused(-ENOENT, "mounted");
	assert_int_equal(pool_create(pool_dir, state_dir, true, false, &error), -EEXIST);
}

static void test_other_pool(void **state)
{
	char other[200];

	(void)state;
	(void)snprintf(other, sizeof(other), "%s/state2", base);
	run("mv %s %s.mine && mkdir %s", pool_dir, pool_dir, pool_dir);
	assert_int_equal(pool_create(pool_dir, other, true, false, &error), 0);
	refused(-EXDEV, "another one is mounted");
}

/* The words of a refusal are an instruction: they work as they stand. */
static void do_as_told(void)
{
	char *from = strstr(error.text, "echo ");

	assert_non_null(from);
	run("%s", from);
}

static void test_state_missing(void **state)
{
	struct pool *p = must_open();
	struct pool_domain d = make_lane(p, "db");

	(void)state;
	pool_close(p);
	run("rm %s/pool.state", state_dir);
	p = must_open();
	assert_true(strlen(p->warning) > 10);
	make_live(p, &d);
	pool_close(p);
	run("rm %s/pool.state", state_dir);
	refused(-ENOKEY, "holds records");
	run("printf nonsense > %s/pool.state", state_dir);
	refused(-ENOKEY, "damaged");
	do_as_told();
	pool_close(must_open());
}

static void test_machine(void **state)
{
	struct pool *p = must_open();
	char id[33];

	(void)state;
	uuid_text(p->sb.machine_id, id);
	pool_close(p);
	run("echo 0123456789abcdef0123456789abcdef > %s/machine-id", state_dir);
	refused(-EXDEV, "machine");
	assert_non_null(strstr(error.text, id));
	do_as_told();
	pool_close(must_open());
}

static void test_not_emulated(void **state)
{
	struct pool *p;

	(void)state;
	assert_int_equal(pool_open(&p, pool_dir, state_dir, false, false, &error), -EOPNOTSUPP);
	assert_non_null(strstr(error.text, "emulate = true"));
}

static void test_cut_off(void **state)
{
	(void)state;
	assert_int_equal(truncate(pool_file, (off_t)POOL_BYTES - 4096), 0);
	refused(-ENXIO, "cut off");
}

/* Damage of each 8 bytes of the superblock: in one copy it costs nothing, in both it is refused. */
static void test_superblock_damage(void **state)
{
	(void)state;
	for (off_t at = 0; at < 104; at += 4) {
		flip(at);
		pool_close(must_open());
		flip(POOL_SB_BYTES + at);
		pool_close(must_open());
		flip(at);
		flip(POOL_SB_BYTES + at);
		refused(at == 8 ? -EPROTONOSUPPORT : -EBADMSG, "pool");
		flip(at);
		flip(POOL_SB_BYTES + at);
	}
	flip(POOL_SB_BYTES - 1);
	flip(2 * POOL_SB_BYTES - 1);
	refused(-EBADMSG, "both copies");
}

/* A whole superblock with one field changed. */
static void edit(void (*change)(struct pool_superblock *))
{
	static struct pool_superblock sb;
	int fd = open(pool_file, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &sb, sizeof(sb), 0), sizeof(sb));
	(void)close(fd);
	change(&sb);
	sb.crc = 0;
	sb.crc = crc32c(0, &sb, sizeof(sb));
	poke(0, &sb, sizeof(sb));
	poke(POOL_SB_BYTES, &sb, sizeof(sb));
}

static void set_version(struct pool_superblock *sb)
{
	sb->version = 2;
}

static void set_incompat(struct pool_superblock *sb)
{
	sb->version = POOL_VERSION;
	sb->incompat = 4;
}

static void set_ro_compat(struct pool_superblock *sb)
{
	sb->incompat = 0;
	sb->ro_compat = 2;
}

static void set_compat(struct pool_superblock *sb)
{
	sb->ro_compat = 0;
	sb->compat = 1;
}

static void test_features(void **state)
{
	(void)state;
	edit(set_version);
	refused(-EPROTONOSUPPORT, "version 2");
	edit(set_incompat);
	refused(-EPROTONOSUPPORT, "features");
	edit(set_ro_compat);
	refused(-EPROTONOSUPPORT, "only read");
	edit(set_compat);
	pool_close(must_open());
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_create_refusals),  T(test_create_force),	     T(test_no_space),
		T(test_blocks_are_there), T(test_open_twice),	     T(test_generation),
		T(test_older_pool),	  T(test_blank_pool),	     T(test_other_pool),
		T(test_state_missing),	  T(test_machine),	     T(test_not_emulated),
		T(test_cut_off),	  T(test_superblock_damage), T(test_features),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
