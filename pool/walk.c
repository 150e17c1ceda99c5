/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/walk.h"

#include <errno.h>

#include "pool/record.h"

void walk_begin(struct walk *w, const struct lane *l, uint64_t tail, uint32_t chain, uint64_t limit)
{
	*w = (struct walk){
		.lane = l, .tail = tail, .position = tail, .limit = limit, .chain = chain
	};
}

int walk_next(struct walk *w, struct record_header *ret)
{
	uint64_t bytes;

	if (w->position >= w->limit)
		return WALK_END;
	if (record_check(w->lane, w->position, w->tail, ret) < 0 || ret->chain != w->chain)
		return WALK_STOP;
	bytes = record_bytes(ret->length);
	if (bytes > w->limit - w->position)
		return WALK_STOP;
	w->position += bytes;
	w->chain = ret->crc;
	return WALK_RECORD;
}

/* What lies in the ring beside the walk. */
struct beside {
	bool beyond;	/* a record that began when more than P was durable: P was acknowledged */
	bool strange;	/* a record where none of this incarnation can be */
	uint64_t below; /* end of the last record below the tail, 0: none */
	uint32_t crc;	/* its CRC field */
};

static void look_at(const struct walk *w, uint64_t position, struct beside *b)
{
	const struct lane *l = w->lane;
	struct record_header h;
	uint64_t end;

	if (position >= w->tail && position - w->tail < l->ring_size) {
		if (position < w->position || record_check(l, position, w->tail, &h) < 0)
			return;
		if (position > w->position)
			b->beyond = b->beyond || h.drained > w->position;
		else if (w->position == w->tail && position % l->ring_size != 0)
			/* Whole, and the chain to it is not. At the ring's start it may be what a dead
			 * owner left behind a PAD. */
			b->strange = true;
		return;
	}
	/* What was trimmed says nothing about the end of a walk that found something. */
	if (w->position != w->tail || record_check(l, position, position, &h) < 0)
		return;
	end = position + record_bytes(h.length);
	if (position > w->tail || end > w->tail) {
		b->strange = true;
	} else if (end > b->below) {
		b->below = end;
		b->crc = h.crc;
	}
}

static void look_beside(const struct walk *w, struct beside *ret)
{
	const struct lane *l = w->lane;

	*ret = (struct beside){ .below = 0 };
	for (uint64_t place = 0; place < l->ring_size; place += LANE_ALIGN) {
		const struct record_header *at = (const void *)lane_at(l, place);
		uint64_t position;

		/* two fields tell nearly all of a ring apart without a CRC */
		if (at->incarnation != l->incarnation)
			continue;
		position = *(const volatile uint64_t *)&at->position;
		if (position % l->ring_size == place)
			look_at(w, position, ret);
	}
}

/*
 * Nothing is valid from the tail: is the lane empty, or is the tail not the lane's (both copies damaged, or
 * cleared with the poison that was in their block)? The last record that was trimmed ends where the tail
 * stands and has the CRC that the tail's chain names; without one the chain is 0. A chain of 0 is right
 * behind any record: lane_set_incarnation clears it before the incarnation changes. Of two chains at one
 * tail (a cut in lane_tail_write) the walk keeps the right one.
 */
static bool tail_proven(struct walk *w, const struct beside *b, const struct lane_tail_found *found,
			int n)
{
	bool proven = false;

	for (int i = 0; i < n; i++) {
		if (b->below != 0 && b->below == w->tail && found[i].chain == b->crc) {
			w->chain = found[i].chain;
			return true;
		}
		proven = proven || found[i].chain == 0;
	}
	return proven && (b->below == 0 || b->below == w->tail);
}

/* 0, or -EBADMSG: the walk that stopped at w->position has missed an acknowledged record. */
static int judge(struct walk *w, const struct lane_tail_found *found, int n, bool empty,
		 const char **ret_why)
{
	uint64_t beat_ns, beat_head;
	struct beside b;
	bool proven;

	lane_beat_read(w->lane, &beat_ns, &beat_head);
	*ret_why = NULL;
	if (beat_head > w->position)
		*ret_why = "the heartbeat's head lies beyond the first invalid record";
	else if (found[0].differ && empty)
		*ret_why = "the two tails differ and no record is valid from either";
	if (*ret_why)
		return -EBADMSG;
	look_beside(w, &b);
	proven =
		!empty || tail_proven(w, &b, found, n) ||
		/* A heartbeat there says that it is a head; one that was never written, or cleared,
		  * does not. */
		(beat_ns != 0 && beat_head == w->position);
	if (b.beyond)
		*ret_why = "a record beyond the first invalid one proves that it was acknowledged";
	else if (b.strange)
		*ret_why = "a whole record stands where none can follow from its tail";
	else if (!proven)
		*ret_why =
			"no record is valid from its tail, and others say that it stood elsewhere";
	return *ret_why ? -EBADMSG : 0;
}

int walk_find_head(const struct lane *l, struct walk *ret, uint32_t *ret_tail_chain,
		   const char **ret_why)
{
	struct lane_tail_found found[2];
	int n = lane_tail_read(l, found);
	struct record_header h;
	bool good = false;
	int i;

	if (n < 0) {
		*ret_why = "a tail is no multiple of 64";
		return n;
	}

	/*
	 * The walk from a tail that was valid passes the other, higher one: the space between them is
	 * given free only when both are written. So a lower tail whose walk ends before the higher
	 * has a chain that is not its own (torn), or damage below a tail that was already good.
	 */
	for (i = 0; i < n; i++) {
		walk_begin(ret, l, found[i].tail, found[i].chain, UINT64_MAX);
		while (walk_next(ret, &h) == WALK_RECORD)
			;
		good = ret->position > ret->tail && ret->position >= found[n - 1].tail;
		if (good)
			break;
	}
	/* Nothing valid from anywhere: judged from the highest tail, where the walk stands now. */
	if (i == n)
		i = n - 1;

	*ret_tail_chain = found[i].chain;
	if (good)
		return judge(ret, found, n, false, ret_why);
	n = judge(ret, found, n, true, ret_why);
	*ret_tail_chain = ret->chain;
	return n;
}
