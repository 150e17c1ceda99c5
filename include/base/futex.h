/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <limits.h>
#include <linux/futex.h>

#include "base/sys.h"

/*
 * Waits while *word == expected, at most timeout_ns (UINT64_MAX: for ever). The word may lie in
 * memory shared between processes. Returns 0, -EAGAIN, -EINTR or -ETIMEDOUT; callers look again in
 * every case.
 */
static inline int futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec t = { (time_t)(timeout_ns / 1000000000u),
			      (long)(timeout_ns % 1000000000u) };

	return (int)sys_call4(SYS_futex, word, FUTEX_WAIT, expected,
			      timeout_ns == UINT64_MAX ? NULL : &t);
}

/* Wakes up to n waiters of word. Returns how many, or a negative errno. */
static inline int futex_wake(uint32_t *word, int n)
{
	return (int)sys_call3(SYS_futex, word, FUTEX_WAKE, n);
}
