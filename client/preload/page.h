/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What a process knows of itself and a forked child must not inherit: one page that the kernel wipes
 * on fork (MADV_WIPEONFORK), however the fork was made. And which threads are inside a call of ours.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/mark.h"
#include "pool/session.h"

#define SHIM_SESSIONS \
	16u /* attached control files in a process's life; more: bypass. Bits of `slots` */

struct page {
	uint64_t key;	/* 0: wiped. Differs between all processes that share our memory by fork */
	uint32_t pid;	/* of the owner; a vfork child sees its parent's */
	uint32_t lock;	/* atomic, seq_cst: thread id that attaches, or 0; futex */
	uint32_t slots; /* atomic: bit i: this process has a slot in session i; release, acquire */
	/* under the lock: */
	uint32_t conn;		 /* descriptor of the socket + 1; 0: none */
	uint32_t outage;	 /* the daemon did not answer: do not wait for it again */
	uint64_t request_id;	 /* of the last request */
	uint64_t next_attach_ns; /* CLOCK_MONOTONIC: no attempt before */
	/* atomic, seq_cst: raised before the real open, lowered when the table has it; pairs with the look
	 * for strangers (open.c), which goes through the descriptors first */
	uint32_t
		moves; /* opens and closes under way: descriptors of rule files that are not in the table */
	/* atomic, relaxed: picks one caller that tries */
	uint64_t next_retry_ns; /* CLOCK_MONOTONIC: no re-attach of a file before */
};
extern struct page *page; /* NULL while the library is inert; constant after the constructor */

/* Maps the page. Constructor. 0 or a negative errno. */
int page_init(void);

/* Makes the page ours after a fork wiped it; idempotent, cheap when there is nothing to do. */
void page_own(void);

/* True in a child of vfork, which runs in its parent's memory: it must not change our tables. */
bool page_foreign(void);

/*
 * A call that takes a lock begins: fills *who; mark lies in the caller's frame and lives until
 * mark_leave. Returns 0, or -EDEADLK: a signal handler came from inside another such call of this
 * thread. A mark left by a longjmp is noticed and gives who->stale_self.
 */
int mark_enter(struct call_mark *m, struct caller *who);
void mark_leave(struct call_mark *m);

/* The attach lock: one thread of the process at a time. wait false: -EAGAIN if it is taken. */
int page_lock(const struct caller *who, bool wait);
void page_unlock(void);
