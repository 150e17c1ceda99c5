/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Appending one record: durable when append returns. */

#include "pool/session.h"

enum append_outcome {
	APPEND_OK = 0,
	APPEND_FULL = 1, /* no room in spite of a reservation; nothing was written */
	APPEND_NO_BASE =
		2, /* LINES whose block may be trimmed: nothing was written, reserved is kept */
};

struct append_request {
	uint16_t type;	/* enum record_type, not PAD */
	uint16_t flags; /* RECORD_INLINE */
	uint64_t offset;
	const struct iovec *iov; /* payload; read once */
	int iovcnt;
	uint32_t length;   /* bytes taken from the start of iov */
	uint64_t rule_f;   /* LINES: hot's counter before its block was logged whole */
	uint64_t reserved; /* what space_reserve noted for it; released under the same lane lock */
};

/*
 * Appends one record for entry *f (its lock is held by the caller; NULL only for tests: file id then
 * from file_id). Takes the lane lock for copy and drain only; publishes {head, chain}; sets f->first,
 * f->last or f->fence, live_files; wakes the destager if it sleeps. FENCE and UNLINK of a file with live
 * records may use the reserve, of any other file they may not: it was trimmed since the caller looked, and
 * neither is needed any more, so that APPEND_FULL is no failure there. One drain. Reads the payload from the caller's memory once, through a bounce block.
 * Persist order: [PAD header,] payload, header, drain: the record is durable; then head is published.
 * A dead owner of the lane lock: the header at head is zeroed and drained first.
 * Returns enum append_outcome, or a negative errno of lock_acquire. ret_position may be NULL.
 */
int append_record(struct session *s, const struct caller *who, struct ctl_file *f, uint64_t file_id,
		  const struct append_request *r, uint64_t *ret_position);
