/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RULE L and RULE F where the daemon, another session or the disk comes in at the worst moment. Model of
 * most of it: tests/models/fence.pml, space.pml; here it is the code.
 */
#include "pool/file.h"

#include <errno.h>
#include <stdlib.h>

#include "paged.h"
#include "pool/append.h"
#include "pool/file_internal.h"
#include "pool/lock.h"
#include "pool/record.h"
#include "pool/slot.h"
#include "pool/space.h"

static struct file_ref a, b;

static int set_up(void **state)
{
	int r = paged_set_up(state);

	a = paged_open(0, 0);
	b = paged_open(1, 0);
	return r;
}

static long no_call(void *arg)
{
	(void)arg;
	return 0;
}

static long fenced(struct file_ref *r)
{
	return file_fenced(&paged.e.s, &paged.e.who, r, no_call, NULL);
}

static long unlinking(struct file_ref *r, file_call *call)
{
	long rc;

	assert_int_equal(file_lock(&paged.e.s, &paged.e.who, r), 0);
	rc = file_unlinking_locked(&paged.e.s, &paged.e.who, r, call, NULL);
	file_unlock(&paged.e.s, r);
	return rc;
}

/* ---- room: a file that was trimmed takes no line of another's -------------------------------------- */

static void trim(void)
{
	struct ctl_cell head = control_head(&paged.e.s.ctl);

	env_trim(&paged.e, head.head, head.chain);
}

static long busy(void *arg)
{
	(void)arg;
	return -EBUSY;
}

/* The daemon trims a's records, and b fills the lane up to its own two lines. */
static void trim_and_fill(void)
{
	trim();
	paged_fill(b.f, 0);
}

/* One of them goes to the UNLINK of a call that fails. */
static void trim_and_leave_one(void)
{
	trim_and_fill();
	assert_int_equal(unlinking(&b, busy), -EBUSY);
	assert_int_equal(control_head(&paged.e.s.ctl).head - paged.e.s.ctl.hot->tail,
			 PAGED_RING - RECORD_HEADER_BYTES);
}

static void fence_of_a_trimmed_file(void **state)
{
	uint64_t head;

	(void)state;
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	assert_int_equal(paged_write(&b, 0, 64, 'b'), 64);
	/* between its look, which finds it live, and its FENCE */
	paged.before_sync = trim_and_leave_one;
	assert_int_equal(fenced(&a), 0);
	assert_null(paged.before_sync);
	assert_false(space_file_live(&paged.e.s, a.f));
	assert_int_equal(paged_disk(0, 63), 'a');

	/* nothing was taken that b needs */
	head = control_head(&paged.e.s.ctl).head;
	assert_int_equal(fenced(&b), 0);
	assert_int_equal(control_head(&paged.e.s.ctl).head, head + RECORD_HEADER_BYTES);
	assert_false(space_file_live(&paged.e.s, b.f));
}

static void unlink_of_a_trimmed_file(void **state)
{
	uint64_t head;

	(void)state;
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	assert_int_equal(paged_write(&b, 0, 64, 'b'), 64);
	/* between its look and its UNLINK */
	paged.before_append = trim_and_fill;
	paged.syncs = 0;
	assert_int_equal(unlinking(&a, no_call), 0);
	assert_null(paged.before_append);
	assert_true(a.f->unlinked);
	assert_false(space_file_live(&paged.e.s, a.f));
	assert_int_equal(paged.syncs,
			 0); /* nothing of it is live: no record, and no sync in its place */

	assert_int_equal(unlinking(&b, busy), -EBUSY);
	head = control_head(&paged.e.s.ctl).head;
	assert_int_equal(fenced(&b), 0);
	assert_int_equal(control_head(&paged.e.s.ctl).head, head + RECORD_HEADER_BYTES);
}

/* An UNLINK makes a file live again: it keeps what that takes. */
static void unlink_makes_it_live(void **state)
{
	const struct append_request unlink = { .type = RECORD_UNLINK };

	(void)state;
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	trim();
	paged_fill(b.f, RECORD_HEADER_BYTES + SPACE_FILE_RESERVE);
	assert_int_equal(append_record(&paged.e.s, &paged.e.who, a.f, 0, &unlink, NULL), APPEND_OK);
	assert_int_equal(unlinking(&b, busy), -EBUSY);
	assert_int_equal(unlinking(&a, busy), -EBUSY);
	assert_int_equal(fenced(&a), 0);
	assert_int_equal(fenced(&b), 0);
	assert_int_equal(control_head(&paged.e.s.ctl).head - paged.e.s.ctl.hot->tail, PAGED_RING);
}

/* ---- room: for the record of a write that was made ------------------------------------------------- */

/* The other session takes every byte that is to be had. */
static void take_all(void)
{
	const struct append_request r = { .type = RECORD_WRITE };

	while (append_record(&paged.e.s, &paged.e.who, b.f, 0, &r, NULL) == APPEND_OK)
		;
}

static void room_is_reserved_before_the_call(void **state)
{
	uint64_t head;

	(void)state;
	paged_fill(b.f, 8 * space_for(1000));
	paged.after_write = take_all;
	assert_int_equal(paged_write(&a, 0, 1000, 'a'), 1000);
	assert_null(paged.after_write);
	assert_int_equal(paged.syncs, 0); /* its record does what a sync would have to do */
	assert_true(space_file_live(&paged.e.s, a.f));
	assert_int_equal(paged.e.s.ctl.hot->reserved_bytes, 0);
	head = control_head(&paged.e.s.ctl).head;
	assert_int_equal(a.f->last, head);
}

/* ---- a dead owner of the file lock ------------------------------------------------------------------ */

/* Before its record, perhaps before its call; with all the room that there was. */
static void dies_in_a_write(void *arg)
{
	struct session s = paged.e.s;
	struct caller who = env_caller();

	(void)arg;
	if (slot_take(&s.ctl, ENV_INCARNATION, &s.me) < 0 ||
	    lock_acquire(&s.ctl, &a.f->lock, &s.me, who.tid, LOCK_FOREVER, 0) != LOCK_TAKEN)
		abort();
	while (space_reserve(&s, &who, RECORD_HEADER_BYTES) == SPACE_OK)
		;
	a.f->write_offset = 0;
	a.f->write_length = 64;
}

static void put_right_by(struct file_ref *r)
{
	assert_int_equal(file_lock(&paged.e.s, &paged.e.who, r), 0);
	file_unlock(&paged.e.s, r);
}

/* Nobody waits for what it had reserved, nor does without. */
static void its_room_is_free(void **state)
{
	const struct append_request touch = { .type = RECORD_TOUCH };

	(void)state;
	env_kill(env_fork(dies_in_a_write, NULL));
	assert_int_equal(append_record(&paged.e.s, &paged.e.who, b.f, 0, &touch, NULL),
			 APPEND_FULL);
	put_right_by(&a);
	assert_int_equal(paged.e.s.ctl.hot->reserved_bytes, 0);
	assert_int_equal(append_record(&paged.e.s, &paged.e.who, b.f, 0, &touch, NULL), APPEND_OK);
}

/* What it wrote stays, as it may have been read: heal brings the older bytes of the records around it. */
static void its_bytes_stay(void **state)
{
	(void)state;
	assert_int_equal(paged_write(&a, 0, 128, 'a'), 128);
	paged.file[0].page[0] = 'd';
	env_kill(env_fork(dies_in_a_write, NULL));
	put_right_by(&a);
	assert_int_equal(paged_disk(0, 0), 'd');
	assert_int_equal(paged_disk(0, 64), 'a');
	assert_false(space_file_live(&paged.e.s, a.f));
}

/* But not where acknowledged bytes may be lost there: a sync has failed and said so, */
static void degraded_comes_first(void **state)
{
	struct file_ref other = paged_open(0, 1);

	(void)state;
	put_right_by(&other); /* open before the write: its own sync would have told */
	assert_int_equal(paged_write(&a, 0, 128, 'a'), 128);
	paged_fails(0, false);
	a.f->degraded = 1;
	paged.heard[0][1] = paged.file[0].errors; /* it has, to another who has that description */
	paged_forgets(0);
	env_kill(env_fork(dies_in_a_write, NULL));
	put_right_by(&other);
	assert_int_equal(paged_disk(0, 0), 'a');
	assert_int_equal(paged_disk(0, 127), 'a');
	assert_int_equal(a.f->degraded, 0);
}

/* or somebody without the library was told, before this description was opened. */
static void lost_before_the_opening(void **state)
{
	struct file_ref late;

	(void)state;
	assert_int_equal(paged_write(&a, 0, 128, 'a'), 128);
	paged_fails(0, false);
	paged_told(0);
	late = paged_open(0, 1);
	paged_forgets(0);
	env_kill(env_fork(dies_in_a_write, NULL));
	put_right_by(&late);
	assert_int_equal(paged_disk(0, 0), 'a');
	assert_int_equal(paged_disk(0, 127), 'a');
}

/* ---- the disk: heal, and the pages that it writes to ---------------------------------------------- */

static void fail_again(void)
{
	paged_fails(0, true);
}

static void at_the_second(void)
{
	paged.before_sync = fail_again;
}

static void at_the_third(void)
{
	paged.before_sync = at_the_second;
}

/* A new block stays unwritten after an error: heal drops the page and writes again. That fails in turn, and
 * the page is as it was: dropped once is not dropped for good. */
static void dropped_and_failed_again(void **state)
{
	(void)state;
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	paged_fails(0, true);
	assert_int_equal(fenced(&a), -EIO);
	assert_true(space_file_live(&paged.e.s, a.f));

	paged.before_sync = at_the_third; /* heal's, the drop's, heal's */
	assert_int_equal(fenced(&a), 0);
	assert_null(paged.before_sync);
	assert_int_equal(paged.file[0].errors, 2);
	assert_int_equal(paged.drops, 2);
	assert_false(space_file_live(&paged.e.s, a.f));
	assert_int_equal(a.f->degraded, 0);
	assert_int_equal(paged_disk(0, 0), 'a');
	assert_int_equal(paged_disk(0, 63), 'a');
}

static struct file_ref opened;

/* A write-back fails under a's write; somebody without the library is told, then the file is opened: that
 * description will hear of nothing. */
static void fail_and_open(void)
{
	paged_fails(0, false);
	paged_told(0);
	opened = paged_open(0, 1);
}

static void opened_in_the_middle(void **state)
{
	(void)state;
	paged.after_write = fail_and_open;
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	assert_null(paged.after_write);
	paged_forgets(0);
	/* The record stands above the head that there was at the opening, and its bytes are lost. */
	assert_int_equal(fenced(&opened), 0);
	assert_true(opened.open_head >= a.f->last);
	assert_int_equal(paged_disk(0, 0), 'a');

	/* what was written since it can prove */
	assert_int_equal(paged_write(&a, 0, 64, 'A'), 64);
	assert_int_equal(fenced(&opened), 0);
	assert_int_equal(paged_disk(0, 0), 'A');
}

/* Who is told of an error says so to all: their own syncs may succeed, and the pages be gone. */
static void a_failed_sync_counts(void **state)
{
	struct file_ref other = paged_open(0, 1);

	(void)state;
	put_right_by(&other); /* open before the write: by itself it would trust the page cache */
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	paged_fails(0, false);
	paged.heard[0][1] = paged.file[0].errors; /* told to another who has that description */
	assert_int_equal(file_lock(&paged.e.s, &paged.e.who, &a), 0);
	assert_int_equal(file_real_sync(&paged.e.s, &a, false), -EIO);
	file_unlock(&paged.e.s, &a);
	assert_int_equal(a.f->degraded, 1);
	assert_true(a.open_head >= a.f->last); /* it proves newer records only */
	paged_forgets(0);
	assert_int_equal(fenced(&other), 0);
	assert_int_equal(paged_disk(0, 0), 'a');
	assert_int_equal(a.f->degraded, 0);
}

/* Bytes that no record has are in the pages alone, so these stay; and while the file's blocks would read as zeros
 * nothing is fenced off. The caller hears of it. */
static void kept_in_lost_blocks(void **state)
{
	const struct file_range keep = { 128, 64 };

	(void)state;
	assert_int_equal(paged_write(&a, 0, 128, 'a'), 128);
	paged_fails(0, true);
	assert_int_equal(file_lock(&paged.e.s, &paged.e.who, &a), 0);
	assert_int_equal(file_real_sync(&paged.e.s, &a, false), -EIO);
	/* the write of an appender that went elsewhere than we thought */
	paged.file[0].page[128] = 'k';
	paged.file[0].dirty = true;
	assert_int_equal(file_bypass_locked(&paged.e.s, &paged.e.who, &a, BYPASS_HOLD, &keep),
			 -EIO);
	file_unlock(&paged.e.s, &a);
	assert_int_equal(paged.drops, 0);
	assert_int_equal(paged.file[0].page[128], 'k');
	assert_int_equal(a.f->degraded, 2);
	assert_true(space_file_live(&paged.e.s, a.f));

	/* the next one has the records written anew */
	assert_int_equal(fenced(&a), 0);
	assert_int_equal(a.f->degraded, 0);
	assert_int_equal(paged_disk(0, 0), 'a');
	assert_int_equal(paged_disk(0, 127), 'a');
}

/* Nothing is live, and a call is made again: its bytes come into pages that know where they belong. */
static void again_in_lost_blocks(void **state)
{
	(void)state;
	paged.file[0].dirty = true;
	paged_fails(0, true);
	paged_told(0);
	opened = paged_open(0, 1);
	env_kill(env_fork(dies_in_a_write, NULL));
	put_right_by(&opened);
	assert_int_equal(paged.drops, 1);
	assert_int_equal(paged_write(&opened, 0, 64, 'b'), 64);
	assert_int_equal(fenced(&opened), 0);
	assert_int_equal(paged_disk(0, 0), 'b');
}

static void told_elsewhere(void)
{
	paged.file[0].errors++;
}

static void at_the_drop(void)
{
	paged.before_sync = told_elsewhere;
}

/* The sync that comes before pages are dropped is one like any other: what it was told nobody is told again
 * who has the description, too (a forked process), so degraded must say it. */
static void drop_that_fails(void **state)
{
	(void)state;
	assert_int_equal(paged_write(&a, 0, 64, 'a'), 64);
	paged_fails(0, true);
	paged_told(0);
	opened = paged_open(0, 1);
	paged.before_sync = at_the_drop;
	assert_int_equal(fenced(&opened), -EIO);
	assert_null(paged.before_sync);
	assert_int_equal(a.f->degraded, 1);
	assert_true(space_file_live(&paged.e.s, a.f));

	assert_int_equal(fenced(&opened), 0);
	assert_int_equal(a.f->degraded, 0);
	assert_int_equal(paged_disk(0, 0), 'a');
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, paged_tear_down)
	const struct CMUnitTest tests[] = {
		CASE(fence_of_a_trimmed_file),	CASE(unlink_of_a_trimmed_file),
		CASE(unlink_makes_it_live),	CASE(room_is_reserved_before_the_call),
		CASE(its_room_is_free),		CASE(its_bytes_stay),
		CASE(kept_in_lost_blocks),	CASE(again_in_lost_blocks),
		CASE(degraded_comes_first),	CASE(lost_before_the_opening),
		CASE(dropped_and_failed_again), CASE(opened_in_the_middle),
		CASE(a_failed_sync_counts),	CASE(drop_that_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
