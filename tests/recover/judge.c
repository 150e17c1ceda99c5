/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of judge.h as such: each row, its neighbours, and the order of the rows. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/recover/judge.h"
#include "pool/dir/identity.h"

#define SECOND UINT64_C(1000000000)

/* A file whose records may be replayed. */
static const struct judge_facts good = {
	.live = true,
	.named = true,
	.known = true,
	.mark = MARK_OURS,
	.btime_ns = 7,
	.catalog_btime_ns = 7,
	.ctime_ns = (int64_t)(100 * SECOND),
	.catalog_ctime_ns = (int64_t)(90 * SECOND),
	.newest_record_ns = 100 * SECOND,
	.beat_ns = 99 * SECOND,
	.rewrite_until_ns = 0,
	.now_ns = 200 * SECOND,
};

#define ROW(expected, ...)                                    \
	do {                                                  \
		struct judge_facts f = good;                  \
		__VA_ARGS__;                                  \
		assert_int_equal(judge_file(&f), (expected)); \
	} while (0)

static void test_rows(void **state)
{
	(void)state;
	ROW(ROW_REPLAY, (void)f);
	ROW(ROW_NOTHING_LIVE, f.live = false);
	ROW(ROW_NOTHING_LIVE, f.live = f.known = f.named = false);
	ROW(ROW_UNKNOWN_FILE, f.known = false);
	ROW(ROW_UNKNOWN_FILE, f.known = f.live = false);
	ROW(ROW_NOT_MOUNTED, f.found = FOUND_NOT_MOUNTED);
	ROW(ROW_IO_ERROR, f.found = FOUND_ERROR; f.error = -EIO);
	ROW(ROW_STALE, f.found = FOUND_STALE);
	ROW(ROW_STALE_UNLINKED, f.found = FOUND_STALE; f.unlinked = true);
	ROW(ROW_STALE, f.btime_ns++);
	ROW(ROW_STALE_UNLINKED, f.btime_ns++; f.unlinked = true);
	ROW(ROW_REPLAY, f.unlinked = true);
	ROW(ROW_REPLAY, f.btime_ns = f.catalog_btime_ns = 0);
	ROW(ROW_MARK_MISSING, f.mark = MARK_NONE);
	ROW(ROW_MARK_FOREIGN, f.mark = MARK_FOREIGN);
	ROW(ROW_MARK_FOREIGN, f.mark = MARK_COPY);
	ROW(ROW_CTIME_OLDER, f.ctime_ns = f.catalog_ctime_ns - 1);
	ROW(ROW_REPLAY, f.ctime_ns = f.catalog_ctime_ns);
	ROW(ROW_CLOCK, f.now_ns = f.newest_record_ns - 1);
	ROW(ROW_REPLAY, f.now_ns = f.newest_record_ns);
}

static void test_ctime_later(void **state)
{
	(void)state;
	ROW(ROW_REPLAY, f.ctime_ns = (int64_t)(101 * SECOND));
	ROW(ROW_CTIME_LATER, f.ctime_ns = (int64_t)(101 * SECOND) + 1);
	ROW(ROW_REPLAY, f.ctime_ns = (int64_t)(111 * SECOND); f.beat_ns = 110 * SECOND);
	ROW(ROW_CTIME_LATER, f.ctime_ns = (int64_t)(111 * SECOND) + 1; f.beat_ns = 110 * SECOND);
	ROW(ROW_REPLAY, f.ctime_ns = (int64_t)(111 * SECOND); f.rewrite_until_ns = 110 * SECOND);
	ROW(ROW_CTIME_LATER, f.ctime_ns = (int64_t)(111 * SECOND) + 1;
	    f.rewrite_until_ns = 110 * SECOND);
	/* not touched since it was registered, whatever the records say */
	ROW(ROW_REPLAY, f.ctime_ns = f.catalog_ctime_ns = (int64_t)(150 * SECOND));
	/* ends of the ranges */
	ROW(ROW_CTIME_LATER, f.ctime_ns = INT64_MAX);
	ROW(ROW_CTIME_OLDER, f.ctime_ns = INT64_MIN);
	ROW(ROW_CLOCK, f.newest_record_ns = UINT64_MAX);
	ROW(ROW_REPLAY, f.ctime_ns = INT64_MAX; f.rewrite_until_ns = UINT64_MAX);
}

/* First row that fits: with every later reason at hand too. */
static void test_order(void **state)
{
	struct judge_facts f = good;

	(void)state;
	f.now_ns = 0;
	assert_int_equal(judge_file(&f), ROW_CLOCK);
	f.ctime_ns = INT64_MAX;
	assert_int_equal(judge_file(&f), ROW_CTIME_LATER);
	f.ctime_ns = 0;
	assert_int_equal(judge_file(&f), ROW_CTIME_OLDER);
	f.mark = MARK_FOREIGN;
	assert_int_equal(judge_file(&f), ROW_MARK_FOREIGN);
	f.mark = MARK_NONE;
	assert_int_equal(judge_file(&f), ROW_MARK_MISSING);
	f.btime_ns++;
	assert_int_equal(judge_file(&f), ROW_STALE);
	f.unlinked = true;
	assert_int_equal(judge_file(&f), ROW_STALE_UNLINKED);
	f.found = FOUND_ERROR;
	assert_int_equal(judge_file(&f), ROW_IO_ERROR);
	f.found = FOUND_NOT_MOUNTED;
	assert_int_equal(judge_file(&f), ROW_NOT_MOUNTED);
	f.known = false;
	assert_int_equal(judge_file(&f), ROW_UNKNOWN_FILE);
}

static void test_actions(void **state)
{
	static const enum judge_action expected[ROW_COUNT] = {
		[ROW_UNKNOWN_FILE] = ACTION_QUARANTINE,
		[ROW_NOTHING_LIVE] = ACTION_NONE,
		[ROW_NOT_MOUNTED] = ACTION_HOLD,
		[ROW_IO_ERROR] = ACTION_HOLD,
		[ROW_STALE_UNLINKED] = ACTION_DROP,
		[ROW_STALE] = ACTION_QUARANTINE,
		[ROW_MARK_MISSING] = ACTION_QUARANTINE,
		[ROW_MARK_FOREIGN] = ACTION_QUARANTINE,
		[ROW_CTIME_OLDER] = ACTION_QUARANTINE,
		[ROW_CTIME_LATER] = ACTION_QUARANTINE,
		[ROW_CLOCK] = ACTION_WAIT,
		[ROW_REPLAY] = ACTION_REPLAY,
	};
	/* What --apply may overrule, and what an applied replay that is taken up again still does. */
	static const enum judge_row overruled[] = { ROW_MARK_MISSING, ROW_MARK_FOREIGN,
						    ROW_CTIME_OLDER, ROW_CTIME_LATER, ROW_CLOCK };

	(void)state;
	for (unsigned row = 0; row < ROW_COUNT; row++) {
		enum judge_action with_apply = expected[row], taken_up = expected[row];

		for (size_t i = 0; i < sizeof(overruled) / sizeof(overruled[0]); i++) {
			if (overruled[i] != row)
				continue;
			with_apply = ACTION_REPLAY;
			if (row != ROW_CTIME_LATER)
				taken_up = ACTION_REPLAY;
		}
		assert_int_equal(judge_action(row, false, false), expected[row]);
		assert_int_equal(judge_action(row, true, false), with_apply);
		assert_int_equal(judge_action(row, false, true), taken_up);
		assert_non_null(judge_texts[row].name);
		assert_non_null(judge_texts[row].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_ctime_later),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_actions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
