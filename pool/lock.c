/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of the words and their order: tests/models/slots.pml. */
#include "pool/lock.h"

#include <errno.h>
#include <stdbool.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/overflow.h"
#include "pool/slot_word.h"

#define SPINS	200u		    /* about 10 us of pauses; an append holds the lock for less */
#define LOOK_NS UINT64_C(100000000) /* between two looks at the owner */

static uint32_t *low_half(uint64_t *word)
{
	return (uint32_t *)(void *)word; /* little-endian; the half with the thread id */
}

/* True if the owner of `seen` cannot come back. System calls. */
static bool owner_dead(const struct control *c, uint64_t seen, uint64_t mine)
{
	long r;

	/* A byte lock of our own process says nothing about one of its threads. */
	if (seen >> 24 != mine >> 24)
		return slot_dead(c, seen);
	r = sys_call3(SYS_tgkill, sys_call0(SYS_getpid), word_tid(seen), 0);
	return r == -ESRCH;
}

static int take_over(const struct control *c, struct ctl_lock *lock, uint64_t dead, uint64_t mine)
{
	/* Seq_cst: acquires what the dead owner did before its last store under the lock. From exactly the
	 * dead word: of two that take over one gets it. */
	if (!atomic_cas_seq(&lock->word, &dead, mine))
		return -EAGAIN; /* somebody was faster */
	atomic_add_relaxed(&c->hot->owner_died, 1);
	return LOCK_OWNER_DIED;
}

/* Spins as long as it may pay, then sleeps; true when the word was seen free. */
static void wait_free(struct ctl_lock *lock, uint64_t wait_ns)
{
	uint64_t seen;

	/* Seq_cst raise, then the last look; lock_release stores 0, then looks at waiters. One of the
	 * two sees the other. */
	atomic_add_seq(&lock->waiters, 1);
	seen = atomic_load_seq(&lock->word);
	if (seen != 0)
		(void)futex_wait(low_half(&lock->word), (uint32_t)seen, wait_ns);
	/* Before the next look at the word (seq_cst): who gives the lock back and still sees a wake
	 * under way has stored 0 before that look. */
	atomic_store_seq(&lock->waking, 0);
	atomic_sub_seq(&lock->waiters, 1);
}

int lock_acquire(const struct control *c, struct ctl_lock *lock, const struct holder *me,
		 uint32_t tid, uint64_t timeout_ns, int stale_self)
{
	uint64_t mine = word_of(me, tid), seen = 0;
	uint64_t now, begin, look;
	int r;

	/* Seq_cst on success: acquires what the former owner released. */
	if (atomic_cas_seq(&lock->word, &seen, mine))
		return LOCK_TAKEN;
	if (seen == mine) {
		if (!stale_self)
			return -EDEADLK;
		/* relaxed: a counter for status, here and in take_over */
		atomic_add_relaxed(&c->hot->owner_died, 1);
		return LOCK_OWNER_DIED;
	}

	for (unsigned i = 0; i < SPINS; i++) {
		cpu_relax();
		seen = 0;
		/* Relaxed: the exchange behind it acquires, as above. */
		if (atomic_load_relaxed(&lock->word) == 0 &&
		    atomic_cas_seq(&lock->word, &seen, mine))
			return LOCK_TAKEN;
	}

	begin = now_monotonic_ns();
	look = begin + LOOK_NS;
	for (;;) {
		uint64_t wait_ns;

		seen = 0;
		if (atomic_cas_seq(&lock->word, &seen, mine))
			return LOCK_TAKEN;
		now = now_monotonic_ns();
		if (now >= look || word_slot(seen) >= CTL_SLOTS) {
			look = now + LOOK_NS;
			if (owner_dead(c, seen, mine)) {
				r = take_over(c, lock, seen, mine);
				if (r >= 0)
					return r;
				continue;
			}
		}
		if (timeout_ns != LOCK_FOREVER && now - begin >= timeout_ns)
			return -ETIMEDOUT;
		wait_ns = look - now;
		if (timeout_ns != LOCK_FOREVER)
			wait_ns = min_of(wait_ns, timeout_ns - (now - begin));
		wait_free(lock, wait_ns);
	}
}

static void release_as(struct ctl_lock *lock, uint64_t word)
{
	/* Seq_cst: releases what was done under the lock, and is ordered before the look at waiters
	 * (see wait_free). */
	(void)atomic_xchg_seq(&lock->word, word);
	if (atomic_load_seq(&lock->waiters) == 0)
		return;
	/* One wake at a time: until the woken has run, each release would make the same system call
	 * for nothing. */
	if (atomic_load_seq(&lock->waking) != 0 || atomic_xchg_seq(&lock->waking, 1) != 0)
		return;
	if (futex_wake(low_half(&lock->word), 1) > 0)
		return;
	/* Nobody slept yet; and who is about to may sleep on this owner's next hold. */
	atomic_store_seq(&lock->waking, 0);
	/* The next owner may have given the lock back since, and left the wake to us. Seq_cst: it
	 * stored the word before it looked at `waking`. */
	word = atomic_load_seq(&lock->word);
	if (word == 0 || word_slot(word) >= CTL_SLOTS)
		(void)futex_wake(low_half(&lock->word), 1);
}

void lock_release(struct ctl_lock *lock)
{
	release_as(lock, 0);
}

void lock_release_died(struct ctl_lock *lock)
{
	release_as(lock, WORD_DIED);
}
