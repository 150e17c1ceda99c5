/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pool directory: creation, what opening refuses (without changing a byte), catalog, lanes. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/overflow.h"
#include "pool/crc.h"
#include "pool/dir/catalog.h"
#include "pool/dir/files.h"
#include "pool/guard.h"
#include "pool/ops.h"

static char base[128], pool_dir[160], state_dir[160], pool_file[192];
static struct pool_error error;

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void run(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0)
		fail_msg("%s", command);
}

static int setup(void **state)
{
	(void)state;
	(void)snprintf(base, sizeof(base), "%s/pmemlogd-pool.XXXXXX",
		       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(base))
		return -1;
	(void)snprintf(pool_dir, sizeof(pool_dir), "%s/pool", base);
	(void)snprintf(state_dir, sizeof(state_dir), "%s/state", base);
	(void)snprintf(pool_file, sizeof(pool_file), "%s/pool", pool_dir);
	return pool_create(pool_dir, state_dir, true, false, &error);
}

static int teardown(void **state)
{
	(void)state;
	run("rm -rf %s", base);
	return 0;
}

static struct pool *must_open(void)
{
	struct pool *p;

	if (pool_open(&p, pool_dir, state_dir, true, false, &error) < 0)
		fail_msg("%s", error.text);
	return p;
}

static struct pool_domain make_lane(struct pool *p, const char *name)
{
	struct pool_domain d = { .uid = (uint32_t)getuid() };
	struct lane l;
	int fd;

	(void)snprintf(d.name, sizeof(d.name), "%s", name);
	if (pool_lane_create(p, &d, 65536, &l, &fd, &error) < 0)
		fail_msg("%s", error.text);
	pool_lane_close(&l, fd);
	return d;
}

/* One valid record into the lane, so that it holds something. */
static void make_live(struct pool *p, const struct pool_domain *d)
{
	struct record_header h = { .type = RECORD_TOUCH, .file_id = 1, .time_ns = 1 };
	struct lane l;
	int fd;

	assert_int_equal(pool_lane_open(p, d, &l, &fd, &error), 0);
	h.incarnation = l.incarnation;
	h.crc = crc32c(0, (uint8_t *)&h + 4, sizeof(h) - 4);
	memcpy(lane_at(&l, 0), &h, sizeof(h));
	pool_lane_close(&l, fd);
}

static void checksum(char ret[33])
{
	char command[400];
	FILE *f;

	(void)snprintf(command, sizeof(command),
		       "cd %s && find pool state -type f | sort | xargs md5sum | md5sum", base);
	f = popen(command, "r");
	assert_non_null(f);
	assert_int_equal(fread(ret, 1, 32, f), 32);
	ret[32] = '\0';
	(void)pclose(f);
}

/* Refused with that errno, with words, and nothing on the disk is another byte. */
static void refused(int expected, const char *word)
{
	char before[33], after[33];
	struct pool *p;

	checksum(before);
	for (int read_only = 0; read_only < 2; read_only++) {
		int r = pool_open(&p, pool_dir, state_dir, true, read_only, &error);

		/* a lock and unknown read-only features are no matter to a reader */
		if (r == 0 && read_only && (expected == -EBUSY || strcmp(word, "only read") == 0)) {
			pool_close(p);
			continue;
		}
		assert_int_equal(r, expected);
		if (!strstr(error.text, word))
			fail_msg("'%s' not in '%s'", word, error.text);
	}
	checksum(after);
	assert_string_equal(before, after);
}

static void poke(off_t offset, const void *bytes, size_t n)
{
	int fd = open(pool_file, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, offset), (ssize_t)n);
	(void)close(fd);
}

static void flip(off_t offset)
{
	int fd = open(pool_file, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, offset), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
	(void)close(fd);
}

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
static unsigned drains_left;

static void cut_copy(void *dst, const void *src, size_t n)
{
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
	if (drains_left == 0)
		_exit(0);
	drains_left--;
	real_ops->drain();
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_create_refusals), T(test_create_force),
		T(test_no_space),	 T(test_blocks_are_there),
		T(test_open_twice),	 T(test_generation),
		T(test_older_pool),	 T(test_blank_pool),
		T(test_other_pool),	 T(test_state_missing),
		T(test_machine),	 T(test_not_emulated),
		T(test_cut_off),	 T(test_superblock_damage),
		T(test_features),	 T(test_catalog_damage),
		T(test_catalog_torn),	 T(test_catalog_torn_and_damaged),
		T(test_catalog_full),	 T(test_lanes),
		T(test_orphans),	 T(test_random_damage),
		T(test_sigbus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
