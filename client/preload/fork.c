/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A child needs nothing from us at fork: the kernel wipes the page. The parent counts. */
#include "client/preload/fork.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "client/preload/real.h"

static uint32_t forks; /* atomic, relaxed: compared with itself only */

uint32_t fork_count(void)
{
	return atomic_load_relaxed(&forks);
}

static pid_t shim_fork(void)
{
	/* Before: a token taken while the child comes into being counts as shared. */
	(void)atomic_add_relaxed(&forks, 1);
	if (real.fork)
		return real.fork();
	/* Before our constructor: no handlers of pthread_atfork can have been registered. */
	return (pid_t)errno_result(sys_call0(SYS_fork));
}

#define FAMILY_FORK
#include "client/preload/export.h"
