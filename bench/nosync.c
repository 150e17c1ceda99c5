/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bench only, loses data: the ceiling. Files whose path matches one of the globs in NOSYNC_PATHS
 * (separated by ':') are opened without O_DIRECT, O_DSYNC and O_SYNC, and their fsync and fdatasync
 * return 0 at once. So a commit costs the copy into the page cache and nothing else; no shim can
 * be faster and still write the file. All other files keep their syncs, as with pmemlogd.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum {
	FDS = 65536
};

static atomic_uchar marked[FDS]; /* relaxed: a descriptor's user has seen open return */

static int (*real_openat)(int dir, const char *path, int flags, ...);
static int (*real_close)(int fd);
static int (*real_fsync)(int fd);
static int (*real_fdatasync)(int fd);
static char globs[4096];

__attribute__((constructor)) static void start(void)
{
	const char *list = getenv("NOSYNC_PATHS");

	real_openat = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
	real_close = (int (*)(int))dlsym(RTLD_NEXT, "close");
	real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	if (list)
		strncpy(globs, list, sizeof(globs) - 1);
}

static int matches(const char *path)
{
	char list[sizeof(globs)];
	char *rest = NULL;

	memcpy(list, globs, sizeof(list));
	for (char *g = strtok_r(list, ":", &rest); g; g = strtok_r(NULL, ":", &rest))
		if (fnmatch(g, path, 0) == 0)
			return 1;
	return 0;
}

static int open_common(int dir, const char *path, int flags, mode_t mode)
{
	unsigned char rule = (flags & O_ACCMODE) != O_RDONLY && matches(path);
	int fd;

	if (!real_openat)
		start(); /* called before our constructor */
	if (rule)
		flags &= ~(O_DIRECT | O_SYNC | O_DSYNC);
	fd = real_openat(dir, path, flags, mode);
	if (fd >= 0 && fd < FDS)
		atomic_store_explicit(&marked[fd], rule, memory_order_relaxed);
	return fd;
}

/* What the mode argument is, when there is one. */
#define OPEN_MODE(flags, mode)                           \
	do {                                             \
		if ((flags) & (O_CREAT | __O_TMPFILE)) { \
			va_list ap;                      \
			va_start(ap, flags);             \
			(mode) = va_arg(ap, mode_t);     \
			va_end(ap);                      \
		}                                        \
	} while (0)

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return open_common(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return open_common(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return open_common(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return open_common(dir, path, flags, mode);
}

static int is_marked(int fd)
{
	return fd >= 0 && fd < FDS && atomic_load_explicit(&marked[fd], memory_order_relaxed);
}

int close(int fd)
{
	if (!real_close)
		start();
	if (is_marked(fd))
		atomic_store_explicit(&marked[fd], 0, memory_order_relaxed);
	return real_close(fd);
}

int fsync(int fd)
{
	if (!real_fsync)
		start();
	return is_marked(fd) ? 0 : real_fsync(fd);
}

int fdatasync(int fd)
{
	if (!real_fdatasync)
		start();
	return is_marked(fd) ? 0 : real_fdatasync(fd);
}
