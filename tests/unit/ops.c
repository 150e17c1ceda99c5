/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/ops.h"

#include <string.h>

#include "env.h"

static uint8_t src[4096 + 64], dst[4096 + 64] __attribute__((aligned(64)));

/* Every length, every alignment of the source; nothing beyond the end is touched. */
static void copies(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 7 + 3);
	for (size_t n = 0; n <= 1024; n += 8) {
		for (size_t shift = 0; shift < 64; shift += 9) {
			memset(dst, 0xee, n + 64);
			pool_ops->copy(dst, src + shift, n);
			pool_ops->drain();
			assert_memory_equal(dst, src + shift, n);
			for (size_t i = n; i < n + 64; i++)
				assert_int_equal(dst[i], 0xee);
		}
	}
}

static void flushes(void **state)
{
	(void)state;
	for (size_t n = 0; n < 300; n += 13) {
		memset(dst, (int)n, n);
		pool_ops->flush(dst + 1, n);
		pool_ops->drain();
	}
	assert_int_equal(dst[0], 299 & 0xff);
}

/* The table works before anybody has picked one, and picking is idempotent. */
static void selects(void **state)
{
	const struct pool_ops *first;

	assert_non_null(pool_ops);
	assert_string_equal(pool_ops_name(), "sse2+clflush");
	copies(state);
	flushes(state);
	pool_ops_select();
	first = pool_ops;
	pool_ops_select();
	assert_ptr_equal(pool_ops, first);
	print_message("picked %s\n", pool_ops_name());
}

static void all_tables(void **state)
{
	const struct pool_ops *best = pool_ops;
	unsigned i;

	for (i = 0; (pool_ops = pool_ops_nth(i)); i++) {
		assert_string_not_equal(pool_ops_name(), "other");
		copies(state);
		flushes(state);
	}
	assert_ptr_equal(pool_ops_nth(i - 1), best);
	pool_ops = best;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(selects), /* first: it sees the table as it starts */
		cmocka_unit_test(copies),
		cmocka_unit_test(flushes),
		cmocka_unit_test(all_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
