/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/crc.h"

#include <string.h>

#include "env.h"
#include "pool/crc_tables.h"

#ifdef HAVE_ISAL
#include <isa-l/crc.h>
#endif

#define POLYNOMIAL 0x82f63b78u

static uint8_t buffer[70000];

/* Bit by bit: too simple to be wrong. */
static uint32_t crc_bits(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	while (n--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
	}
	return ~crc;
}

static void fill(void)
{
	uint32_t x = 1;

	for (size_t i = 0; i < sizeof(buffer); i++) {
		x = x * 1664525u + 1013904223u;
		buffer[i] = (uint8_t)(x >> 24);
	}
}

/* RFC 3720 B.4; the results are given there in byte order. */
static void rfc3720(void **state)
{
	static const uint8_t read10[48] = {
		0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
		0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
		0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0,
	};
	uint8_t b[32];

	(void)state;
	memset(b, 0, 32);
	assert_int_equal(crc32c(0, b, 32), 0x8a9136aa);
	memset(b, 0xff, 32);
	assert_int_equal(crc32c(0, b, 32), 0x62a8ab43);
	for (uint8_t i = 0; i < 32; i++)
		b[i] = i;
	assert_int_equal(crc32c(0, b, 32), 0x46dd794e);
	for (uint8_t i = 0; i < 32; i++)
		b[i] = (uint8_t)(31 - i);
	assert_int_equal(crc32c(0, b, 32), 0x113fdb5c);
	assert_int_equal(crc32c(0, read10, 48), 0xd9963a56);
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
}

static void lengths_and_alignments(void **state)
{
	(void)state;
	fill();
	for (size_t shift = 0; shift < 16; shift++)
		for (size_t n = 0; n < 2200; n += shift ? 7 : 1)
			assert_int_equal(crc32c(0x1234567, buffer + shift, n),
					 crc_bits(0x1234567, buffer + shift, n));
}

static void continues(void **state)
{
	uint32_t whole;

	(void)state;
	fill();
	whole = crc32c(0, buffer, 9000);
	for (size_t cut = 0; cut < 9000; cut += 61)
		assert_int_equal(crc32c(crc32c(0, buffer, cut), buffer + cut, 9000 - cut), whole);
}

static void as_isal(void **state)
{
	(void)state;
#ifdef HAVE_ISAL
	fill();
	for (size_t n = 0; n < 65536; n = n < 5000 ? n + 1 : n + 977)
		for (size_t shift = 0; shift < 64; shift += n < 5000 ? 21 : 1)
			assert_int_equal(crc32c(0, buffer + shift, n),
					 ~crc32_iscsi(buffer + shift, (int)n, 0xffffffffu));
#else
	print_message("SKIP: no ISA-L to compare with\n");
	skip();
#endif
}

/* The constants are what the polynomial says. */
static void constants(void **state)
{
	uint32_t x = 0x80000000u; /* x^0 */

	(void)state;
	for (uint8_t i = 0; i < 255; i++)
		assert_int_equal(crc32c_byte[i], ~crc_bits(~0u, &i, 1));
	for (unsigned power = 0; power <= 64 * 255 - 33; power++) {
		if ((power + 33) % 64 == 0)
			assert_int_equal(crc32c_shift[(power + 33) / 64], x);
		x = x >> 1 ^ (x & 1 ? POLYNOMIAL : 0);
	}
}

/* All of it for each way that this processor has; the last is the one that is picked. */
static void every_way(void **state)
{
	unsigned i;

	for (i = 0; crc32c_use(i); i++) {
		rfc3720(state);
		lengths_and_alignments(state);
		continues(state);
#ifdef HAVE_ISAL
		as_isal(state);
#endif
	}
	print_message("%u ways\n", i);
	assert_true(i >= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rfc3720),   cmocka_unit_test(lengths_and_alignments),
		cmocka_unit_test(continues), cmocka_unit_test(as_isal),
		cmocka_unit_test(constants), cmocka_unit_test(every_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
