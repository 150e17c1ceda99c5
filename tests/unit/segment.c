/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A segment of a native log: each flipped bit and each cut is seen, and nothing behind it is given out. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "pool/crc.h"
#include "pool/segment.h"

#define FRAMES 9u
#define FIRST  1000u /* LSN */

static uint8_t image[SEGMENT_HEADER_BYTES + FRAMES * (SEGMENT_FRAME_BYTES + 16)];
static uint32_t end_of[FRAMES + 1]; /* where a frame begins, and the end */
static int fd;

/* Payloads of 1 to 9 bytes: every length of padding. */
static void make(void)
{
	struct segment_header h = { .version = SEGMENT_VERSION, .lsn = FIRST, .uid = 7 };
	uint64_t lsn = FIRST;
	uint32_t at = sizeof(h);

	memset(image, 0, sizeof(image));
	memcpy(h.magic, SEGMENT_MAGIC, sizeof(h.magic));
	memcpy(h.log, "0123456789abcdef", sizeof(h.log));
	(void)strcpy(h.name, "name");
	h.crc = crc32c(0, &h, sizeof(h));
	memcpy(image, &h, sizeof(h));
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct segment_frame f = { .length = i + 1, .lsn = lsn, .time_ns = i };
		uint8_t payload[16] = { 0 };

		memset(payload, (int)(i + 1), i + 1);
		memcpy(&f.log, h.log, sizeof(f.log));
		segment_seal(&f, payload);
		end_of[i] = at;
		memcpy(image + at, &f, sizeof(f));
		memcpy(image + at + sizeof(f), payload, i + 1);
		at += (uint32_t)segment_frame_bytes(i + 1);
		lsn += i + 1;
	}
	end_of[FRAMES] = at;
}

static void write_image(uint32_t n)
{
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, image, n, 0), n);
}

/* How many frames are given out; *ret: what ends it. -EBADMSG at the beginning counts as none. */
static uint32_t read_all(int *ret)
{
	struct segment_reader r;
	struct segment_frame f;
	uint32_t n = 0;

	*ret = segment_begin(&r, fd, FIRST);
	if (*ret < 0)
		return 0;
	while ((*ret = segment_next(&r, &f)) == 1) {
		assert_int_equal(f.length, n + 1);
		for (uint32_t i = 0; i < f.length; i++)
			assert_int_equal(r.payload[i], n + 1);
		n++;
	}
	segment_end(&r);
	return n;
}

static int setup(void **state)
{
	(void)state;
	fd = memfd_create("segment", MFD_CLOEXEC);
	make();
	return fd < 0;
}

static int teardown(void **state)
{
	(void)state;
	return close(fd);
}

static uint32_t frame_of(uint32_t at)
{
	uint32_t i = 0;

	while (i < FRAMES && at >= end_of[i + 1])
		i++;
	return i;
}

static void whole(void **state)
{
	int r;

	(void)state;
	write_image(end_of[FRAMES]);
	assert_int_equal(read_all(&r), FRAMES);
	assert_int_equal(r, 0);
}

static void each_bit(void **state)
{
	(void)state;
	for (uint32_t at = 0; at < end_of[FRAMES]; at++)
		for (unsigned bit = 0; bit < 8; bit++) {
			uint32_t n;
			int r;

			image[at] ^= (uint8_t)(1u << bit);
			write_image(end_of[FRAMES]);
			n = read_all(&r);
			image[at] ^= (uint8_t)(1u << bit);
			assert_int_equal(r, -EBADMSG);
			assert_int_equal(n, at < SEGMENT_HEADER_BYTES ? 0 : frame_of(at));
		}
}

static void each_cut(void **state)
{
	(void)state;
	for (uint32_t n = 0; n < end_of[FRAMES]; n++) {
		uint32_t got, whole_frames = n < SEGMENT_HEADER_BYTES ? 0 : frame_of(n);
		int r;

		write_image(n);
		got = read_all(&r);
		assert_int_equal(got, whole_frames);
		/* Between two frames it is an end. */
		assert_int_equal(
			r, n >= SEGMENT_HEADER_BYTES && n == end_of[whole_frames] ? 0 : -EBADMSG);
	}
}

/* Of another log, or another place in this one. */
static void not_that_one(void **state)
{
	struct segment_reader r;

	(void)state;
	write_image(end_of[FRAMES]);
	assert_int_equal(segment_begin(&r, fd, FIRST + 1), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(whole, setup, teardown),
		cmocka_unit_test_setup_teardown(each_bit, setup, teardown),
		cmocka_unit_test_setup_teardown(each_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(not_that_one, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
