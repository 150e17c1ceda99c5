/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/walk.h"

#include <errno.h>
#include <string.h>

#include "env.h"
#include "pool/append.h"
#include "pool/crc.h"
#include "pool/record.h"

#define RING 65536u

static struct env e;

static int set_up(void **state)
{
	(void)state;
	env_make(&e, RING);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	env_free(&e);
	return 0;
}

/* As after a power cut. 0 or -EBADMSG; *ret_head and *ret_why are set. */
static int find(uint64_t *ret_head, const char **ret_why)
{
	struct walk w;
	uint32_t chain;
	int r = walk_find_head(&e.s.lane, &w, &chain, ret_why);

	*ret_head = w.position;
	return r;
}

static void expect_head(uint64_t want)
{
	const char *why = NULL;
	uint64_t head;
	int r = find(&head, &why);

	if (r < 0)
		print_message("%s\n", why);
	assert_int_equal(r, 0);
	assert_null(why);
	assert_int_equal(head, want);
}

static void expect_damage(const char *word)
{
	const char *why = NULL;
	uint64_t head;

	assert_int_equal(find(&head, &why), -EBADMSG);
	assert_non_null(why);
	if (!strstr(why, word))
		fail_msg("%s", why);
}

static uint64_t put(uint32_t n)
{
	uint64_t at;

	assert_int_equal(env_write(&e, NULL, 0, n, &at), 0);
	return at;
}

static void empty(void **state)
{
	struct walk w;
	struct record_header h;

	(void)state;
	expect_head(0);
	walk_begin(&w, &e.s.lane, 0, 0, 0);
	assert_int_equal(walk_next(&w, &h), WALK_END);
	walk_begin(&w, &e.s.lane, 0, 0, UINT64_MAX);
	assert_int_equal(walk_next(&w, &h), WALK_STOP);
}

static void in_order(void **state)
{
	struct walk w;
	struct record_header h;
	uint64_t at[20], head;

	(void)state;
	for (uint32_t i = 0; i < 20; i++)
		at[i] = put(i * 37);
	head = control_head(&e.s.ctl).head;
	walk_begin(&w, &e.s.lane, 0, 0, head);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(walk_next(&w, &h), WALK_RECORD);
		assert_int_equal(h.position, at[i]);
		assert_int_equal(h.length, i * 37);
	}
	assert_int_equal(walk_next(&w, &h), WALK_END);
	assert_int_equal(w.position, head);
	assert_int_equal(w.chain, control_head(&e.s.ctl).chain);
	expect_head(head);

	/* a limit inside of a record: not what a head looks like */
	walk_begin(&w, &e.s.lane, 0, 0, at[1] + 64);
	assert_int_equal(walk_next(&w, &h), WALK_RECORD);
	assert_int_equal(walk_next(&w, &h), WALK_STOP);
	assert_int_equal(w.position, at[1]);

	/* the chain is checked at the tail too */
	walk_begin(&w, &e.s.lane, 0, 1, head);
	assert_int_equal(walk_next(&w, &h), WALK_STOP);
}

/* Round and round with every payload length: each lap ends with a PAD at another place. */
static void wraps(void **state)
{
	uint64_t tail = 0, wrapped = 0;
	uint32_t chain = 0;

	(void)state;
	for (uint32_t n = 0; n <= RING / 8; n += n < 700 ? 1 : 61) {
		uint64_t seen = 0;
		struct walk w;
		struct record_header h;

		(void)put(n);
		(void)put(n);
		(void)put(n);
		expect_head(control_head(&e.s.ctl).head);
		walk_begin(&w, &e.s.lane, tail, chain, control_head(&e.s.ctl).head);
		while (walk_next(&w, &h) == WALK_RECORD) {
			uint64_t place = h.position % RING;

			if (h.type == RECORD_PAD) {
				wrapped++;
				continue;
			}
			assert_true(place + record_bytes(h.length) <= RING);
			assert_int_equal(h.length, n);
			seen++;
		}
		assert_int_equal(seen, 3);
		assert_int_equal(w.position, control_head(&e.s.ctl).head);
		tail = w.position;
		chain = w.chain;
		env_trim(&e, tail, chain);
	}
	assert_true(wrapped > 30);
	assert_int_equal(e.s.ctl.hot->wraps, wrapped);
}

/* The newest record with each 8-byte word as it was before, alone and from there on: it never was. */
static void torn_last(void **state)
{
	uint8_t before[64 + 256], after[64 + 256], *p;
	uint64_t at;

	(void)state;
	/* a lap of other records first, so that what lies there is old records and not zeros */
	for (unsigned i = 0; i < 300; i++) {
		uint64_t pos = put(200);
		struct record_header h;

		assert_int_equal(record_check(&e.s.lane, pos, pos, &h), 0);
		env_trim(&e, control_head(&e.s.ctl).head, h.crc);
	}
	(void)put(10);
	at = control_head(&e.s.ctl).head;
	p = lane_at(&e.s.lane, at);
	memcpy(before, p, sizeof(before));
	assert_int_equal(put(256), at);
	memcpy(after, p, sizeof(after));
	expect_head(at + sizeof(after));

	for (size_t word = 0; word < sizeof(after); word += 8) {
		bool same = memcmp(before + word, after + word, 8) == 0;

		memcpy(p, after, sizeof(after));
		memcpy(p + word, before + word, 8);
		expect_head(same ? at + sizeof(after) : at);
		memcpy(p + word, before + word, sizeof(after) - word);
		expect_head(at);
		memcpy(p, before, sizeof(before));
		memcpy(p, after, word);
		if (word)
			expect_head(at);
	}
	memcpy(p, after, sizeof(after));
	expect_head(at + sizeof(after));
}

/* Any bit of a record: damage once a later record proves that it was acknowledged, else torn. */
static void flipped_bits(void **state)
{
	uint64_t at, next;
	uint8_t *p;

	(void)state;
	(void)put(100);
	at = put(100);
	p = lane_at(&e.s.lane, at);
	for (unsigned bit = 0; bit < 8 * (64 + 100); bit++) {
		p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
		expect_head(at); /* the newest: cannot be told from a torn one */
		p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
	}
	next = put(10); /* drained says: all below it is durable */
	assert_int_equal(next, at + 192);
	for (unsigned bit = 0; bit < 8 * (64 + 100); bit++) {
		p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
		expect_damage("proves");
		p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
	}
	expect_head(next + 128);
}

/* A record whose batch began when no more than P was durable proves nothing about P. */
static void proof_needs_more_than_p(void **state)
{
	struct record_header *h, copy;
	uint64_t at, next;

	(void)state;
	(void)put(100);
	at = put(100);
	next = put(0);
	h = (void *)lane_at(&e.s.lane, next);
	h->drained = at;
	h->crc = 0;
	copy = *h;
	h->crc = crc32c(0, (uint8_t *)&copy + 4, 60);
	lane_at(&e.s.lane, at)[70] ^= 1;
	expect_head(at);
	h->drained = at + 64;
	copy = *h;
	h->crc = crc32c(0, (uint8_t *)&copy + 4, 60);
	expect_damage("proves");
	h->incarnation++; /* not of this lane's life */
	expect_head(at);
}

static void heartbeat_beyond(void **state)
{
	uint64_t at;

	(void)state;
	(void)put(100);
	at = put(100);
	lane_beat_write(&e.s.lane, 1, at);
	lane_at(&e.s.lane, at)[70] ^= 1;
	expect_head(at);
	lane_beat_write(&e.s.lane, 1, at + 192);
	expect_damage("heartbeat");
}

static void tails_differ(void **state)
{
	struct lane_tail *t = &lane_header(&e.s.lane)->tail;
	struct record_header first;
	uint64_t at, head;

	(void)state;
	(void)put(100);
	at = put(100);
	head = at + 192;
	assert_int_equal(record_check(&e.s.lane, 0, 0, &first), 0);

	/* the lower is valid */
	*t = (struct lane_tail){ .tail = { at, 0 }, .chain = { first.crc, 0 } };
	expect_head(head);
	*t = (struct lane_tail){ .tail = { 0, at }, .chain = { 0, first.crc } };
	expect_head(head);
	/* the lower has a chain that is not its own: the higher counts */
	*t = (struct lane_tail){ .tail = { 0, at }, .chain = { first.crc, first.crc } };
	expect_head(head);
	/* a record below the higher one is damaged: the higher one counts */
	*t = (struct lane_tail){ .tail = { 0, at }, .chain = { 0, first.crc } };
	lane_at(&e.s.lane, 0)[70] ^= 1;
	expect_head(head);
	lane_at(&e.s.lane, 0)[70] ^= 1;
	/* the same where the walk from the lower gets on its way */
	at = put(100);
	head = at + 192;
	assert_int_equal(record_check(&e.s.lane, 192, 0, &first), 0);
	*t = (struct lane_tail){ .tail = { 0, at }, .chain = { 0, first.crc } };
	lane_at(&e.s.lane, 192)[70] ^= 1;
	expect_head(head);
	/* nothing from either */
	lane_at(&e.s.lane, at)[70] ^= 1;
	expect_damage("tails");
	/* no position at all */
	t->tail[1] = 3;
	expect_damage("multiple");
}

/* A ring full to the last byte: the walk ends after one lap. */
static void one_lap(void **state)
{
	struct walk w;
	struct record_header h;

	(void)state;
	while (env_write(&e, NULL, 0, 0, NULL) == APPEND_OK)
		;
	assert_int_equal(control_head(&e.s.ctl).head, RING);
	expect_head(RING);
	walk_begin(&w, &e.s.lane, 0, 0, UINT64_MAX);
	while (walk_next(&w, &h) == WALK_RECORD)
		;
	assert_int_equal(w.position, RING);
}

/* A dead owner's whole record behind a PAD that was struck out does not look like a lost one. */
static void leftover_of_a_dead_owner(void **state)
{
	uint64_t at;
	uint8_t kept[64];

	(void)state;
	while (control_head(&e.s.ctl).head < RING - 128)
		(void)put(0);
	env_trim(&e, RING - 128, control_head(&e.s.ctl).chain);
	/* what a writer that dies before it publishes leaves: PAD and record at the ring's start */
	memcpy(kept, e.s.ctl.hot->cell, 32);
	at = put(1000);
	assert_int_equal(at, RING);
	memcpy(e.s.ctl.hot->cell, kept, 32);
	e.s.ctl.hot->index--;
	e.s.ctl.hot->lane_lock.word = UINT64_C(0xffff) << 48 | 1;
	assert_int_equal(put(0), RING - 128);
	assert_int_equal(e.s.ctl.hot->owner_died, 1);
	expect_head(RING - 64);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(empty),
		CASE(in_order),
		CASE(wraps),
		CASE(torn_last),
		CASE(flipped_bits),
		CASE(proof_needs_more_than_p),
		CASE(heartbeat_beyond),
		CASE(tails_differ),
		CASE(one_lap),
		CASE(leftover_of_a_dead_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
