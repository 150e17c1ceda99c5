/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Which thread is inside a call of ours, for the shim and the library alike: the thread's id for lock words, a
 * signal handler that comes from inside (-EDEADLK), a call that was left by a longjmp (stale_self).
 */

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/sys.h"
#include "pool/session.h"

/* One call under way; lies in its frame. */
struct call_mark {
	uint64_t
		canary; /* address of this mark ^ key: a frame that was left is soon written over */
};

/* What a thread knows of itself. Zero at first; initial-exec, so that no first use of it allocates and it
 * may be touched in a signal handler. */
struct mark_self {
	uint64_t key; /* of the process that the rest was written in */
	uint32_t tid;
	struct call_mark *mark; /* innermost call of ours, or NULL */
};

/* True if the call that made the mark is still under way below us on the stack. */
static inline bool mark_lives(const struct mark_self *self, const struct call_mark *inner)
{
	const struct call_mark *outer = self->mark;
	stack_t ss = { .ss_flags = 0 };

	/* Called again from where the one that was left was: the very same place. */
	if (inner == outer)
		return false;
	/* Stacks grow down: a handler's frame lies below the frame that it interrupted, unless it has
	 * a stack of its own. */
	if (inner > outer) {
		(void)sys_call2(SYS_sigaltstack, NULL, &ss);
		if (!(ss.ss_flags & SS_ONSTACK))
			return false;
	}
	return outer->canary == ((uint64_t)(uintptr_t)outer ^ self->key);
}

/* A call begins. key: differs between all processes that share our memory by fork. 0 and *who, or -EDEADLK. */
static inline int mark_begin(struct mark_self *self, uint64_t key, struct call_mark *m,
			     struct caller *who)
{
	if (self->key != key) {
		/* First call of this thread, or of a forked child: nothing it knows is true here. */
		self->mark = NULL;
		self->tid = sys_gettid();
		self->key = key;
	}
	who->tid = self->tid;
	if (self->mark && mark_lives(self, m))
		return -EDEADLK;
	/* We are inside of nothing: a lock with this thread's word in it was left by a longjmp, out of the last
	 * call or out of one before it, on another file. */
	who->stale_self = 1;
	m->canary = (uint64_t)(uintptr_t)m ^ key;
	/* A handler of this thread may come at any instruction: the mark is whole before it shows. */
	__asm__ volatile("" ::: "memory");
	self->mark = m;
	__asm__ volatile("" ::: "memory");
	return 0;
}

static inline void mark_end(struct mark_self *self, struct call_mark *m)
{
	__asm__ volatile("" ::: "memory");
	self->mark = NULL;
	m->canary = 0;
}
