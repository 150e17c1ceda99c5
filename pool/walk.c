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

/* A valid record beyond P that began when more than P was durable: P was acknowledged. */
static bool acknowledged_beyond(const struct walk *w)
{
	const struct lane *l = w->lane;
	uint64_t end = w->tail + l->ring_size;
	struct record_header h;

	for (uint64_t p = w->position + LANE_ALIGN; p < end; p += LANE_ALIGN) {
		const struct record_header *at = (const void *)lane_at(l, p);

		/* two fields tell nearly all of a ring apart without a CRC */
		if (at->position != p || at->incarnation != l->incarnation)
			continue;
		if (record_check(l, p, w->tail, &h) == 0 && h.drained > w->position)
			return true;
	}
	return false;
}

enum walk_verdict walk_judge(const struct walk *w, bool tails_differ, bool empty,
			     const char **ret_why)
{
	uint64_t beat_ns, beat_head;

	lane_beat_read(w->lane, &beat_ns, &beat_head);
	*ret_why = NULL;
	if (beat_head > w->position)
		*ret_why = "the heartbeat's head lies beyond the first invalid record";
	else if (tails_differ && empty)
		*ret_why = "the two tails differ and no record is valid from either";
	else if (acknowledged_beyond(w))
		*ret_why = "a record beyond the first invalid one proves that it was acknowledged";
	return *ret_why ? WALK_DAMAGED : WALK_CLEAN;
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
	return walk_judge(ret, found[0].differ, !good, ret_why) == WALK_CLEAN ? 0 : -EBADMSG;
}
