/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Reading a native log's records out of the lane while others append and the daemon trims. What is below the
 * published head is durable. A record may be trimmed, and its room used again, at any time: it counts only when
 * the tail has not passed it after it was copied.
 */

#include "abi/lane.h"
#include "pool/log.h"

/* A record of the log that was seen, to go on from. Zero: none. */
struct log_place {
	uint64_t position;
	uint64_t lsn;
	bool known;
};

/* Where the payload goes. */
struct log_buffer {
	uint8_t *bytes; /* owned by malloc */
	uint32_t room;
};

/*
 * The record that lsn lies in: its header and payload, checked. place: where to look from; becomes the record's.
 * 1; 0: it is not in the lane (trimmed from it: on disk by then; or not yet appended); -EBADMSG (damage, or a
 * hostile peer). reserve: bytes that b must have are told in *ret_need when the result is -ENOBUFS: no memory is
 * taken here, since the daemon calls this under a guard.
 */
int log_lane_read(const struct session *s, const struct log_ref *r, struct log_place *place,
		  uint64_t lsn, struct log_buffer *b, struct record_header *ret,
		  uint32_t *ret_need);

/* Room for n bytes in b: 0 or -ENOMEM. */
int log_buffer_room(struct log_buffer *b, uint32_t n);
void log_buffer_free(struct log_buffer *b);
