/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What one append makes of the lane, the control file and the entry. */
#include "appending.h"

#include <errno.h>
#include <string.h>

#include "base/overflow.h"
#include "pool/ops.h"
#include "pool/record.h"
#include "pool/space.h"

static void fields(void **state)
{
	struct ctl_file *f = env_file(&e, 4);
	struct record_header h, g;
	uint64_t at, before = now_coarse_ns();

	(void)state;
	assert_int_equal(env_write(&e, f, 12345, 100, &at), 0);
	assert_int_equal(at, 0);
	assert_int_equal(env_write(&e, NULL, 5, 10, &at), 0);
	assert_int_equal(at, 192);
	assert_int_equal(record_check(&e.s.lane, 0, 0, &h), 0);
	assert_int_equal(record_check(&e.s.lane, 192, 0, &g), 0);
	assert_int_equal(h.type, RECORD_WRITE);
	assert_int_equal(h.flags, RECORD_INLINE);
	assert_int_equal(h.file_id, 5);
	assert_int_equal(g.file_id, 1);
	assert_int_equal(h.offset, 12345);
	assert_int_equal(h.length, 100);
	assert_int_equal(h.chain, 0);
	assert_int_equal(g.chain, h.crc);
	assert_int_equal(h.drained, 0);
	assert_int_equal(g.drained, 192);
	assert_true(h.time_ns >= before && h.time_ns <= g.time_ns);
	assert_true(e.s.ctl.hot->last_ns == g.time_ns);
	assert_int_equal(e.s.ctl.hot->records, 2);
	assert_int_equal(e.s.ctl.hot->bytes, 110);
	assert_int_equal(control_head(&e.s.ctl).head, 320);
	assert_int_equal(control_head(&e.s.ctl).chain, g.crc);
}

static void refuses(void **state)
{
	(void)state;
	assert_int_equal(append(NULL, RECORD_PAD, 0, 0, 0), -EINVAL);
	assert_int_equal(append(NULL, 0, 0, 0, 0), -EINVAL);
	assert_int_equal(append(NULL, 7, 0, 0, 0), -EINVAL);
	assert_int_equal(append(NULL, RECORD_FENCE, 0, 1, 0), -EINVAL);
	assert_int_equal(append(NULL, RECORD_TOUCH, 0, 1, 0), -EINVAL);
	assert_int_equal(append(NULL, RECORD_WRITE, 0, RING / 8 + 1, 0), -EINVAL);
	assert_int_equal(append(NULL, RECORD_WRITE, INT64_MAX, 1, 0), -EINVAL);
	assert_int_equal(append(NULL, RECORD_WRITE, INT64_MAX, 0, 0), 0);
	assert_int_equal(append(NULL, RECORD_WRITE, 0, RING / 8, 0), 0);
}

/* The bytes of an iov come in order, whatever its pieces, and no more than length. */
static void gathers(void **state)
{
	static uint8_t bytes[5000], out[5000];

	(void)state;
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 13 + (i >> 8));
	for (uint32_t piece = 1; piece < 5000; piece = piece * 3 + 1) {
		struct iovec iov[64];
		struct append_request r = { .type = RECORD_WRITE, .iov = iov };
		struct record_header h;
		uint64_t at;
		uint32_t sum = 0;

		for (r.iovcnt = 0; r.iovcnt < 64 && sum < sizeof(bytes); r.iovcnt++) {
			uint32_t n = r.iovcnt % 5 == 3
					     ? 0
					     : min_of(piece, (uint32_t)sizeof(bytes) - sum);

			iov[r.iovcnt] = (struct iovec){ bytes + sum, n };
			sum += n;
		}
		r.length = sum;
		if (sum > 10)
			r.length -= 3;
		assert_int_equal(append_record(&e.s, &e.who, NULL, 1, &r, &at), 0);
		assert_int_equal(record_check(&e.s.lane, at, 0, &h), 0);
		assert_int_equal(record_payload(&e.s.lane, &h, out), 0);
		assert_int_equal(h.length, r.length);
		assert_memory_equal(out, bytes, r.length);
		/* zeros up to the next line */
		for (uint32_t i = r.length; i % 64; i++)
			assert_int_equal(lane_at(&e.s.lane, at)[64 + i], 0);
		r.length = sum + 1;
		assert_int_equal(append_record(&e.s, &e.who, NULL, 1, &r, &at), -EINVAL);
	}
}

/* ---- what goes to the table ---- */

static struct {
	const void *to;
	size_t n;
} copies[16];
static unsigned n_copies, n_drains, copies_at_drain;
static uint64_t head_at_drain;
static const struct pool_ops *real_ops;

static void count_copy(void *dst, const void *src, size_t n)
{
	assert_int_equal((uintptr_t)dst % 64, 0);
	assert_int_equal(n % 8, 0);
	assert_true(n_copies < 16);
	copies[n_copies].to = dst;
	copies[n_copies++].n = n;
	real_ops->copy(dst, src, n);
}

static void count_flush(const void *p, size_t n)
{
	real_ops->flush(p, n);
}

static void count_drain(void)
{
	n_drains++;
	copies_at_drain = n_copies;
	head_at_drain = control_head(&e.s.ctl).head;
	real_ops->drain();
}

static const struct pool_ops count_ops = { count_copy, count_flush, count_drain };

/* PAD, payload, header, one drain, and only then the head. */
static void one_drain(void **state)
{
	(void)state;
	real_ops = pool_ops;
	pool_ops = &count_ops;
	for (unsigned i = 0; i < 40; i++) {
		uint64_t at, head = control_head(&e.s.ctl).head;
		uint8_t *header;

		n_copies = n_drains = 0;
		assert_int_equal(env_write(&e, NULL, 0, 3000 + i, &at), 0);
		header = lane_at(&e.s.lane, at);
		assert_int_equal(n_drains, 1);
		assert_int_equal(copies_at_drain, n_copies);
		assert_int_equal(head_at_drain, head);
		assert_int_equal(n_copies, at == head ? 3 : 4);
		if (at != head)
			assert_ptr_equal(copies[0].to, lane_at(&e.s.lane, head));
		assert_ptr_equal(copies[n_copies - 1].to, header);
		assert_int_equal(copies[n_copies - 1].n, 64);
		pool_ops = real_ops;
		env_trim(&e, control_head(&e.s.ctl).head, control_head(&e.s.ctl).chain);
		pool_ops = &count_ops;
	}
	pool_ops = real_ops;
	assert_true(e.s.ctl.hot->wraps > 0);
}

/* ---- room ---- */

static void leaves_the_reserve(void **state)
{
	struct ctl_file *f = env_file(&e, 0), *g = env_file(&e, 1);
	uint64_t head;

	(void)state;
	assert_int_equal(append(f, RECORD_WRITE, 0, 0, 0), APPEND_OK);
	assert_int_equal(append(g, RECORD_WRITE, 0, 0, 0), APPEND_OK);
	while (control_head(&e.s.ctl).head < RING - 2 * SPACE_FILE_RESERVE - 64)
		assert_int_equal(append(f, RECORD_WRITE, 0, 0, 0), APPEND_OK);
	/* one more fits; but a third file would need a reserve of its own */
	assert_int_equal(append(env_file(&e, 2), RECORD_WRITE, 0, 0, 0), APPEND_FULL);
	assert_int_equal(append(f, RECORD_WRITE, 0, 0, 0), APPEND_OK);
	head = control_head(&e.s.ctl).head;
	assert_int_equal(head, RING - 2 * SPACE_FILE_RESERVE);
	assert_int_equal(append(g, RECORD_TOUCH, 0, 0, 0), APPEND_FULL);
	assert_int_equal(append(f, RECORD_WRITE, 0, 0, 0), APPEND_FULL);
	assert_int_equal(control_head(&e.s.ctl).head, head);

	/* what the reserve is for: one UNLINK and one FENCE each; of unlinks that fail there may be
	 * many, and they leave the FENCEs their room */
	assert_int_equal(append(f, RECORD_UNLINK, 0, 0, 0), APPEND_OK);
	assert_int_equal(append(f, RECORD_FENCE, head + 64, 0, 0), APPEND_OK);
	assert_int_equal(append(g, RECORD_UNLINK, 0, 0, 0), APPEND_OK);
	assert_int_equal(append(g, RECORD_UNLINK, 0, 0, 0), APPEND_FULL);
	assert_int_equal(append(g, RECORD_FENCE, head, 0, 0), APPEND_OK);
	assert_int_equal(control_head(&e.s.ctl).head, RING);
	assert_int_equal(append(g, RECORD_FENCE, head, 0, 0), APPEND_FULL);
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 0, 0), APPEND_FULL);
}

/* With a reservation there is room, also where a PAD is needed; the reservation goes with it. */
static void takes_its_reservation(void **state)
{
	struct ctl_file *f = env_file(&e, 0);
	uint32_t n = 4000;

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		uint64_t want = space_for(n);

		while (space_reserve(&e.s, &e.who, want) != SPACE_OK)
			env_trim(&e, control_head(&e.s.ctl).head, control_head(&e.s.ctl).chain);
		/* others take all that is left */
		while (append(NULL, RECORD_WRITE, 0, 0, 0) == APPEND_OK)
			;
		assert_int_equal(append(f, RECORD_WRITE, 0, n, want), APPEND_OK);
		assert_int_equal(e.s.ctl.hot->reserved_bytes, 0);
		assert_int_equal(e.s.ctl.slots[1].note, 0);
		n = n * 7 % 8000;
	}
	assert_true(e.s.ctl.hot->wraps > 0);
}

/* ---- the entry ---- */

static void entry(void **state)
{
	struct ctl_file *f = env_file(&e, 0), *g = env_file(&e, 1);
	struct ctl_hot *hot = e.s.ctl.hot;

	(void)state;
	assert_int_equal(append(f, RECORD_WRITE, 0, 64, 0), 0); /* 0 */
	assert_int_equal(append(g, RECORD_WRITE, 0, 64, 0), 0); /* 128 */
	assert_int_equal(append(f, RECORD_WRITE, 0, 64, 0), 0); /* 256 */
	assert_int_equal(f->first, 0);
	assert_int_equal(f->last, 384);
	assert_int_equal(g->first, 128);
	assert_int_equal(g->last, 256);
	assert_int_equal(hot->live_files, 2);
	assert_int_equal(f->records, 2);
	assert_int_equal(f->bytes, 128);

	/* a FENCE below the newest record leaves it live, one above does not; `last` stays */
	assert_int_equal(append(f, RECORD_FENCE, 256, 0, 0), 0); /* 384 */
	assert_int_equal(f->fence, 256);
	assert_int_equal(f->last, 384);
	assert_int_equal(hot->live_files, 2);
	assert_int_equal(append(f, RECORD_FENCE, 448, 0, 0), 0); /* 448 */
	assert_int_equal(f->last, 384);
	assert_int_equal(hot->live_files, 1);
	assert_false(space_file_live(&e.s, f));

	/* live again */
	assert_int_equal(append(f, RECORD_WRITE, 0, 64, 0), 0); /* 512 */
	assert_int_equal(f->first, 512);
	assert_int_equal(hot->live_files, 2);
	env_trim(&e, 256, 0);
	assert_int_equal(hot->live_files, 1);
	assert_int_equal(append(g, RECORD_WRITE, 0, 64, 0), 0);
	assert_int_equal(g->first, 640);
	assert_int_equal(hot->live_files, 2);
}

/* Words of the control file that no honest peer leaves: refused, and nothing is stored. */
static void hostile_words(void **state)
{
	struct ctl_hot *hot = e.s.ctl.hot;

	(void)state;
	hot->cell[0].head = 65;
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 0, 0), -EPROTO);
	hot->cell[0].head = RING + 64;
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 0, 0), -EPROTO);
	hot->cell[0].head = 0;
	hot->tail = 64;
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 0, 0), -EPROTO);
	hot->tail = 0;
	hot->reserved_bytes = UINT64_MAX - 100;
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 0, 0), APPEND_FULL);
	assert_int_equal(append(NULL, RECORD_FENCE, 0, 0, 0), APPEND_OK);
}

/* append_peers.c: returns how many of its tests failed. */
int append_peers_run(void);

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(fields),
		CASE(refuses),
		CASE(gathers),
		CASE(one_drain),
		CASE(leaves_the_reserve),
		CASE(takes_its_reservation),
		CASE(entry),
		CASE(hostile_words),
	};

	return cmocka_run_group_tests_name("append", tests, NULL, NULL) + append_peers_run();
}
