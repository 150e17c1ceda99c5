/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/lane.h"

#include <errno.h>
#include <string.h>

#include "base/overflow.h"
#include "pool/crc.h"
#include "pool/ops.h"
#include "pool/record.h"

static bool sizes_fit(size_t map_bytes, uint64_t ring_size)
{
	return ring_size >= LANE_RING_MIN && ring_size <= LANE_RING_MAX &&
	       ring_size % LANE_ALIGN == 0 && map_bytes >= LANE_HEADER_BYTES &&
	       map_bytes - LANE_HEADER_BYTES >= ring_size;
}

static struct lane_identity make_identity(uint32_t number, uint64_t ring_size, uint64_t incarnation)
{
	struct lane_identity id = {
		.lane = number,
		.ring_size = ring_size,
		.incarnation = incarnation,
	};

	memcpy(id.magic, LANE_MAGIC, sizeof(id.magic));
	id.crc = crc32c(0, &id, sizeof(id));
	return id;
}

static bool identity_valid(const struct lane_identity *id)
{
	struct lane_identity bare = *id;

	if (memcmp(id->magic, LANE_MAGIC, sizeof(id->magic)) != 0)
		return false;
	bare.crc = 0;
	return crc32c(0, &bare, sizeof(bare)) == id->crc;
}

/* One line of the header, durable on return. */
static void put_line(void *line, const void *src)
{
	pool_ops->copy(line, src, LANE_ALIGN);
	pool_ops->drain();
}

/* Who was killed between a store and its drain left what reads well and is not durable. Afterwards it is: only
 * then may another copy be given up for it. */
static void settle_line(const void *line)
{
	pool_ops->flush(line, LANE_ALIGN);
	pool_ops->drain();
}

int lane_format(struct lane *ret, void *base, size_t map_bytes, uint32_t number, uint64_t ring_size,
		uint64_t incarnation)
{
	struct lane_header *h = base;
	struct lane_identity id;

	if (!sizes_fit(map_bytes, ring_size))
		return -EINVAL;
	id = make_identity(number, ring_size, incarnation);

	pool_ops->copy(&h->tail, &(struct lane_tail){ 0 }, sizeof(h->tail));
	pool_ops->copy(&h->beat, &(struct lane_beat){ 0 }, sizeof(h->beat));
	put_line(&h->copy, &id);
	/* Tail, heartbeat and copy are durable: the first identity may say so. */
	put_line(&h->identity, &id);

	*ret = (struct lane){ .base = base,
			      .map_bytes = map_bytes,
			      .ring_size = ring_size,
			      .incarnation = incarnation,
			      .number = number };
	return 0;
}

int lane_attach(struct lane *ret, void *base, size_t map_bytes)
{
	const struct lane_header *h = base;
	struct lane_identity id;

	if (map_bytes < LANE_HEADER_BYTES)
		return -EINVAL;

	memcpy(&id, &h->identity, sizeof(id));
	__asm__ volatile("" ::: "memory"); /* what is checked is the copy, not a second read */
	if (!identity_valid(&id)) {
		memcpy(&id, &h->copy, sizeof(id));
		__asm__ volatile("" ::: "memory");
		if (!identity_valid(&id))
			return -EBADMSG;
	}
	if (!sizes_fit(map_bytes, id.ring_size))
		return -EINVAL;

	*ret = (struct lane){ .base = base,
			      .map_bytes = map_bytes,
			      .ring_size = id.ring_size,
			      .incarnation = id.incarnation,
			      .number = id.lane };
	return 0;
}

void lane_set_incarnation(struct lane *l, uint64_t incarnation)
{
	struct lane_header *h = lane_header(l);
	struct lane_identity id = make_identity(l->number, l->ring_size, incarnation);
	struct lane_identity first;
	struct lane_tail tail;

	settle_line(&h->identity);
	memcpy(&first, &h->identity, sizeof(first));
	if (!identity_valid(&first)) {
		/* Torn by a cut in here: the copy is all there is, and it is to be written next. */
		first = make_identity(l->number, l->ring_size, l->incarnation);
		put_line(&h->identity, &first);
	}
	memcpy(&tail, &h->tail, sizeof(tail));
	tail.chain[0] = tail.chain[1] = 0;
	/* The tail no longer names a record of the old incarnation: either one walks empty. */
	put_line(&h->tail, &tail);
	/* The copy is complete before the first identity may tear. */
	put_line(&h->copy, &id);
	put_line(&h->identity, &id);
	l->incarnation = incarnation;
}

int lane_tail_read(const struct lane *l, struct lane_tail_found ret[2])
{
	struct lane_tail t;
	unsigned low;

	memcpy(&t, &lane_header(l)->tail, sizeof(t));
	__asm__ volatile("" ::: "memory"); /* what is checked is the copy, not a second read */
	if (t.tail[0] % LANE_ALIGN != 0 || t.tail[1] % LANE_ALIGN != 0)
		return -EBADMSG;

	low = t.tail[1] < t.tail[0];
	for (unsigned i = 0; i < 2; i++) {
		unsigned from = i ? 1 - low : low;

		ret[i] = (struct lane_tail_found){ .tail = t.tail[from],
						   .chain = t.chain[from],
						   .differ = t.tail[0] != t.tail[1] };
	}
	return ret[0].tail == ret[1].tail && ret[0].chain == ret[1].chain ? 1 : 2;
}

/* True if a live record stands where copy i says, and follows what it says. */
static bool tail_copy_whole(const struct lane *l, const struct lane_tail *t, unsigned i)
{
	struct record_header h;

	return record_check(l, t->tail[i], t->tail[i], &h) == 0 && h.chain == t->chain[i];
}

void lane_tail_write(const struct lane *l, uint64_t tail, uint32_t chain)
{
	struct lane_header *h = lane_header(l);
	unsigned first = 0, second;
	struct lane_tail t;

	settle_line(&h->tail);
	memcpy(&t, &h->tail, sizeof(t));
	/* The one before was cut or killed half way: the copy that is whole must be the last to go.
	 * Where no record follows either, nothing hangs on them. */
	if ((t.tail[0] != t.tail[1] || t.chain[0] != t.chain[1]) && !tail_copy_whole(l, &t, 1) &&
	    tail_copy_whole(l, &t, 0))
		first = 1;
	second = 1 - first;
	/*
	 * The chains share an 8-byte word and a line may tear between words: all at once could leave
	 * the old tails with the new chains, and an empty walk. In three persists each torn state
	 * has one copy that is whole: the first with its chain (the second is whole), ...
	 */
	t.tail[first] = tail;
	t.chain[first] = chain;
	put_line(&h->tail, &t);
	/* ... the first is whole: the second moves, ... */
	t.tail[second] = tail;
	put_line(&h->tail, &t);
	/* ... and only where the tails are equal, so that an empty walk is no damage, its chain. */
	t.chain[second] = chain;
	put_line(&h->tail, &t);
}

void lane_beat_write(const struct lane *l, uint64_t time_ns, uint64_t head)
{
	const struct lane_beat beat = { .time_ns = time_ns, .head = head, .time_check = ~time_ns };

	put_line(&lane_header(l)->beat, &beat);
}

void lane_beat_read(const struct lane *l, uint64_t *ret_time_ns, uint64_t *ret_head)
{
	const struct lane_beat *beat = &lane_header(l)->beat;
	uint64_t time_ns = *(const volatile uint64_t *)&beat->time_ns;
	uint64_t check = *(const volatile uint64_t *)&beat->time_check;

	/*
	 * The time excuses changes of the files before it, so a damaged one may only be too early. Torn
	 * between its words the line has the times of two beats that follow each other, and the earlier
	 * was durable before: a healthy lane loses nothing by it.
	 */
	*ret_time_ns = check == 0 ? time_ns : min_of(time_ns, ~check);
	*ret_head = *(const volatile uint64_t *)&beat->head;
}
