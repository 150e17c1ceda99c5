/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* dprintf and its relatives: libc writes to the descriptor where we do not see it. The text goes by write. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/preload/desc.h"
#include "client/preload/family.h"
#include "client/preload/passed.h"

extern int __vasprintf_chk(char **ret, int flag, const char *format, va_list ap);

/* As libc's: all of it, or -1. */
static int put(int fd, const char *text, int n)
{
	for (int at = 0; at < n;) {
		ssize_t r = local_write(fd, text + at, (size_t)(n - at));

		if (r < 0)
			return -1;
		at += (int)r;
	}
	return n;
}

/* chk: the check that the program was built with (%n in writable memory), 0 for none. */
__attribute__((format(printf, 3, 0))) static int print(int fd, int chk, const char *format,
						       va_list ap)
{
	char *text = NULL;
	int n = chk ? __vasprintf_chk(&text, chk, format, ap) : vasprintf(&text, format, ap);

	if (n >= 0) {
		n = put(fd, text, n);
		free(text);
	}
	return n;
}

__attribute__((format(printf, 2, 0))) static int shim_vdprintf(int fd, const char *format,
							       va_list ap)
{
	if (likely(!desc_peek(fd)) && likely(real.vdprintf != NULL))
		return real.vdprintf(fd, format, ap);
	return print(fd, 0, format, ap);
}

__attribute__((format(printf, 3, 0))) static int shim_vdprintf_chk(int fd, int chk,
								   const char *format, va_list ap)
{
	return print(fd, chk, format, ap);
}

__attribute__((format(printf, 2, 3))) static int shim_dprintf(int fd, const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = shim_vdprintf(fd, format, ap);
	va_end(ap);
	return r;
}

__attribute__((format(printf, 3, 4))) static int shim_dprintf_chk(int fd, int chk,
								  const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = print(fd, chk, format, ap);
	va_end(ap);
	return r;
}

static void shim_backtrace_symbols_fd(void *const *buffer, int n, int fd)
{
	/* Called where a program crashes: nothing of ours may keep it from its words. */
	if (unlikely(desc_peek(fd) != NULL))
		(void)passed_on(fd);
	if (real.backtrace_symbols_fd)
		real.backtrace_symbols_fd(buffer, n, fd);
}

#define FAMILY_PRINT
#include "client/preload/export.h"
