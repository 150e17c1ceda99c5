/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "rewriting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/overflow.h"
#include "pool/append.h"
#include "pool/heal.h"
#include "pool/image.h"
#include "pool/record.h"
#include "pool/space.h"
#include "pool/walk.h"

struct rewriting t;

void to_disk(void)
{
	struct stat st;

	memset(t.disk, 0, sizeof(t.disk));
	assert_int_equal(fstat(t.r.fd, &st), 0);
	assert_int_equal(pread(t.r.fd, t.disk, sizeof(t.disk), 0), st.st_size);
	t.disk_size = (uint64_t)st.st_size;
}

static void power_fails(void);

static ssize_t io_pwritev(int fd, const struct iovec *iov, int n, int64_t offset, int flags)
{
	struct iovec first = iov[0];
	ssize_t done;

	if (t.fail) {
		done = t.fail;
		t.fail = 0;
		return done;
	}
	if (t.shorten) {
		first.iov_len = min_of(first.iov_len, t.shorten);
		t.shorten = 0;
		return session_sys_io.pwritev(fd, &first, 1, offset, flags);
	}
	if (t.disturb)
		*t.disturb ^= 0xff;
	t.disturb = NULL;
	done = session_sys_io.pwritev(fd, iov, n, offset, flags);
	if (flags)
		to_disk();
	if (t.written_back)
		power_fails();
	if (t.step_begins)
		assert_int_equal(space_mark(&t.e.s, &t.e.who, &t.step), 0);
	return done;
}

static int io_fsync(int fd)
{
	(void)fd;
	to_disk();
	return 0;
}

int set_up(void **state)
{
	static struct session_io io;
	struct ctl_file *f;
	struct stat st;

	(void)state;
	memset(&t, 0, sizeof(t));
	env_make(&t.e, RING);
	io = session_sys_io;
	io.pwritev = io_pwritev;
	io.fsync = io.fdatasync = io_fsync;
	t.e.s.io = &io;
	snprintf(t.name, sizeof(t.name), "/tmp/pmemlogd-image-XXXXXX");
	t.r.fd = mkstemp(t.name);
	assert_true(t.r.fd >= 0);
	assert_int_equal(ftruncate(t.r.fd, FILE_MAX / 2), 0);
	assert_int_equal(fstat(t.r.fd, &st), 0);
	f = env_file(&t.e, 3);
	f->ino = st.st_ino;
	f->dev_major = major(st.st_dev);
	f->dev_minor = minor(st.st_dev);
	t.r.f = f;
	t.r.id = f->id;
	t.model_size = t.disk_size = FILE_MAX / 2;
	return 0;
}

int tear_down(void **state)
{
	(void)state;
	close(t.r.fd);
	unlink(t.name);
	env_free(&t.e);
	return 0;
}

/* ---- what recovery would make of it ---- */

static void apply(uint8_t *to, uint64_t *size, const struct record_header *h)
{
	uint8_t *payload = malloc(h->length + 1u);
	struct lines_run run = { 0 };

	assert_non_null(payload);
	assert_int_equal(record_payload(&t.e.s.lane, h, payload), 0);
	if (h->type == RECORD_WRITE) {
		memcpy(to + h->offset, payload, h->length);
		*size = max_of(*size, h->offset + h->length);
	}
	while (h->type == RECORD_LINES && lines_next(payload, h->length, &run) == 1) {
		memcpy(to + h->offset + run.offset, run.bytes, run.length);
		*size = max_of(*size, h->offset + run.offset + run.length);
	}
	free(payload);
}

static unsigned recovered(uint8_t got[FILE_MAX], uint64_t *ret_size)
{
	struct lane_tail_found tail[2];
	struct record_header h;
	unsigned lines = 0;
	struct walk w;

	*ret_size = t.disk_size;
	memcpy(got, t.disk, FILE_MAX);
	assert_true(lane_tail_read(&t.e.s.lane, tail) >= 1);
	walk_begin(&w, &t.e.s.lane, tail[0].tail, tail[0].chain, UINT64_MAX);
	while (walk_next(&w, &h) == WALK_RECORD) {
		if (h.file_id == t.r.id && h.position >= t.r.f->fence)
			apply(got, ret_size, &h);
		lines += h.type == RECORD_LINES;
	}
	assert_int_equal(w.position, control_head(&t.e.s.ctl).head);
	return lines;
}

/* A program that writes whole sectors finds each old or new, as it would on a disk. */
static void power_fails(void)
{
	static uint8_t got[FILE_MAX];
	uint64_t size;

	to_disk();
	(void)recovered(got, &size);
	for (uint32_t at = 0; at < FILE_MAX; at += SECTOR)
		assert_true(memcmp(got + at, t.model + at, SECTOR) == 0 ||
			    memcmp(got + at, t.disk + at, SECTOR) == 0);
}

unsigned check(void)
{
	static uint8_t got[FILE_MAX];
	uint64_t size;
	unsigned lines = recovered(got, &size);

	assert_int_equal(size, t.model_size);
	assert_memory_equal(got, t.model, t.model_size);
	return lines;
}

/* ---- what is done ---- */

ssize_t put(const uint8_t *bytes, uint64_t offset, size_t n)
{
	struct iovec iov = { (void *)(uintptr_t)bytes, n };

	return file_write(&t.e.s, &t.e.who, &t.r, &iov, 1, (int64_t)offset, 0);
}

void acknowledged(const uint8_t *bytes, uint64_t offset, size_t n)
{
	memcpy(t.model + offset, bytes, n);
	t.model_size = max_of(t.model_size, offset + n);
}

void write_block(uint8_t *bytes, uint64_t offset, size_t n)
{
	assert_int_equal(put(bytes, offset, n), n);
	acknowledged(bytes, offset, n);
}

void destage(void)
{
	struct ctl_cell cell;

	assert_int_equal(space_mark(&t.e.s, &t.e.who, &cell), 0);
	to_disk();
	env_trim(&t.e, cell.head, cell.chain);
}

static long truncate_to(void *size)
{
	return ftruncate(t.r.fd, *(off_t *)size) < 0 ? -errno : 0;
}

void cut(uint64_t size)
{
	off_t to = (off_t)size;

	assert_int_equal(file_fenced(&t.e.s, &t.e.who, &t.r, truncate_to, &to), 0);
	if (size < t.model_size)
		memset(t.model + size, 0, t.model_size - size);
	t.model_size = size;
}

void older_write(const uint8_t *bytes, uint64_t offset, size_t n)
{
	struct iovec iov = { (void *)(uintptr_t)bytes, n };
	struct append_request r = { .type = RECORD_WRITE,
				    .flags = RECORD_INLINE,
				    .offset = offset,
				    .iov = &iov,
				    .iovcnt = 1,
				    .length = (uint32_t)n };

	assert_int_equal(file_lock(&t.e.s, &t.e.who, &t.r), 0);
	t.r.f->write_offset = offset;
	t.r.f->write_length = (uint32_t)n;
	assert_int_equal(pwrite(t.r.fd, bytes, n, (off_t)offset), n);
	assert_int_equal(append_record(&t.e.s, &t.e.who, t.r.f, 0, &r, NULL), APPEND_OK);
	t.r.f->write_length = 0;
	file_unlock(&t.e.s, &t.r);
	acknowledged(bytes, offset, n);
}

void older_truncate(uint64_t size)
{
	const struct append_request fence = { .type = RECORD_FENCE,
					      .offset = control_head(&t.e.s.ctl).head };

	assert_int_equal(file_lock(&t.e.s, &t.e.who, &t.r), 0);
	t.e.s.ctl.hot->rule_f++;
	if (space_file_live(&t.e.s, t.r.f))
		assert_int_equal(append_record(&t.e.s, &t.e.who, t.r.f, 0, &fence, NULL), 0);
	assert_int_equal(ftruncate(t.r.fd, (off_t)size), 0);
	to_disk();
	file_unlock(&t.e.s, &t.r);
	if (size < t.model_size)
		memset(t.model + size, 0, t.model_size - size);
	t.model_size = size;
}
