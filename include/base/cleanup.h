/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Scope-bound release of locals. Not for client/preload: its functions may be cancelled. */
#define cleanup_(f) __attribute__((cleanup(f)))

static inline void free_pointer(void *p)
{
	free(*(void **)p);
}

/* Closes a descriptor that may be -1 and keeps errno. */
static inline void close_fd(const int *fd)
{
	int keep = errno;

	if (*fd >= 0)
		(void)close(*fd);
	errno = keep;
}

static inline void close_file(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

#define cleanup_free   cleanup_(free_pointer)
#define cleanup_close  cleanup_(close_fd)
#define cleanup_fclose cleanup_(close_file)

/* Hands a pointer or descriptor over to the caller: the local no longer owns it. */
#define take_pointer(p)                     \
	({                                  \
		__typeof__(p) taken_ = (p); \
		(p) = NULL;                 \
		taken_;                     \
	})
#define take_fd(fd)                \
	({                         \
		int taken_ = (fd); \
		(fd) = -1;         \
		taken_;            \
	})
