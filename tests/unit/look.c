/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A lane that is looked at while others append and trim: each change comes at its worst moment, not by chance. */
#include "client/ctl/look.h"

#include <errno.h>

#include "env.h"
#include "pool/record.h"
#include "pool/walk.h"

#define RING	65536u
#define RECORDS 5u

static struct env e;
static struct record_header record[RECORDS];
static void (*meanwhile)(
	void); /* between the walk, which ends at hidden, and the look at what was said of it */
static unsigned hidden, looks;
static bool stays; /* hidden afterwards, too */

static void flip(void)
{
	lane_at(&e.s.lane, record[hidden].position)[RECORD_HEADER_BYTES] ^= 1;
}

int __real_walk_find_head(const struct lane *l, struct walk *ret, uint32_t *ret_tail_chain,
			  const char **ret_why);
int __wrap_walk_find_head(const struct lane *l, struct walk *ret, uint32_t *ret_tail_chain,
			  const char **ret_why);

/* One record is not there yet for the walk, and those behind it are, when the rest of the ring is looked at. */
int __wrap_walk_find_head(const struct lane *l, struct walk *ret, uint32_t *ret_tail_chain,
			  const char **ret_why)
{
	int r;

	if (looks++ == 0 || !stays)
		flip();
	r = __real_walk_find_head(l, ret, ret_tail_chain, ret_why);
	if (!stays)
		flip();
	if (meanwhile)
		meanwhile();
	return r;
}

static int set_up(void **state)
{
	struct walk w;

	(void)state;
	env_make(&e, RING);
	meanwhile = NULL;
	stays = false;
	looks = 0;
	hidden = 3;
	for (unsigned i = 0; i < RECORDS; i++)
		assert_int_equal(env_write(&e, NULL, i, 100, NULL), 0);
	walk_begin(&w, &e.s.lane, 0, 0, UINT64_MAX);
	for (unsigned i = 0; i < RECORDS; i++)
		assert_int_equal(walk_next(&w, &record[i]), WALK_RECORD);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	env_free(&e);
	return 0;
}

/* It was appended since: no damage. */
static void appended_since(void **state)
{
	struct look look;

	(void)state;
	assert_int_equal(look_head(&look, &e.s.lane, true), 0);
	assert_int_equal(looks, 1);
	assert_int_equal(look.head, record[hidden].position);
	assert_null(look.why);
}

static void trim_all(void)
{
	flip(); /* and something else may stand there */
	env_trim(&e, record[RECORDS - 1].position, record[RECORDS - 2].crc);
}

/* It was appended, and trimmed, too. */
static void trimmed_since(void **state)
{
	struct look look;

	(void)state;
	meanwhile = trim_all;
	assert_int_equal(look_head(&look, &e.s.lane, true), 0);
	assert_int_equal(looks, 1);
	assert_null(look.why);
}

/* Nobody has the pool: what is so once is so. */
static void at_rest(void **state)
{
	struct look look;

	(void)state;
	assert_int_equal(look_head(&look, &e.s.lane, false), -EBADMSG);
	assert_int_equal(looks, 1);
	assert_non_null(look.why);
}

/* Whoever has the pool: damage that stays is damage, at the first record as behind it. */
static void damage_stays(void **state)
{
	struct look look;

	(void)state;
	stays = true;
	for (hidden = 0; hidden <= 3; hidden += 3) {
		looks = 0;
		assert_int_equal(look_head(&look, &e.s.lane, true), -EBADMSG);
		assert_true(looks > 1);
		assert_non_null(look.why);
		flip();
	}
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(appended_since),
		CASE(trimmed_since),
		CASE(at_rest),
		CASE(damage_stays),
	};

	return cmocka_run_group_tests_name("look", tests, NULL, NULL);
}
