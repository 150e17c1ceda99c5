/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/guard.h"

#include <errno.h>
#include <stddef.h>

_Thread_local struct guard_frame *guard_top;

static void on_sigbus(int sig)
{
	struct guard_frame *top = guard_top;
	struct sigaction plain = { .sa_handler = SIG_DFL };

	if (top)
		siglongjmp(top->jump, 1);
	/* Nobody expected it: the same access faults again on return, now with the default action. */
	(void)sigaction(sig, &plain, NULL);
}

int guard_install(void)
{
	struct sigaction action = { .sa_handler = on_sigbus, .sa_flags = SA_NODEFER };

	return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}
