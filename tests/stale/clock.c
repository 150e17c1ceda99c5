/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A wrong clock for one program, by LD_PRELOAD: CLOCK_REALTIME stands CLOCK_SHIFT_S seconds from the
 * machine's, which other tests share. The files' own times stay the kernel's, so what has to be wrong
 * is the program that wrote the records or the one that judges them.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long shift_s;

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("CLOCK_SHIFT_S");

	shift_s = text ? atol(text) : 0;
}

#pragma GCC visibility push(default)

int clock_gettime(clockid_t id, struct timespec *t)
{
	int r = (int)syscall(SYS_clock_gettime, id, t);

	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t->tv_sec += shift_s;
	return r;
}

#pragma GCC visibility pop
