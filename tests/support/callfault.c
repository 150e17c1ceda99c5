/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Faults put into the daemon by LD_PRELOAD, turned on and off while it runs. The file CALLFAULT_RULES has lines
 *
 *	CALL WHERE ERRNO MS
 *
 * Each call CALL (pwrite, fdatasync, fsync, openat that makes, unlinkat, renameat, ftruncate) on a file whose path has WHERE in it sleeps
 * MS milliseconds, then fails with ERRNO, or is made if that is 0. ERRNO -1: a kill before the call; -2: after it.
 * It is read anew at each call; no such file: nothing.
 */
/* both names of a call are ours */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(default)

static void path_of(int fd, char *path)
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, 4095);
	path[n < 0 ? 0 : n] = '\0';
}

static void die(void)
{
	(void)kill(getpid(), SIGKILL);
	for (;;)
		(void)pause();
}

/* errno that the call is to fail with; 0: it is to be made; -2: and then is the end. */
static int fault(const char *call, int fd, const char *name)
{
	const char *rules = getenv("CALLFAULT_RULES");
	static _Thread_local char path[4096 + 300];
	char where[256], which[32];
	FILE *f = rules ? fopen(rules, "re") : NULL;
	int error = 0, ms, e, saved = errno;

	if (!f)
		return 0;
	path_of(fd, path);
	if (name)
		(void)snprintf(path + strlen(path), 300, "/%.290s", name);
	while (fscanf(f, "%31s %255s %d %d", which, where, &e, &ms) == 4) {
		const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

		if (strcmp(which, call) != 0 || !strstr(path, where))
			continue;
		(void)nanosleep(&t, NULL);
		error = e;
	}
	(void)fclose(f);
	if (error == -1)
		die();
	errno = saved;
	return error;
}

#define REAL(call, name) __typeof__(call) *real = (__typeof__(call) *)dlsym(RTLD_NEXT, name)

static long done(long r, int error)
{
	if (error == -2)
		die();
	return r;
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t offset)
{
	REAL(pwrite, "pwrite");
	int e = fault("pwrite", fd, NULL);

	if (e > 0) {
		errno = e;
		return -1;
	}
	return done(real(fd, buf, n, offset), e);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off_t offset)
{
	return pwrite(fd, buf, n, offset);
}

static int sync_call(const char *call, int fd)
{
	REAL(fsync, call);
	int e = fault(call, fd, NULL);

	if (e > 0) {
		errno = e;
		return -1;
	}
	return (int)done(real(fd), e);
}

int fdatasync(int fd)
{
	return sync_call("fdatasync", fd);
}

int fsync(int fd)
{
	return sync_call("fsync", fd);
}

int openat(int dir, const char *name, int flags, ...)
{
	REAL(openat, "openat");
	mode_t mode = 0;
	va_list ap;
	int e;

	va_start(ap, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	e = flags & O_CREAT ? fault("openat", dir, name) : 0;
	if (e > 0) {
		errno = e;
		return -1;
	}
	return (int)done(real(dir, name, flags, mode), e);
}

int openat64(int dir, const char *name, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return openat(dir, name, flags, mode);
}

int unlinkat(int dir, const char *name, int flags)
{
	REAL(unlinkat, "unlinkat");
	int e = fault("unlinkat", dir, name);

	if (e > 0) {
		errno = e;
		return -1;
	}
	return (int)done(real(dir, name, flags), e);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	REAL(renameat, "renameat");
	int e = fault("renameat", to_dir, to);

	if (e > 0) {
		errno = e;
		return -1;
	}
	return (int)done(real(from_dir, from, to_dir, to), e);
}

int ftruncate(int fd, off_t length)
{
	REAL(ftruncate, "ftruncate");
	int e = fault("ftruncate", fd, NULL);

	if (e > 0) {
		errno = e;
		return -1;
	}
	return (int)done(real(fd, length), e);
}

int ftruncate64(int fd, off_t length)
{
	return ftruncate(fd, length);
}
