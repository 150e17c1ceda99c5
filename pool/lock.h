/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Locks in the control file, with takeover from the dead. Order: file lock, then lane lock; two file
 * locks by entry index.
 */

#include <stdint.h>

#include "pool/slot.h"

enum lock_outcome {
	LOCK_TAKEN = 0,
	LOCK_OWNER_DIED = 1, /* taken from a dead owner: the caller puts right what it left */
};

#define LOCK_FOREVER UINT64_MAX

/*
 * Takes a lock: CAS from 0; else spin, then futex, and every 100 ms a look at the owner. Dead owner:
 * one CAS from exactly the dead word. tid: this thread's id (0 < tid < 2^24).
 * timeout_ns: LOCK_FOREVER for sessions; the daemon gives 1 s.
 * stale_self: the caller knows that its own thread's mark was left by a longjmp, so its own exact word
 * counts as a dead owner's.
 * Returns enum lock_outcome, -EDEADLK (this thread holds it: a signal handler came from inside), or
 * -ETIMEDOUT. Only raw system calls; touches no errno; async-signal-safe.
 * Acquire: pairs with lock_release of the former owner.
 */
int lock_acquire(const struct control *c, struct ctl_lock *lock, const struct holder *me,
		 uint32_t tid, uint64_t timeout_ns, int stale_self);

/* Gives a lock back and wakes one waiter if there is any. */
void lock_release(struct ctl_lock *lock);

/* Gives a lock back as its dead owner left it, for a holder that cannot put right what that one left:
 * the next lock_acquire, whoever's, returns LOCK_OWNER_DIED at once. */
void lock_release_died(struct ctl_lock *lock);
