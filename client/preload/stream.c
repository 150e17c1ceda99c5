/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fopen, freopen, fdopen: libc's own opens and writes are seen by nobody, so the file goes to bypass. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/sys.h"
#include "client/preload/config.h"
#include "client/preload/desc.h"
#include "client/preload/handle.h"
#include "client/preload/map.h"
#include "client/preload/open.h"
#include "client/preload/passed.h"

/* open's flags for a stream's mode, or O_RDONLY where it does not write (or is none). */
static int stream_flags(const char *mode)
{
	int flags = *mode == 'w'   ? O_WRONLY | O_CREAT | O_TRUNC
		    : *mode == 'a' ? O_WRONLY | O_CREAT | O_APPEND
				   : O_RDONLY;

	for (const char *m = mode + (*mode != '\0'); *m && *m != ','; m++) {
		if (*m == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		else if (*m == 'x')
			flags |= O_EXCL;
		else if (*m == 'e')
			flags |= O_CLOEXEC;
	}
	return flags;
}

/* What a stream of that name and mode would open; false: it writes no rule's file. */
static bool is_ours(const char *path, const char *mode, struct open_args *ret)
{
	enum open_probe found;

	*ret = (struct open_args){ .dir = AT_FDCWD, .path = path, .mode = 0666 };
	if (desc_table && path && mode && (*mode == 'r' || *mode == 'w' || *mode == 'a'))
		ret->flags = stream_flags(mode);
	if (likely((ret->flags & O_ACCMODE) == O_RDONLY))
		return false;
	found = open_probe(ret);
	return found == PROBE_MATCH || (found == PROBE_NOTHING && config_may_match(path));
}

/* One on a rule's file goes by our own open, and so to bypass. */
static FILE *shim_fopen(const char *path, const char *mode)
{
	struct open_args a;
	FILE *f;
	int fd;

	if (unlikely(!real.fopen || !real.fdopen)) {
		errno = ENOSYS;
		return NULL;
	}
	if (likely(!is_ours(path, mode, &a)))
		return real.fopen(path, mode);

	fd = open_any(&a);
	if (fd < 0)
		return NULL;
	f = map_fdopen(fd, mode);
	if (!f) {
		desc_clear(fd);
		(void)sys_call1(SYS_close, fd);
	}
	return f;
}

/* The mode for a file that has been made and emptied already: without 'x'. */
static void again_mode(const char *mode, char ret[static 16])
{
	size_t n = 0;

	for (; *mode && n < 15; mode++)
		if (*mode != 'x')
			ret[n++] = *mode;
	ret[n] = '\0';
}

/* The file goes to bypass by an open of ours; then libc opens it by that descriptor's name. */
static FILE *shim_freopen(const char *path, const char *mode, FILE *f)
{
	struct open_args a;
	char link[32], again[16];
	FILE *r = NULL;
	int fd, keep;

	if (unlikely(!real.freopen)) {
		errno = ENOSYS;
		return NULL;
	}
	if (likely(!is_ours(path, mode, &a)))
		return real.freopen(path, mode, f);
	fd = open_any(&a);
	if (fd >= 0 && passed_on(fd) == 0) {
		again_mode(mode, again);
		r = real.freopen(handle_link(fd, link), again, f);
	} else {
		/* It closes the stream, whatever comes of it. */
		keep = errno;
		(void)fclose(f);
		errno = keep;
	}
	if (fd >= 0) {
		keep = errno;
		desc_clear(fd);
		(void)sys_call1(SYS_close, fd);
		errno = keep;
	}
	return r;
}

static FILE *shim_fdopen(int fd, const char *mode)
{
	return map_fdopen(fd, mode);
}

#define FAMILY_STREAM
#include "client/preload/export.h"
