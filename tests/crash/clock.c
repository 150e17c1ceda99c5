/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/clock.h"

#include <time.h>

#include "base/sys.h"
#include "tests/crash/fiber.h"

#define START_NS UINT64_C(1700000000000000000) /* any day */
#define JUMP_NS	 UINT64_C(150000000) /* longer than a lock waits before it looks at the owner */
#define TICK_NS	 1000u

static uint64_t realtime = START_NS;
static uint64_t monotonic = START_NS;

void clock_reset(void)
{
	realtime = monotonic = START_NS;
}

void clock_pass(uint64_t ns)
{
	realtime += ns;
}

uint64_t clock_real_ns(void)
{
	struct timespec t;

	(void)sys_call2(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	uint64_t now;

	/* Who looks at this clock waits for a lock, or for room. */
	if (clock == CLOCK_MONOTONIC)
		fiber_wait();
	now = clock == CLOCK_MONOTONIC ? (monotonic += JUMP_NS) : (realtime += TICK_NS);

	ret->tv_sec = (time_t)(now / 1000000000u);
	ret->tv_nsec = (long)(now % 1000000000u);
	return 0;
}
