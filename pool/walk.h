/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* From tail to head, record by record, and what the end of the walk means. */

#include <stdbool.h>
#include <stdint.h>

#include "pool/lane.h"

enum walk_outcome {
	WALK_RECORD = 1, /* *ret is a valid record */
	WALK_END = 2,	 /* the limit was reached: nothing is wrong */
	WALK_STOP = 3,	 /* first invalid position before the limit */
};

struct walk {
	const struct lane *lane;
	uint64_t tail;	   /* where it began */
	uint64_t position; /* of the next record */
	uint64_t limit;	   /* do not go beyond; UINT64_MAX: until the first invalid position */
	uint32_t chain;	   /* CRC field of the record before `position` */
};

/* Begins a walk. limit: a head known from the control file, or UINT64_MAX after a power cut. */
void walk_begin(struct walk *w, const struct lane *l, uint64_t tail, uint32_t chain,
		uint64_t limit);

/* Next record (PAD included) with chain checked. Returns enum walk_outcome; position stays where the
 * walk stopped. Never goes beyond tail + ring_size. */
int walk_next(struct walk *w, struct record_header *ret);

/*
 * Finds the head after a power cut: reads the tail candidates, walks from each, takes the first that
 * is valid, judges. On 0 *ret stands at the head with tail and chain set, *ret_tail_chain is the
 * chain at its tail. -EBADMSG: an acknowledged record is damaged, ret_why (static text) says by what it
 * shows: a valid record with `drained` above the position stands later in the ring; the heartbeat's
 * head lies beyond it; the two tails differ and nothing was found from either; nothing was found and the
 * records that were trimmed, or the lack of them, say that the tail is not the lane's. The caller guards
 * against SIGBUS.
 */
int walk_find_head(const struct lane *l, struct walk *ret, uint32_t *ret_tail_chain,
		   const char **ret_why);
