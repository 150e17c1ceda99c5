/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/guard.h"

#include <errno.h>
#include <stddef.h>
#include <ucontext.h>

_Thread_local struct guard_frame *guard_top;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct guard_frame *top = guard_top;
	const ucontext_t *interrupted = context;
	struct sigaction plain = { .sa_handler = SIG_DFL };

	(void)info;
	if (top) {
		/* The jump skips the return that would give the mask back (a sanitizer's handler
		 * around ours blocks more than ours does). */
		(void)pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
		siglongjmp(top->jump, 1);
	}
	/* Nobody expected it: the same access faults again on return, now with the default action. */
	(void)sigaction(sig, &plain, NULL);
}

int guard_install(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}
