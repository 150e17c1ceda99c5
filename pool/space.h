/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Lane space: reserved before the real call, so that a call that was made can always be recorded.
 * Kept free for others: SPACE_FILE_RESERVE for each file with live records (64 for one FENCE, 64 for
 * one UNLINK).
 */

#include "pool/session.h"

#define SPACE_FILE_RESERVE 128u

enum space_outcome {
	SPACE_OK = 0,
	SPACE_FULL = 1, /* no room now */
	SPACE_STALLED =
		2, /* no room, and no progress of the daemon for reconnect_timeout: bypass */
};

/* Bytes to reserve for one record of `length` payload bytes: twice its size, since a PAD may be
 * needed, and the reserve of a file that becomes live with it. */
uint64_t space_for(uint32_t length);

/* Notes `bytes` in the slot and the total under the lane lock. SPACE_OK, SPACE_FULL, or a negative
 * errno of lock_acquire. Caller holds the file lock. */
int space_reserve(struct session *s, const struct caller *who, uint64_t bytes);

/* Gives a reservation back (call failed, or appended). Under the lane lock taken here. */
int space_release(struct session *s, const struct caller *who, uint64_t bytes);

/* The same with the lane lock held by the caller. Never more than is noted. */
void space_give_back_locked(struct session *s, uint64_t bytes);

/* Recomputes the total from the notes of the living (dead slots' notes become 0) and live_files.
 * The lane lock is held by the caller. */
void space_recount_locked(struct session *s);

/* The same, under the lane lock taken here: after a file lock's owner died. 0 or a negative errno. */
int space_recount(struct session *s, const struct caller *who);

/* The notes' half of it, for who has no lane yet (slot_take). `me` counts as living. */
void space_recount_notes(const struct control *c, const struct holder *me);

/*
 * Waits, without any lock, until trim_seq moves from `seq` (read before the failed reservation) or
 * the daemon counts as stalled. Wakes the daemon first. SPACE_OK: try again; SPACE_STALLED.
 * Stalled: no progress for reconnect_timeout, or 10 x reconnect_timeout without room. Progress is
 * daemon_seq moving (a daemon started), and daemon_ns moving while slot 0 is held: a destager that
 * tries and fails is there, a word that stays in motion after its daemon died is not. A daemon that was
 * given up counts as stalled at once until one of the words moves: an outage is waited for once.
 * The daemon itself never waits: SPACE_STALLED at once.
 */
int space_wait(struct session *s, uint32_t seq);

/*
 * Daemon, before the syncs of a destage step: the head that the step may trim to. From here on each file's
 * first rewrite logs its whole block again, so that no LINES record outlives the WRITE under it (see
 * pool/image.h). Under the lane lock: 0, or -ETIMEDOUT, and then nothing may be trimmed.
 */
int space_mark(struct session *s, const struct caller *who, struct ctl_cell *ret_head);

/* Daemon: publishes the trimmed tail (already persisted in the lane) and the exact live_files under
 * the lane lock, raises trim_seq, wakes the waiters. 0 or -ETIMEDOUT. */
int space_publish_tail(struct session *s, const struct caller *who, uint64_t tail);

/* True if the file has records that recovery would replay: last > max(tail, fence). */
bool space_file_live(const struct session *s, const struct ctl_file *f);
