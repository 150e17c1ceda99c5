/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Changed lines only: whatever happens to a file, what recovery would make of it (the disk, then the live
 * records) is what was acknowledged. `disk` is what the last sync made durable.
 */
#include "pool/image.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "env.h"
#include "pool/append.h"
#include "pool/file.h"
#include "pool/heal.h"
#include "pool/record.h"
#include "pool/space.h"
#include "pool/walk.h"

#define RING	  (1u << 20)
#define FILE_MAX  65536u
#define BLOCK	  4096u
#define SECTOR	  512u
#define NAME_SIZE 64

static struct {
	struct env e;
	struct file_ref r;
	char name[NAME_SIZE];
	uint8_t disk[FILE_MAX];	 /* as after a power cut */
	uint8_t model[FILE_MAX]; /* as acknowledged */
	uint64_t disk_size, model_size;
	/* one-time faults of the next pwritev */
	int fail;	  /* negative errno */
	size_t shorten;	  /* bytes to write instead of all */
	uint8_t *disturb; /* changed before the real call: the caller races with itself */
	bool written_back; /* the bytes reach the disk before their record is appended, and the power fails */
	struct ctl_cell step;
	bool step_begins; /* the daemon begins a step between the two */
} t;

static void to_disk(void)
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

static int set_up(void **state)
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

static int tear_down(void **state)
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

static unsigned check(void)
{
	static uint8_t got[FILE_MAX];
	uint64_t size;
	unsigned lines = recovered(got, &size);

	assert_int_equal(size, t.model_size);
	assert_memory_equal(got, t.model, t.model_size);
	return lines;
}

/* ---- what is done ---- */

static ssize_t put(const uint8_t *bytes, uint64_t offset, size_t n)
{
	struct iovec iov = { (void *)(uintptr_t)bytes, n };

	return file_write(&t.e.s, &t.e.who, &t.r, &iov, 1, (int64_t)offset, 0);
}

static void acknowledged(const uint8_t *bytes, uint64_t offset, size_t n)
{
	memcpy(t.model + offset, bytes, n);
	t.model_size = max_of(t.model_size, offset + n);
}

static void write_block(uint8_t *bytes, uint64_t offset, size_t n)
{
	assert_int_equal(put(bytes, offset, n), n);
	acknowledged(bytes, offset, n);
}

static void destage(void)
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

static void cut(uint64_t size)
{
	off_t to = (off_t)size;

	assert_int_equal(file_fenced(&t.e.s, &t.e.who, &t.r, truncate_to, &to), 0);
	if (size < t.model_size)
		memset(t.model + size, 0, t.model_size - size);
	t.model_size = size;
}

/* As the version before this one writes: its record, and what it leaves in the entry. */
static void older_write(const uint8_t *bytes, uint64_t offset, size_t n)
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

static void older_truncate(uint64_t size)
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

/* ---- tests ---- */

static void only_what_changed(void **state)
{
	static uint8_t b[2 * BLOCK];
	uint64_t before, bytes;

	(void)state;
	memset(b, 7, sizeof(b));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK); /* seen to rewrite: from now on there is an image */
	b[100] = 1;
	b[BLOCK - 1] = 2;
	before = t.e.s.ctl.hot->bytes;
	write_block(b, 0, BLOCK);
	bytes = t.e.s.ctl.hot->bytes - before;
	assert_int_equal(bytes, LINES_MAP_BYTES + 2 * LINES_LINE);
	assert_int_equal(t.r.f->saved, BLOCK - bytes);
	assert_int_equal(check(), 1);
	/* a part of the block; nothing new in it */
	write_block(b + 512, 512, 1024);
	assert_int_equal(check(), 2);
	/* most of it new: a WRITE, and the image goes on */
	memset(b, 9, sizeof(b));
	write_block(b, 0, BLOCK);
	assert_int_equal(check(), 2);
	b[0]++;
	write_block(b, 0, BLOCK);
	assert_int_equal(check(), 3);
	/* two blocks, the second one new: the image is the end of the write */
	write_block(b, 0, 2 * BLOCK);
	b[BLOCK]++;
	write_block(b + BLOCK, BLOCK, BLOCK);
	assert_int_equal(check(), 4);
}

static void none_for_appends(void **state)
{
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	for (unsigned i = 0; i < 8; i++)
		write_block(b, (uint64_t)i * BLOCK, BLOCK);
	assert_int_equal(check(), 0);
	assert_int_equal(t.e.s.ctl.images[3].valid, 0);
	for (unsigned i = 0; i < 8; i++)
		write_block(b, 100, 817); /* no whole lines */
	assert_int_equal(check(), 0);
}

/* The caller changes its memory while we write: the file, the image and the record agree all the same. */
static void caller_races_with_itself(void **state)
{
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK);
	for (unsigned i = 0; i < 4; i++) {
		static uint8_t was[BLOCK];

		b[64]++;
		memcpy(was, b, sizeof(b));
		t.disturb = b + 2000;
		assert_int_equal(put(b, 0, BLOCK), BLOCK);
		acknowledged(was, 0, BLOCK);
		destage();
		(void)check();
	}
}

static void failed_and_short(void **state)
{
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK);
	b[0]++;
	t.fail = -ENOSPC;
	assert_int_equal(put(b, 0, BLOCK), -ENOSPC);
	write_block(b, 0, BLOCK); /* the image already had these bytes */
	(void)check();
	b[3000]++;
	b[10]++;
	t.shorten = 512;
	assert_int_equal(put(b, 0, BLOCK), 512);
	acknowledged(b, 0, 512);
	(void)check();
	write_block(b, 0, BLOCK);
	(void)check();
}

static void older_processes(void **state)
{
	static uint8_t b[BLOCK], old[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	memset(old, 8, sizeof(old));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK);
	older_write(old, 64, 128);
	destage();
	write_block(b, 0, BLOCK);
	assert_int_equal(check(), 0);
	write_block(b, 0, BLOCK);
	assert_int_equal(check(), 1);
	older_truncate(100);
	older_truncate(BLOCK);
	write_block(b, 0, BLOCK);
	(void)check();
}

/* A control file without images, as an older daemon makes it. */
static void without_images(void **state)
{
	struct ctl_image *images = t.e.s.ctl.images;
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	t.e.s.ctl.images = NULL;
	for (unsigned i = 0; i < 4; i++)
		write_block(b, 0, BLOCK);
	assert_int_equal(check(), 0);
	t.e.s.ctl.images = images;
}

/* Somebody without the library cuts the file beside us: what was cut off is not there to be built on. */
static void foreign_truncate(void **state)
{
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK);
	destage();
	assert_int_equal(ftruncate(t.r.fd, BLOCK / 2), 0);
	to_disk();
	t.model_size = BLOCK / 2;
	b[0]++;
	write_block(b, 0, BLOCK);
	assert_int_equal(check(), 0);
}

/* Another file in the same entry. */
static void new_entry(void **state)
{
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK);
	destage();
	memset(t.model, 0, sizeof(t.model));
	memset(t.disk, 0, sizeof(t.disk));
	t.r.id = t.r.f->id = 99;
	write_block(b, 0, BLOCK);
	assert_int_equal(check(), 0);
}

static sigjmp_buf out;

static void leave(int signal)
{
	siglongjmp(out, signal);
}

/* Left in the middle of taking the caller's bytes over, by a signal handler that jumps: some of them are in
 * the image and in nothing else. */
static void left_half_way(void **state)
{
	struct sigaction act = { .sa_handler = leave }, old;
	uint8_t *b;

	(void)state;
	b = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(b != MAP_FAILED);
	write_block(b, 0, 2 * BLOCK);
	write_block(b, 0, 2 * BLOCK);
	destage();
	b[10]++;
	assert_int_equal(mprotect(b + BLOCK, BLOCK, PROT_NONE), 0);
	assert_int_equal(sigaction(SIGSEGV, &act, &old), 0);
	if (sigsetjmp(out, 1) == 0) {
		(void)put(b, 0, 2 * BLOCK);
		fail_msg("read what cannot be read");
	}
	assert_int_equal(sigaction(SIGSEGV, &old, NULL), 0);
	assert_int_equal(mprotect(b + BLOCK, BLOCK, PROT_READ | PROT_WRITE), 0);
	t.e.who.stale_self = 1; /* as the library tells after such a jump */
	write_block(b, 0, 2 * BLOCK);
	(void)check();
	t.e.who.stale_self = 0;
	munmap(b, 2 * BLOCK);
}

static unsigned any(unsigned n)
{
	return (unsigned)rand() % n;
}

static void step(uint8_t *b)
{
	uint64_t block = any(3) ? 2 : any(8);
	size_t n = any(4) ? BLOCK : (size_t)64 * (1 + any(192));

	for (unsigned i = any(4); i > 0; i--)
		b[any(3 * BLOCK)]++;
	switch (any(24)) {
	case 0:
		cut(64 * (BLOCK / 64 + any(BLOCK)) % FILE_MAX / 2 + 1);
		break;
	case 1:
		destage();
		break;
	case 2:
		older_write(b, block * BLOCK, n);
		break;
	case 3:
		older_truncate(BLOCK + any(8) * BLOCK);
		break;
	case 4:
		assert_int_equal(file_enter_bypass(&t.e.s, &t.e.who, &t.r, BYPASS_HOLD), 0);
		t.r.asked_flags = O_DSYNC;
		write_block(b, block * BLOCK, n);
		t.r.asked_flags = 0;
		destage();
		file_leave_bypass_locked(&t.e.s, &t.r);
		break;
	case 5:
		assert_int_equal(file_lock(&t.e.s, &t.e.who, &t.r), 0);
		assert_int_equal(heal_locked(&t.e.s, &t.e.who, &t.r), 0);
		file_unlock(&t.e.s, &t.r);
		break;
	case 6:
		t.fail = -ENOSPC;
		assert_int_equal(put(b, block * BLOCK, n), -ENOSPC);
		break;
	case 7:
		t.shorten = 64 * (1 + any(8));
		if (t.shorten > n)
			t.shorten = n;
		acknowledged(b, block * BLOCK, t.shorten);
		assert_true(put(b, block * BLOCK, n) > 0);
		break;
	case 8:
		write_block(b, block * BLOCK + any(64), 1 + any(2000));
		break;
	default:
		write_block(b, block * BLOCK, n);
	}
}

static void anything(void **state)
{
	static uint8_t b[3 * BLOCK];
	unsigned lines = 0;

	(void)state;
	for (unsigned seed = 1; seed <= 20; seed++) {
		srand(seed);
		for (unsigned i = 0; i < 400; i++) {
			step(b);
			lines += check();
			if (control_head(&t.e.s.ctl).head - t.e.s.ctl.hot->tail > RING / 4)
				destage();
		}
	}
	assert_true(lines > 1000);
}

/* A block that is written back before its record is there, over older lines: the old block or the new one. */
static void whole_sectors(void **state)
{
	static uint8_t b[2 * BLOCK];
	unsigned lines = 0;

	(void)state;
	t.written_back = true;
	srand(1);
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t first = any(2 * BLOCK / SECTOR),
			 count = 1 + any(2 * BLOCK / SECTOR - first);

		for (unsigned n = any(4); n > 0; n--)
			b[first * SECTOR + any(count * SECTOR)]++;
		if (any(3))
			first = 0, count = 8;
		write_block(b + first * SECTOR, first * SECTOR, count * SECTOR);
		lines += check();
		if (any(6) == 0)
			destage();
	}
	assert_true(lines > 300);
}

/* Its block may be trimmed by a step that begins between the write and its record. */
static void step_begins_inside(void **state)
{
	static uint8_t b[BLOCK];

	(void)state;
	memset(b, 7, sizeof(b));
	write_block(b, 0, BLOCK);
	write_block(b, 0, BLOCK);
	b[100]++;
	t.step_begins = true;
	write_block(b, 0, BLOCK);
	t.step_begins = false;
	assert_int_equal(check(), 0);
	to_disk();
	env_trim(&t.e, t.step.head, t.step.chain);
	t.written_back = true;
	for (unsigned i = 0; i < 4; i++) {
		b[200 * i]++;
		write_block(b, 0, BLOCK);
		assert_int_equal(check(), i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_what_changed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(none_for_appends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(caller_races_with_itself, set_up, tear_down),
		cmocka_unit_test_setup_teardown(failed_and_short, set_up, tear_down),
		cmocka_unit_test_setup_teardown(older_processes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_images, set_up, tear_down),
		cmocka_unit_test_setup_teardown(foreign_truncate, set_up, tear_down),
		cmocka_unit_test_setup_teardown(new_entry, set_up, tear_down),
		cmocka_unit_test_setup_teardown(left_half_way, set_up, tear_down),
		cmocka_unit_test_setup_teardown(whole_sectors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(step_begins_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(anything, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
