/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Reads of pool and control memory that survive SIGBUS (poison, a truncated file). Daemon, pmemlogctl
 * and tests only: the shim never installs a signal handler.
 */

#include <setjmp.h>
#include <signal.h>

/* Installs the process-wide SIGBUS handler once. A SIGBUS outside a guard is passed to the default
 * action. The interrupted mask is put back before the jump. Returns 0 or a negative errno. */
int guard_install(void);

/* Internals of the macro: the innermost guard of this thread. */
struct guard_frame {
	sigjmp_buf jump;
	struct guard_frame *outer;
};
extern _Thread_local struct guard_frame *guard_top;

/*
 * GUARD(expr): evaluates an int expression; -EFAULT if a SIGBUS came from inside. No lock, allocation
 * or descriptor may be taken inside that the expression would have given back. Guards may nest.
 *	r = GUARD(walk_find_head(lane, &w, &chain, &why));
 */
#define GUARD(expr)                                   \
	({                                            \
		struct guard_frame guard_;            \
		int guard_r_;                         \
		guard_.outer = guard_top;             \
		if (sigsetjmp(guard_.jump, 0) == 0) { \
			guard_top = &guard_;          \
			guard_barrier();              \
			guard_r_ = (expr);            \
			guard_barrier();              \
		} else {                              \
			guard_r_ = -EFAULT;           \
		}                                     \
		guard_top = guard_.outer;             \
		guard_r_;                             \
	})

/* The signal handler reads guard_top: no store to it may move over an inlined expression. */
#define guard_barrier() __asm__ volatile("" ::: "memory")
