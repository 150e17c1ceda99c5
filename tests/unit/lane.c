/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/lane.h"

#include <errno.h>
#include <string.h>

#include "env.h"
#include "pool/ops.h"
#include "pool/walk.h"

#define RING 65536u

/* What a cut may leave of a header: the lines stored between two drains, each 8-byte word old or new. */
static uint8_t durable[LANE_HEADER_BYTES] __attribute__((aligned(64)));
static uint8_t *watched;
static void (*at_state)(void);
static const struct pool_ops *real_ops;

static void copy_watched(void *dst, const void *src, size_t n)
{
	real_ops->copy(dst, src, n);
}

/* Before the drain completes, any subset of the changed words may have become durable. */
static void drain_watched(void)
{
	unsigned changed[64], n = 0;
	uint64_t *was = (uint64_t *)(void *)durable, *now = (uint64_t *)(void *)watched;
	static uint64_t keep[LANE_HEADER_BYTES / 8], fresh[LANE_HEADER_BYTES / 8];

	real_ops->drain();
	for (unsigned i = 0; i < LANE_HEADER_BYTES / 8; i++)
		if (was[i] != now[i] && n < 64)
			changed[n++] = i;
	assert_true(n <= 16);
	memcpy(keep, durable, sizeof(keep));
	memcpy(fresh, watched, sizeof(fresh));
	for (unsigned set = 0; set < 1u << n; set++) {
		memcpy(watched, keep, sizeof(keep));
		for (unsigned b = 0; b < n; b++)
			if (set >> b & 1)
				now[changed[b]] = fresh[changed[b]];
		at_state();
	}
	memcpy(watched, fresh, sizeof(fresh));
	memcpy(durable, fresh, sizeof(fresh));
}

static void flush_watched(const void *p, size_t n)
{
	real_ops->flush(p, n);
}

static const struct pool_ops watch_ops = { copy_watched, flush_watched, drain_watched };

static void watch(struct env *e, void (*f)(void))
{
	watched = e->s.lane.base;
	memcpy(durable, watched, sizeof(durable));
	at_state = f;
	real_ops = pool_ops;
	pool_ops = &watch_ops;
}

static void unwatch(void)
{
	pool_ops = real_ops;
}

static void format_and_attach(void **state)
{
	struct env e;
	struct lane l;

	(void)state;
	env_make(&e, RING);
	assert_int_equal(lane_attach(&l, e.s.lane.base, e.s.lane.map_bytes), 0);
	assert_int_equal(l.ring_size, RING);
	assert_int_equal(l.number, 7);
	assert_true(l.incarnation == ENV_INCARNATION);

	/* sizes */
	assert_int_equal(lane_attach(&l, e.s.lane.base, e.s.lane.map_bytes - 64), -EINVAL);
	assert_int_equal(lane_attach(&l, e.s.lane.base, 100), -EINVAL);
	assert_int_equal(lane_format(&l, e.s.lane.base, e.s.lane.map_bytes, 1, RING - 64, 1),
			 -EINVAL);
	assert_int_equal(lane_format(&l, e.s.lane.base, e.s.lane.map_bytes, 1, RING + 8, 1),
			 -EINVAL);
	assert_int_equal(lane_format(&l, e.s.lane.base, e.s.lane.map_bytes, 1, RING + 64, 1),
			 -EINVAL);
	assert_int_equal(lane_format(&l, e.s.lane.base, SIZE_MAX, 1, LANE_RING_MAX + 64, 1),
			 -EINVAL);

	/* one copy is enough, whichever; nothing is changed by attaching */
	for (unsigned i = 0; i < 64; i++) {
		uint8_t *first = e.s.lane.base + i, *copy = e.s.lane.base + LANE_COPY_OFFSET + i;

		*first ^= 1;
		assert_int_equal(lane_attach(&l, e.s.lane.base, e.s.lane.map_bytes), 0);
		*copy ^= 1;
		assert_int_equal(lane_attach(&l, e.s.lane.base, e.s.lane.map_bytes), -EBADMSG);
		*first ^= 1;
		assert_int_equal(lane_attach(&l, e.s.lane.base, e.s.lane.map_bytes), 0);
		*copy ^= 1;
	}
	env_free(&e);
}

static void tail_copies(void **state)
{
	struct env e;
	struct lane_tail *t;
	struct lane_tail_found f[2];

	(void)state;
	env_make(&e, RING);
	t = &lane_header(&e.s.lane)->tail;
	assert_int_equal(lane_tail_read(&e.s.lane, f), 1);

	lane_tail_write(&e.s.lane, 640, 99);
	assert_int_equal(lane_tail_read(&e.s.lane, f), 1);
	assert_int_equal(f[0].tail, 640);
	assert_int_equal(f[0].chain, 99);
	assert_false(f[0].differ);

	t->tail[0] = 1280;
	t->chain[0] = 5;
	assert_int_equal(lane_tail_read(&e.s.lane, f), 2); /* the lower one first */
	assert_int_equal(f[0].tail, 640);
	assert_int_equal(f[0].chain, 99);
	assert_int_equal(f[1].tail, 1280);
	assert_int_equal(f[1].chain, 5);
	assert_true(f[0].differ && f[1].differ);
	t->tail[1] = 1280;
	assert_int_equal(lane_tail_read(&e.s.lane, f), 2); /* equal tails, different chains */
	assert_false(f[0].differ);
	t->tail[1] = 1281;
	assert_int_equal(lane_tail_read(&e.s.lane, f), -EBADMSG);
	env_free(&e);
}

static struct env torn;
static uint64_t torn_head, states;

static void head_is_found(void)
{
	struct walk w;
	uint32_t chain;
	const char *why = NULL;
	int r = walk_find_head(&torn.s.lane, &w, &chain, &why);

	states++;
	if (r < 0)
		print_message("%s\n", why);
	assert_int_equal(r, 0);
	assert_int_equal(w.position, torn_head);
}

/* A cut anywhere in a tail's move: the head is found, whatever words of the line are new. */
static void tail_torn(void **state)
{
	(void)state;
	for (unsigned keep = 0; keep <= 5; keep++) {
		struct record_header h[6];
		struct walk w;

		env_make(&torn, RING);
		for (unsigned i = 0; i < 6; i++)
			assert_int_equal(env_write(&torn, NULL, i, 100 + i, NULL), 0);
		walk_begin(&w, &torn.s.lane, 0, 0, UINT64_MAX);
		for (unsigned i = 0; i < 6; i++)
			assert_int_equal(walk_next(&w, &h[i]), WALK_RECORD);
		torn_head = w.position;

		watch(&torn, head_is_found);
		lane_tail_write(&torn.s.lane, h[1].position, h[0].crc);
		if (keep == 0)
			lane_tail_write(&torn.s.lane, torn_head, h[5].crc); /* all is trimmed */
		else
			lane_tail_write(&torn.s.lane, h[6 - keep].position, h[5 - keep].crc);
		lane_beat_write(&torn.s.lane, 1, torn_head);
		unwatch();
		env_free(&torn);
	}
	assert_true(states > 50);
}

static void incarnation_known(void)
{
	struct lane l;

	states++;
	assert_int_equal(lane_attach(&l, torn.s.lane.base, torn.s.lane.map_bytes), 0);
	assert_true(l.incarnation == ENV_INCARNATION || l.incarnation == 5);
	torn.s.lane.incarnation = l.incarnation;
	head_is_found();
}

/* A cut in a change of incarnation: either one, and nothing is live. */
static void incarnation_torn(void **state)
{
	struct lane l;
	struct record_header h;
	struct walk w;

	(void)state;
	env_make(&torn, RING);
	assert_int_equal(env_write(&torn, NULL, 0, 100, NULL), 0);
	walk_begin(&w, &torn.s.lane, 0, 0, UINT64_MAX);
	assert_int_equal(walk_next(&w, &h), WALK_RECORD);
	torn_head = w.position;
	lane_tail_write(&torn.s.lane, torn_head, h.crc);

	l = torn.s.lane;
	states = 0;
	watch(&torn, incarnation_known);
	lane_set_incarnation(&l, 5);
	unwatch();
	assert_true(states > 8);
	assert_int_equal(lane_attach(&l, torn.s.lane.base, torn.s.lane.map_bytes), 0);
	assert_true(l.incarnation == 5);

	/* its first record has chain 0 */
	torn.s.lane = l;
	torn.s.ctl.hot->cell[torn.s.ctl.hot->index & 1].chain = 0;
	assert_int_equal(env_write(&torn, NULL, 0, 100, NULL), 0);
	torn_head += 192;
	head_is_found();
	env_free(&torn);
}

/* A cut in the change that comes after a cut in such a change: the copy was all there was. */
static void incarnation_torn_twice(void **state)
{
	struct lane l;

	(void)state;
	env_make(&torn, RING);
	torn_head = 0;
	lane_set_incarnation(&torn.s.lane, 5);
	lane_header(&torn.s.lane)->identity.incarnation ^= 1;
	assert_int_equal(lane_attach(&l, torn.s.lane.base, torn.s.lane.map_bytes), 0);
	assert_true(l.incarnation == 5);
	states = 0;
	watch(&torn, incarnation_known);
	lane_set_incarnation(&l, ENV_INCARNATION);
	unwatch();
	assert_true(states > 8);
	assert_int_equal(lane_attach(&l, torn.s.lane.base, torn.s.lane.map_bytes), 0);
	assert_true(l.incarnation == ENV_INCARNATION);
	env_free(&torn);
}

static void heartbeat(void **state)
{
	struct env e;
	uint64_t ns, head;

	(void)state;
	env_make(&e, RING);
	lane_beat_read(&e.s.lane, &ns, &head);
	assert_int_equal(ns, 0);
	lane_beat_write(&e.s.lane, 17, 640);
	lane_beat_read(&e.s.lane, &ns, &head);
	assert_int_equal(ns, 17);
	assert_int_equal(head, 640);
	env_free(&e);
}

static uint64_t beat_time(const struct env *e, const struct lane_beat *b)
{
	uint64_t ns, head;

	memcpy(&lane_header(&e->s.lane)->beat, b, sizeof(*b));
	lane_beat_read(&e->s.lane, &ns, &head);
	return ns;
}

/* A line tears between its words; bits flip. The time is never later than what was written, and torn never
 * earlier than the beat before. */
static void heartbeat_torn_and_flipped(void **state)
{
	static const uint64_t times[][2] = { { 1000, 1100 }, { 1000, 1001 }, { 0, 1000 },
					     { 1000, 0 },    { 1100, 1000 }, { 1ull << 60, 1 } };
	struct env e;

	(void)state;
	env_make(&e, RING);
	for (unsigned i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		uint64_t old = times[i][0], new = times[i][1];
		struct lane_beat line[2], mixed;

		for (unsigned earlier = 0; earlier < 2; earlier++) {
			lane_beat_write(&e.s.lane, old, 64);
			line[0] = lane_header(&e.s.lane)->beat;
			if (earlier) /* an earlier version's */
				line[0].time_check = 0;
			lane_beat_write(&e.s.lane, new, 128);
			line[1] = lane_header(&e.s.lane)->beat;
			for (unsigned mix = 0; mix < 8; mix++) {
				uint64_t ns;

				mixed.time_ns = line[mix & 1].time_ns;
				mixed.head = line[mix >> 1 & 1].head;
				mixed.time_check = line[mix >> 2].time_check;
				ns = beat_time(&e, &mixed);
				assert_true(ns == old || ns == new);
				if (!(mix & 1) == !(mix >> 2))
					assert_int_equal(ns, mixed.time_ns);
			}
		}
	}
	for (unsigned bit = 0; bit < 128; bit++) {
		struct lane_beat b;

		lane_beat_write(&e.s.lane, 0x1234567812345678, 64);
		b = lane_header(&e.s.lane)->beat;
		if (bit < 64)
			b.time_ns ^= UINT64_C(1) << bit;
		else
			b.time_check ^= UINT64_C(1) << (bit - 64);
		assert_true(beat_time(&e, &b) <= 0x1234567812345678);
	}
	env_free(&e);
}

/* What a format writes does not depend on what was there. */
static void format_over_other_bytes(void **state)
{
	static uint8_t memory[LANE_HEADER_BYTES + RING] __attribute__((aligned(64)));
	struct lane_tail_found tail[2];
	uint64_t time_ns, head;
	struct lane l;

	(void)state;
	memset(memory, 0xee, LANE_HEADER_BYTES);
	assert_int_equal(lane_format(&l, memory, sizeof(memory), 1, RING, 1), 0);
	assert_int_equal(lane_tail_read(&l, tail), 1);
	assert_int_equal(tail[0].tail, 0);
	assert_int_equal(tail[0].chain, 0);
	lane_beat_read(&l, &time_ns, &head);
	assert_int_equal(time_ns, 0);
	assert_int_equal(head, 0);
	memset(memory, 0, sizeof(struct lane_identity)); /* the copy is whole, too */
	assert_int_equal(lane_attach(&l, memory, sizeof(memory)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(format_and_attach),
		cmocka_unit_test(tail_copies),
		cmocka_unit_test(tail_torn),
		cmocka_unit_test(incarnation_torn),
		cmocka_unit_test(incarnation_torn_twice),
		cmocka_unit_test(heartbeat),
		cmocka_unit_test(heartbeat_torn_and_flipped),
		cmocka_unit_test(format_over_other_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
