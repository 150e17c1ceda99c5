/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/recover/poolenv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/crc.h"

char base[128], pool_dir[160], state_dir[160], pool_file[192];
struct pool_error error;

void run(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0)
		fail_msg("%s", command);
}

int setup(void **state)
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

int teardown(void **state)
{
	(void)state;
	run("rm -rf %s", base);
	return 0;
}

struct pool *must_open(void)
{
	struct pool *p;

	if (pool_open(&p, pool_dir, state_dir, true, false, &error) < 0)
		fail_msg("%s", error.text);
	return p;
}

struct pool_domain make_lane(struct pool *p, const char *name)
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
void make_live(struct pool *p, const struct pool_domain *d)
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
void refused(int expected, const char *word)
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

void poke(off_t offset, const void *bytes, size_t n)
{
	int fd = open(pool_file, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, offset), (ssize_t)n);
	(void)close(fd);
}

void flip(off_t offset)
{
	int fd = open(pool_file, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, offset), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
	(void)close(fd);
}
