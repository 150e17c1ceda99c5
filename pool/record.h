/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One record: is it valid where it stands? */

#include <stdint.h>

#include "pool/lane.h"

/*
 * Copies the record at `position` out of the lane and checks it: type and lengths in bounds, position
 * as it stands and in [tail, tail + ring), incarnation, CRC of header
 * and payload (PAD: header only). The chain is not checked here (walk does). Returns 0 and *ret (a private
 * copy), or -EBADMSG. Reads are plain: the caller guards against SIGBUS (guard.h).
 */
int record_check(const struct lane *l, uint64_t position, uint64_t tail, struct record_header *ret);

/*
 * Copies the payload of a checked record into dst (record->length bytes) and verifies that what was
 * copied still has the record's CRC: 0 or -EBADMSG (overwritten meanwhile, or damaged).
 */
int record_payload(const struct lane *l, const struct record_header *record, void *dst);

/* A run of neighbouring lines in the payload of LINES. Zero: before the first. */
struct lines_run {
	uint32_t line;	 /* of the block: where to look for the next */
	uint32_t offset; /* bytes from the block's start */
	uint32_t length; /* bytes */
	uint32_t taken;	 /* lines of the payload up to its end */
	const uint8_t *bytes;
};

/* The next run of a LINES payload of `length` bytes: 1 and *run, 0 behind the last, or -EBADMSG when the
 * map and the length do not agree. */
int lines_next(const void *payload, uint32_t length, struct lines_run *run);
