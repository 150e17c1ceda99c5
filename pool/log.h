/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Appending to a native log (abi/log.h). Its positions in the log are given out here, so that none is given twice
 * or left out, whoever dies where.
 *
 * Locks: the entry's (producers of the stage), then the lane's.
 *
 * Who appends without waiting copies into the stage, which is ordinary memory; whoever waits first moves all
 * of it into the lane, as one batch with one drain. So the stores that a drain is to make durable are always
 * its own thread's: a drain (sfence) orders the non-temporal stores of its own processor and
 * says nothing about those that another one may still have in its buffers.
 */

#include "abi/log.h"
#include "pool/session.h"

/* One log in one attached domain. */
struct log_ref {
	struct ctl_file *f;
	struct ctl_log *l;
	uint8_t *stage; /* CTL_LOG_STAGE */
	uint64_t id;	/* of the log; another one in the entry: -ESTALE */
};

enum log_outcome {
	LOG_OK = 0,
	LOG_FULL = 1,	    /* no room in the lane: nothing of this call is there; see space_wait */
	LOG_STAGE_FULL = 2, /* no room in the stage: log_move makes some */
};

/* Where a log's parts lie in a mapping that begins at CTL_LOGS_OFFSET. f is left to the caller. */
void log_ref_at(struct log_ref *ret, uint8_t *logs, uint32_t slot);

/*
 * Moves what is in the stage into the lane, then appends one record of `length` payload bytes (1 to
 * record_payload_max) behind it; both durable when it returns. *ret_lsn: the record's. The payload is read
 * once. One drain.
 * Persist order: [PAD,] payload, header of each record, drain: all are durable; then head is published,
 * then lsn.
 * LOG_OK; LOG_FULL (what fitted of the stage has been moved); -ESTALE, -ENOSPC (capacity), -EOVERFLOW,
 * -EBADMSG (the stage is damaged), -EINVAL, or a negative errno of lock_acquire: the record is not there.
 */
int log_append(struct session *s, const struct caller *who, const struct log_ref *r,
	       const struct iovec *iov, int iovcnt, uint32_t length, uint64_t *ret_lsn);

/* Copies one record into the stage: it has its LSN and is not durable. LOG_OK, LOG_STAGE_FULL (also for one
 * above half the stage: log_append), or a negative errno as above. */
int log_stage(struct session *s, const struct caller *who, const struct log_ref *r,
	      const struct iovec *iov, int iovcnt, uint32_t length, uint64_t *ret_lsn);

/*
 * Makes the record at lsn durable, and all before it, by moving the stage into the lane if it is not there
 * yet. LOG_OK; LOG_FULL (what fitted has been moved); -ENXIO: no such record; others as above.
 * Persist order: as log_append.
 */
int log_move(struct session *s, const struct caller *who, const struct log_ref *r, uint64_t lsn);

/* Puts lsn and out right after somebody died between publishing a head and these; cheap when nobody did. The
 * daemon does it before each trim, whoever opens a log before it reads its end. 0 or a negative errno. */
int log_settle(struct session *s, const struct caller *who, const struct log_ref *r);

/* LSN behind all that is durable. Acquire: records below it are visible. */
uint64_t log_end(const struct log_ref *r);
