/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One lane: its mapping, header, tail and heartbeat. Records are in record.h, walk.h, append.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/lane.h"

struct lane {
	uint8_t *base;	    /* mapping of the whole lane file; not owned by this struct's copies */
	size_t map_bytes;   /* LANE_HEADER_BYTES + ring_size */
	uint64_t ring_size; /* bytes, checked against the mapping once */
	uint64_t incarnation;
	uint32_t number;
};

static inline struct lane_header *lane_header(const struct lane *l)
{
	return (struct lane_header *)(void *)l->base;
}

/* Address of a position in the ring. */
static inline uint8_t *lane_at(const struct lane *l, uint64_t position)
{
	return l->base + LANE_HEADER_BYTES + position % l->ring_size;
}

struct lane_tail_found {
	uint64_t tail;
	uint32_t chain;
	bool differ; /* the two copies have different tails */
};

/*
 * Writes a new lane header (both identity copies, tail and heartbeat zero) into a mapping of
 * LANE_HEADER_BYTES + ring_size bytes and makes it durable; the ring must read as zero. For the
 * daemon, at allocation, before anybody else sees the file. Returns 0 or -EINVAL (sizes).
 * Persist order: tail and heartbeat, copy, drain; identity, drain: a valid identity means all is.
 */
int lane_format(struct lane *ret, void *base, size_t map_bytes, uint32_t number, uint64_t ring_size,
		uint64_t incarnation);

/*
 * Reads and checks the identity of a mapped lane (first valid copy: 0, then LANE_COPY_OFFSET).
 * Returns 0, -EBADMSG (neither copy valid), -EINVAL (sizes do not fit the mapping). Changes nothing.
 */
int lane_attach(struct lane *ret, void *base, size_t map_bytes);

/* Gives the lane a new incarnation with no live records: tail stays, chain becomes 0. Only while
 * nobody has a slot and tail == head. Durable on return.
 * Persist order: the first identity as it stands (a killed writer may not have drained it); tail line (chain 0), drain; copy, drain; identity, drain. A cut in between leaves
 * either incarnation with an empty walk. */
void lane_set_incarnation(struct lane *l, uint64_t incarnation);

/*
 * The tail as it stands: where the copies differ, the caller walks from the lower one first
 * (ret[0]), then the other (ret[1]); equal tails with different chains give both pairs too. Returns
 * how many candidates (1 or 2), or -EBADMSG (a tail that is no multiple of 64).
 */
int lane_tail_read(const struct lane *l, struct lane_tail_found ret[2]);

/* Moves the tail; never back. Durable on return. Daemon and recovery only. The line as it stands is made durable
 * first: a killed writer may not have drained it. Then one line in three persists
 * (copy 0 with its chain; tail 1; chain 1): a line may tear between its 8-byte words, and both
 * chains share one. */
void lane_tail_write(const struct lane *l, uint64_t tail, uint32_t chain);

/* Persists the heartbeat (one line). The daemon's heartbeat thread only. head must be durable. Read: of
 * the time and its check the earlier, where they differ (torn, or damaged). */
void lane_beat_write(const struct lane *l, uint64_t time_ns, uint64_t head);
void lane_beat_read(const struct lane *l, uint64_t *ret_time_ns, uint64_t *ret_head);
