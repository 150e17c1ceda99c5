/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/record.h"

#include <errno.h>
#include <string.h>

#include "env.h"
#include "pool/append.h"
#include "pool/crc.h"

#define RING 65536u

static struct env e;

/* Stores a header at its position with a CRC that is right, whatever else it says. */
static void plant(const struct record_header *h)
{
	struct record_header copy = *h;
	uint8_t *p = lane_at(&e.s.lane, h->position);

	copy.crc = crc32c(0, (uint8_t *)&copy + 4, 60);
	if (copy.type != RECORD_PAD && copy.length <= RING)
		copy.crc = crc32c(copy.crc, p + 64, copy.length);
	memcpy(p, &copy, sizeof(copy));
}

static struct record_header plain(void)
{
	return (struct record_header){ .type = RECORD_WRITE,
				       .flags = RECORD_INLINE,
				       .incarnation = ENV_INCARNATION,
				       .position = 640,
				       .file_id = 3,
				       .offset = 1000,
				       .length = 100,
				       .drained = 640 };
}

static int check(const struct record_header *h)
{
	struct record_header got;
	int r;

	plant(h);
	r = record_check(&e.s.lane, h->position, 0, &got);
	if (r == 0)
		assert_memory_equal((uint8_t *)&got + 4, (const uint8_t *)h + 4, 60);
	return r;
}

#define BAD(change)                                    \
	do {                                           \
		struct record_header h = plain();      \
		change;                                \
		assert_int_equal(check(&h), -EBADMSG); \
	} while (0)
#define GOOD(change)                              \
	do {                                      \
		struct record_header h = plain(); \
		change;                           \
		assert_int_equal(check(&h), 0);   \
	} while (0)

static void bounds(void **state)
{
	(void)state;
	env_make(&e, RING);
	GOOD((void)0);
	for (uint16_t type = 0; type < 9; type++) {
		struct record_header h = plain();

		h.type = type;
		assert_int_equal(check(&h), type == RECORD_WRITE ? 0 : -EBADMSG);
		h.length = 0;
		h.offset = 0;
		assert_int_equal(check(&h),
				 type >= 1 && type <= 5 && type != RECORD_PAD ? 0 : -EBADMSG);
		/* whole lines of a block, behind a map */
		h.length = 16 + 64;
		assert_int_equal(check(&h),
				 type == RECORD_WRITE || type == RECORD_LINES ? 0 : -EBADMSG);
	}
#define AS_LINES(at, n) (h.type = RECORD_LINES, h.offset = (at), h.length = (n))
	GOOD(AS_LINES(4096, 16));
	GOOD(AS_LINES(INT64_MAX - 8191 - 64, 16));
	BAD(AS_LINES(INT64_MAX - 8191, 16));
	BAD(AS_LINES(4095, 16));
	BAD(AS_LINES(4096, 15));
	BAD(AS_LINES(4096, 16 + 63));
	GOOD(AS_LINES(4096, 16 + 127 * 64));
	BAD(AS_LINES(4096, 16 + 129 * 64));
	BAD(h.flags = 2);
	BAD(h.incarnation++);
	BAD(h.drained = 704);
	GOOD(h.drained = 0);
	GOOD(h.length = RING / 8);
	BAD(h.length = RING / 8 + 1);
	BAD(h.length = UINT32_MAX);
	GOOD(h.offset = (uint64_t)INT64_MAX - 100);
	BAD(h.offset = (uint64_t)INT64_MAX - 99);
	BAD(h.offset = UINT64_MAX);
	/* a FENCE speaks of what came before it */
	GOOD(h.type = RECORD_FENCE; h.length = 0; h.offset = 640);
	BAD(h.type = RECORD_FENCE; h.length = 0; h.offset = 704);
	/* a record does not wrap; a PAD ends where the ring does */
	GOOD(h.position = RING - 192; h.drained = 0; h.length = 128);
	BAD(h.position = RING - 192; h.drained = 0; h.length = 129);
	GOOD(h.type = RECORD_PAD; h.file_id = 0; h.position = RING - 192; h.length = 128);
	GOOD(h.type = RECORD_PAD; h.file_id = 0; h.position = RING - 64; h.length = 0);
	BAD(h.type = RECORD_PAD; h.file_id = 0; h.position = RING - 192; h.length = 64);
	BAD(h.type = RECORD_PAD; h.file_id = 0; h.position = RING - 192; h.length = 192);
	BAD(h.type = RECORD_PAD; h.file_id = 1; h.position = RING - 192; h.length = 128);
	env_free(&e);
}

static void window(void **state)
{
	struct record_header h = plain(), got;

	(void)state;
	env_make(&e, RING);
	plant(&h);
	assert_int_equal(record_check(&e.s.lane, 640, 640, &got), 0);
	assert_int_equal(record_check(&e.s.lane, 640, 704, &got), -EBADMSG); /* below the tail */
	assert_int_equal(record_check(&e.s.lane, 641, 0, &got), -EBADMSG);
	/* stands at the right place of the wrong lap */
	assert_int_equal(record_check(&e.s.lane, 640 + RING, RING, &got), -EBADMSG);
	h.position = h.drained = 640 + RING;
	plant(&h);
	assert_int_equal(record_check(&e.s.lane, 640 + RING, RING, &got), 0);
	assert_int_equal(record_check(&e.s.lane, 640 + RING, 640, &got),
			 -EBADMSG); /* tail + ring */
	/* begins before tail + ring and ends behind it */
	assert_int_equal(record_check(&e.s.lane, 640 + RING, 704, &got), -EBADMSG);
	assert_int_equal(record_check(&e.s.lane, 640 + RING, 640 + 192, &got), 0);
	env_free(&e);
}

/* One flipped bit anywhere in header or payload. */
static void flipped_bits(void **state)
{
	struct record_header got;
	uint64_t at;
	uint8_t *p;

	(void)state;
	env_make(&e, RING);
	assert_int_equal(env_write(&e, NULL, 77, 100, &at), 0);
	p = lane_at(&e.s.lane, at);
	for (unsigned bit = 0; bit < 8 * (64 + 128); bit++) {
		p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
		/* the zeros after the payload are not covered */
		assert_int_equal(record_check(&e.s.lane, at, 0, &got),
				 bit < 8 * (64 + 100) ? -EBADMSG : 0);
		p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
	}
	env_free(&e);
}

static void payload(void **state)
{
	struct record_header h;
	uint8_t out[300];
	uint64_t at;

	(void)state;
	env_make(&e, RING);
	assert_int_equal(env_write(&e, NULL, 500, 300, &at), 0);
	assert_int_equal(record_check(&e.s.lane, at, 0, &h), 0);
	assert_int_equal(h.length, 300);
	assert_int_equal(record_payload(&e.s.lane, &h, out), 0);
	for (uint32_t i = 0; i < 300; i++)
		assert_int_equal(out[i], env_byte(500, i));
	/* overwritten after the check */
	lane_at(&e.s.lane, at)[64 + 299] ^= 1;
	assert_int_equal(record_payload(&e.s.lane, &h, out), -EBADMSG);
	h.type = RECORD_PAD;
	assert_int_equal(record_payload(&e.s.lane, &h, out), -EBADMSG);
	env_free(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounds),
		cmocka_unit_test(window),
		cmocka_unit_test(flipped_bits),
		cmocka_unit_test(payload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
