/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * RULE L and RULE F: how a call on a registered file is made. The shim's calls, the daemon's heal and
 * bypass transitions, and the crash simulator all come through here.
 */

#include "pool/session.h"

/* Just opened: the first lock notes it. No head is that high. */
#define OPEN_HEAD_UNKNOWN UINT64_MAX

/* One open file description of a registered file, as its process knows it. */
struct file_ref {
	struct ctl_file *f;
	uint64_t id; /* the entry must still carry it: else -ESTALE, open anew */
	int fd;
	uint64_t open_head; /* head at its first lock, or since its last sync error */
	int asked_flags;    /* O_DSYNC, O_SYNC, O_DIRECT, O_APPEND as the program asked */
};

/*
 * Takes the file's lock and puts right what a dead owner left: with `op` set RULE F first (heal,
 * fsync, FENCE). Returns 0, -ESTALE, -EDEADLK, -ETIMEDOUT (daemon), or -EIO (put right failed).
 */
int file_lock(struct session *s, const struct caller *who, struct file_ref *r);
void file_unlock(struct session *s, struct file_ref *r);

/* True if a dead process holds the file's lock, or left a call half made: its bytes may be seen, and some
 * of them may go when the next owner puts that right. A look without the lock. */
bool file_left_by_dead(const struct session *s, const struct ctl_file *f);

/*
 * Puts that right now, for somebody who is about to read: what has been read must not go afterwards. Never
 * waits for the living (file_left_by_dead says no). 0 or an error of file_lock.
 */
int file_settle(struct session *s, const struct caller *who, struct file_ref *r);

/* Real fsync under the file's lock with the degraded / synced book-keeping. 0 or a negative errno. */
int file_sync_locked(struct session *s, const struct caller *who, struct file_ref *r);

#define FILE_OFFSET_CURRENT (-1) /* use and move the description's position */

/*
 * A write under RULE L. offset: bytes, or FILE_OFFSET_CURRENT. In state lane: durable when it returns
 * (pwrite, then record). In bypass, or with st_nlink 0: the real write with RWF_DSYNC / RWF_SYNC as
 * asked (rwf_flags are the caller's own). Larger than the payload limit, or RWF_ flags other than
 * sync ones: RULE F. Lane full: waits; daemon gone: enters bypass and goes on. A TOUCH goes first
 * when the domain's last sign of life is older than 500 ms and the file has live records.
 * Returns bytes written, or the negative errno that the real file gave (never EINTR once begun).
 */
ssize_t file_write(struct session *s, const struct caller *who, struct file_ref *r,
		   const struct iovec *iov, int iovcnt, int64_t offset, int rwf_flags);

/* The real call in the middle of RULE F. Returns >= 0 or a negative errno. */
typedef long file_call(void *arg);

/*
 * RULE F around `call` (may be NULL): op set; live records: [heal,] fsync, FENCE; the call; fsync; op
 * cleared. Returns the call's result, or -EIO / the sync's errno without having made the call.
 */
long file_fenced(struct session *s, const struct caller *who, struct file_ref *r, file_call *call,
		 void *arg);
/* The same with the lock already held. */
long file_fenced_locked(struct session *s, const struct caller *who, struct file_ref *r,
			file_call *call, void *arg);

/* fsync, fdatasync of a registered file: 0 at once in state lane when nothing needs a real one. */
int file_sync(struct session *s, const struct caller *who, struct file_ref *r, bool data_only);

/* Bypass by RULE F without a call. Reason: enum ctl_bypass_reason. */
int file_enter_bypass(struct session *s, const struct caller *who, struct file_ref *r,
		      uint32_t reason);

/* Back to lane: the daemon only, under the lock, when nothing of the file is live. needs_sync is
 * raised before the state is stored. */
void file_leave_bypass_locked(struct session *s, struct file_ref *r);

/*
 * A size-neutral metadata call (chmod, utimes, xattr ...): needs_sync raised before and after; TOUCH
 * directly after if the file has live records; only reserve left: fsync and FENCE before.
 */
long file_touched(struct session *s, const struct caller *who, struct file_ref *r, file_call *call,
		  void *arg);

/*
 * unlink, or rename over it, of a registered file: with st_nlink 1 an UNLINK record before the call
 * and f->unlinked. Both entry points expect the lock held.
 */
long file_unlinking_locked(struct session *s, const struct caller *who, struct file_ref *r,
			   file_call *call, void *arg);
