/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compares abi/lane.h with pmemlogd-lane(5), both ways: no row is missing on either side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "abi/lane.h"
#include "base/overflow.h"

struct row {
	const char *section;
	size_t offset;
	const char *type;
	const char *field;
};

#define HEADER(part, field, type)                                                       \
	{                                                                               \
		"Lane header", offsetof(struct lane_header, part.field), (type), #field \
	}
#define RECORD(field, type)                                                     \
	{                                                                       \
		"Record", offsetof(struct record_header, field), (type), #field \
	}

static const struct row rows[] = {
	HEADER(identity, magic, "u8[8]"),
	HEADER(identity, lane, "u32"),
	HEADER(identity, crc, "u32"),
	HEADER(identity, ring_size, "u64"),
	HEADER(identity, incarnation, "u64"),
	HEADER(identity, reserved, "u8[32]"),
	HEADER(tail, tail, "u64[2]"),
	HEADER(tail, chain, "u32[2]"),
	HEADER(tail, reserved, "u8[40]"),
	HEADER(beat, time_ns, "u64"),
	HEADER(beat, head, "u64"),
	HEADER(beat, time_check, "u64"),
	HEADER(beat, reserved, "u8[40]"),
	{ "Lane header", offsetof(struct lane_header, copy), "u8[64]", "copy" },
	RECORD(crc, "u32"),
	RECORD(type, "u16"),
	RECORD(flags, "u16"),
	RECORD(incarnation, "u64"),
	RECORD(position, "u64"),
	RECORD(file_id, "u64"),
	RECORD(offset, "u64"),
	RECORD(length, "u32"),
	RECORD(chain, "u32"),
	RECORD(time_ns, "u64"),
	RECORD(drained, "u64"),
};

static const struct {
	unsigned number;
	const char *name;
} types[] = {
	{ RECORD_WRITE, "WRITE" }, { RECORD_PAD, "PAD" },	{ RECORD_FENCE, "FENCE" },
	{ RECORD_TOUCH, "TOUCH" }, { RECORD_UNLINK, "UNLINK" }, { RECORD_LINES, "LINES" },
};

static const char *page;

static size_t type_bytes(const char *type)
{
	unsigned bits = 0, n = 1;

	assert_true(sscanf(type, "u%u[%u]", &bits, &n) >= 1);
	return (size_t)bits / 8 * n;
}

/* The rows of the page, in order, against ours. */
static void offsets(void **state)
{
	FILE *f = fopen(page, "r");
	char line[512], section[64] = "", type[32], field[32];
	size_t offset, next = 0, end = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, ".Ss %63[^\n]", section) == 1) {
			end = 0;
			continue;
		}
		if (sscanf(line, ".It %zu Ta %31s Ta %31s", &offset, type, field) != 3 ||
		    type[0] != 'u')
			continue;
		assert_true(next < ARRAY_SIZE(rows));
		assert_string_equal(section, rows[next].section);
		assert_string_equal(field, rows[next].field);
		assert_string_equal(type, rows[next].type);
		assert_int_equal(offset, rows[next].offset);
		/* no hole but the one before the second copy */
		if (strcmp(field, "copy") != 0)
			assert_int_equal(offset, end);
		end = offset + type_bytes(type);
		next++;
	}
	fclose(f);
	assert_int_equal(next, ARRAY_SIZE(rows));
	assert_int_equal(end, sizeof(struct record_header));
}

static void numbers(void **state)
{
	FILE *f = fopen(page, "r");
	char line[512], name[32];
	unsigned number;
	size_t next = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, ".It %u Ta %31[A-Z]", &number, name) != 2)
			continue;
		assert_true(next < ARRAY_SIZE(types));
		assert_int_equal(number, types[next].number);
		assert_string_equal(name, types[next].name);
		next++;
	}
	fclose(f);
	assert_int_equal(next, ARRAY_SIZE(types));
}

/* Numbers of the running text. */
static void constants(void **state)
{
	char want[64], *text;
	size_t n;
	FILE *f = fopen(page, "r");

	(void)state;
	assert_non_null(f);
	text = calloc(1, 65536);
	assert_non_null(text);
	n = fread(text, 1, 65535, f);
	assert_true(n > 1000 && n < 65535);
	fclose(f);
	snprintf(want, sizeof(want), "multiple of 64, from %u to %llu", LANE_RING_MIN,
		 (unsigned long long)LANE_RING_MAX);
	assert_non_null(strstr(text, want));
	assert_non_null(strstr(text, "Dq " LANE_MAGIC));
	snprintf(want, sizeof(want), "%u: INLINE", RECORD_INLINE);
	assert_non_null(strstr(text, want));
	snprintf(want, sizeof(want), "lane header, %u bytes", LANE_HEADER_BYTES);
	assert_non_null(strstr(text, want));
	assert_int_equal(LANE_COPY_OFFSET, 2048);
	assert_int_equal(sizeof(struct lane_header), LANE_HEADER_BYTES);
	free(text);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offsets),
		cmocka_unit_test(numbers),
		cmocka_unit_test(constants),
	};

	if (argc != 2)
		return 64;
	page = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
