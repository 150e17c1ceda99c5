/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One segment of a native log (abi/log.h), read. The daemon writes them: daemon/logs/. */

#include "abi/log.h"

/* A place in a segment. */
struct segment_reader {
	int fd; /* not owned */
	struct segment_header header;
	uint64_t offset;  /* of the next frame */
	uint64_t lsn;	  /* of the next frame */
	uint8_t *payload; /* of the last frame, owned */
	uint32_t room;
};

/* 0; -EBADMSG (no segment: magic, version, CRC, or first LSN not as named), or a negative errno. */
int segment_begin(struct segment_reader *r, int fd, uint64_t lsn);

/* The next frame and its payload (r->payload): 1; 0: the file ends here; -EBADMSG: what follows is no whole
 * frame; or a negative errno. The place moves on 1 only. */
int segment_next(struct segment_reader *r, struct segment_frame *ret);
void segment_end(struct segment_reader *r);

/* Fills in a frame's CRC, for the payload and the zeros that pad it. */
void segment_seal(struct segment_frame *f, const void *payload);
