/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What stands behind each interposed call: libc's own function, or the raw system call. */

#include <aio.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#define likely(c)   __builtin_expect(!!(c), 1)
#define unlikely(c) __builtin_expect(!!(c), 0)

#define REAL1(name, result, nr, a)		  result (*name)(a);
#define REAL2(name, result, nr, a, b)		  result (*name)(a, b);
#define REAL3(name, result, nr, a, b, c)	  result (*name)(a, b, c);
#define REAL4(name, result, nr, a, b, c, d)	  result (*name)(a, b, c, d);
#define REAL5(name, result, nr, a, b, c, d, e)	  result (*name)(a, b, c, d, e);
#define REAL6(name, result, nr, a, b, c, d, e, f) result (*name)(a, b, c, d, e, f);

/* Constant once the constructor has run. */
struct real {
#include "client/preload/real.def"
	/* Those below are no system calls: their callers know what to do without them (NULL). */
	pid_t (*fork)(void);
	FILE *(*fdopen)(int, const char *);
	FILE *(*fopen)(const char *, const char *);
	FILE *(*freopen)(const char *, const char *, FILE *);
	long (*syscall)(long, long, long, long, long, long, long);
	int (*vdprintf)(int, const char *, va_list);
	int (*spawn_addopen)(posix_spawn_file_actions_t *, int, const char *, int, mode_t);
	int (*spawn_adddup2)(posix_spawn_file_actions_t *, int, int);
	int (*aio_write)(struct aiocb *);
	int (*lio_listio)(int, struct aiocb *const *, int, struct sigevent *);
	void (*backtrace_symbols_fd)(void *const *, int, int);
	ssize_t (*pwritev2)(int, const struct iovec *, int, off_t, int);
	ssize_t (*preadv2)(int, const struct iovec *, int, off_t, int);
	int (*posix_fallocate)(int, off_t, off_t);
	int (*fchmodat)(int, const char *, mode_t, int);
	void (*read_chk_fail)(void);
};

#undef REAL1
#undef REAL2
#undef REAL3
#undef REAL4
#undef REAL5
#undef REAL6

extern struct real real;

/* Looks the functions up, once, in the constructor: dlsym may allocate. */
void real_resolve(void);

/* A symbol of the next library that has it; NULL before libc can be asked or if there is none. */
void *real_lookup(const char *symbol);

/* Turns a raw result into libc's convention: -1 and errno, or the result with errno untouched. */
long errno_result(long raw);
