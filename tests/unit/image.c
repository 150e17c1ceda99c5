/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Changed lines only: whatever happens to a file, what recovery would make of it is what was acknowledged. */
#include "pool/image.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/heal.h"
#include "pool/space.h"
#include "rewriting.h"

/* Seen to rewrite it: from now on there is an image. */
static void write_twice(uint8_t *b, size_t n)
{
	memset(b, 7, n);
	write_block(b, 0, n);
	write_block(b, 0, n);
}

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
	write_twice(b, BLOCK);
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
	write_twice(b, BLOCK);
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
	/* no step in between: its mark alone would end the image */
	write_twice(b, BLOCK);
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
	write_twice(b, BLOCK);
	destage();
	memset(t.model, 0, sizeof(t.model));
	memset(t.disk, 0, sizeof(t.disk));
	t.r.id = t.r.f->id = 99;
	/* as if no step had come in between: the id alone must tell */
	t.e.s.ctl.images[3].rule_f = t.e.s.ctl.hot->rule_f;
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
	/* no step in between: its mark alone would end the image */
	write_block(b, 0, 2 * BLOCK);
	write_block(b, 0, 2 * BLOCK);
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
	write_twice(b, BLOCK);
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
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(only_what_changed), CASE(none_for_appends),   CASE(caller_races_with_itself),
		CASE(failed_and_short),	 CASE(older_processes),	   CASE(without_images),
		CASE(foreign_truncate),	 CASE(new_entry),	   CASE(left_half_way),
		CASE(whole_sectors),	 CASE(step_begins_inside), CASE(anything),
	};

	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
