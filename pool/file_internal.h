/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What file.c, write.c, fence.c and heal.c share. All of it expects the file's lock held, and only
 * raw system calls below it (a cancellation or a signal handler may come at any instruction).
 */

#include "base/atomic.h"
#include "base/overflow.h"
#include "pool/append.h"
#include "pool/file.h"
#include "pool/space.h"

/* Newest sign of life of the domain older than this: a TOUCH before the file's ctime changes. Half of
 * the second by which recovery lets a ctime be later than every record. */
#define FILE_TOUCH_NS UINT64_C(500000000)

/* Bytes of a file that a heal leaves alone: the caller's own write, newer than every record. */
struct file_range {
	uint64_t offset, length; /* bytes */
};

/* The entry's real file behind r->fd: 0 and *ret, or -ESTALE when the descriptor was closed or used
 * anew behind our back. */
int file_look(struct session *s, struct file_ref *r, struct stat *ret);

/* True where replay would write something to this file. */
static inline bool file_live(const struct session *s, const struct ctl_file *f)
{
	return space_file_live(s, f);
}

/*
 * A TOUCH before a real call, when the file is live and nothing told of the domain's life for
 * FILE_TOUCH_NS. 0, or -ENOSPC: only reserve left.
 */
int file_touch_before(struct session *s, const struct caller *who, struct file_ref *r);

/* A TOUCH now, if the file is live. 0, or -ENOSPC: only reserve left. */
int file_touch_now(struct session *s, const struct caller *who, struct file_ref *r);

/* The books of a sync that failed. */
void file_sync_failed(struct session *s, struct file_ref *r);

/* fsync (data_only: fdatasync, which proves no metadata call) with the degraded / synced books. */
int file_real_sync(struct session *s, struct file_ref *r, bool data_only);

/*
 * Makes the file's live records durable in it and says so: [heal,] fsync, FENCE. Heals when the sync
 * alone would prove too little, or when `heal` is set. keep (may be NULL): bytes that a heal leaves
 * alone. Afterwards nothing of the file is live. 0 or a negative errno (no FENCE written).
 */
int file_fence(struct session *s, const struct caller *who, struct file_ref *r, bool heal,
	       const struct file_range *keep);

/* Finishes what an interrupted RULE F left: heal, fsync, FENCE; clears op. 0 or a negative errno. */
int file_put_right(struct session *s, const struct caller *who, struct file_ref *r);

/* Into bypass; the lock is held. keep as above. 0 or a negative errno (state unchanged). */
int file_bypass_locked(struct session *s, const struct caller *who, struct file_ref *r,
		       uint32_t reason, const struct file_range *keep);

/* heal_locked, which leaves the bytes of *keep (may be NULL) alone. */
int heal_around(struct session *s, const struct caller *who, struct file_ref *r,
		const struct file_range *keep);

/* The file's end of trusted history: no record below it can be live. */
static inline uint64_t file_oldest_live(const struct session *s, const struct ctl_file *f)
{
	/* Acquire pairs with space_publish_tail: what was trimmed is durable in its file. */
	uint64_t tail = atomic_load_acquire(&s->ctl.hot->tail);
	uint64_t from = max_of(f->first, f->fence);

	return max_of(from, tail);
}
