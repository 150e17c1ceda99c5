/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* open and its relatives: where a file of a rule is taken over. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "client/preload/config.h"
#include "client/preload/handle.h"
#include "client/preload/map.h"
#include "client/preload/size.h"
#include "client/preload/takeover.h"

/* Not on the real descriptor: the lane makes writes durable, not the disk. O_TRUNC comes afterwards,
 * under RULE F, since it may throw away bytes that live records would bring back. */
#define SYNC_FLAGS     (O_DIRECT | O_DSYNC | O_SYNC)
#define STRIPPED_FLAGS (SYNC_FLAGS | O_TRUNC)

struct open_args {
	int dir;
	const char *path;
	int flags;
	mode_t mode;
};

enum probe {
	PROBE_MATCH,
	PROBE_OTHER,
	PROBE_NOTHING
};

static long raw_open(const struct open_args *a, int flags)
{
	return sys_call4(SYS_openat, a->dir, a->path, flags, a->mode);
}

/* Is this descriptor a file of a rule? Or one that is marked as ours under another name (renamed, hard
 * link, bind mount): records of it may live. Fills *st and path. */
static bool is_rule_file(int fd, struct stat *st, char path[static SHIM_PATH_MAX])
{
	if (sys_call2(SYS_fstat, fd, st) < 0 || !S_ISREG(st->st_mode))
		return false;
	if (handle_path(fd, path, SHIM_PATH_MAX) < 0)
		path[0] = '\0';
	return (path[0] && config_match(path)) || mark_look(fd) == MARK_THERE;
}

/* A number that the kernel has just given out: what the table knew of it was closed unseen. */
static void fresh(int fd)
{
	if (unlikely(desc_peek(fd) != NULL) && !page_foreign())
		desc_clear(fd);
}

/* What would be opened? An O_PATH descriptor opens nothing: no truncation, no POSIX locks lost when it
 * is closed. */
static enum probe probe(const struct open_args *a)
{
	char path[SHIM_PATH_MAX];
	struct stat st;
	long fd = sys_call4(SYS_openat, a->dir, a->path,
			    O_PATH | O_CLOEXEC | (a->flags & O_NOFOLLOW), 0);
	bool match;

	if (fd < 0)
		return PROBE_NOTHING;
	match = is_rule_file((int)fd, &st, path);
	(void)sys_call1(SYS_close, fd);
	return match ? PROBE_MATCH : PROBE_OTHER;
}

/* Cannot be opened again (a mode without permission for its maker): the flags are kept by us. */
static long emulate_flags(const struct open_args *a, int fd)
{
	struct desc *d = desc_new();
	struct stat st;
	long r = sys_call2(SYS_fstat, fd, &st);

	if (r < 0 || !d) {
		(void)sys_call1(SYS_close, fd);
		if (d)
			desc_put(d);
		return r < 0 ? r : -EMFILE;
	}
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	atomic_store_relaxed(&d->asked, a->flags & (SYNC_FLAGS | O_APPEND));
	atomic_store_relaxed(&d->stay, 1);
	atomic_store_seq(&d->kind, DESC_TOKEN);
	(void)sys_call3(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
	r = desc_set(fd, d, !(a->flags & O_CLOEXEC));
	return r < 0 ? r : fd;
}

/* It was opened with flags taken off and is no rule's file after all: a file that has just been made
 * (so nobody else knows it), or a name that changed under us. */
static long give_flags_back(const struct open_args *a, int fd)
{
	char link[32];
	int flags = a->flags & ~(O_CREAT | O_EXCL);
	long again;

	if (!(a->flags & STRIPPED_FLAGS))
		return fd;
	/* The descriptor's own name, so that it is the same file whatever the path says now. */
	again = sys_call4(SYS_openat, AT_FDCWD, handle_link(fd, link), flags | O_CLOEXEC, 0);
	if (again < 0)
		return emulate_flags(a, fd);
	(void)sys_call3(SYS_dup3, again, fd, flags & O_CLOEXEC);
	(void)sys_call1(SYS_close, again);
	return fd;
}

/* Takes fd over and does the O_TRUNC. Descriptor, or a negative errno with fd closed. */
static long take(const struct open_args *a, int fd, const struct stat *st, const char *path)
{
	struct caller who;
	struct call_mark mark;
	int r = mark_enter(&mark, &who);

	if (r == 0) {
		r = takeover(fd, st, path, a->flags, !(a->flags & O_CLOEXEC), &who);
		mark_leave(&mark);
	}
	if (r < 0) {
		(void)sys_call1(SYS_close, fd);
		return r;
	}
	if (a->flags & O_TRUNC) {
		r = (int)size_truncate(fd, 0);
		if (r < 0) {
			desc_clear(fd);
			(void)sys_call1(SYS_close, fd);
			return r;
		}
	}
	return fd;
}

static long open_rule_file(const struct open_args *a)
{
	char path[SHIM_PATH_MAX];
	struct stat st;
	long fd = raw_open(a, (a->flags & ~STRIPPED_FLAGS) | O_CLOEXEC);

	if (fd < 0)
		return fd;
	fresh((int)fd);
	if (!is_rule_file((int)fd, &st, path)) {
		if (!(a->flags & O_CLOEXEC))
			(void)sys_call3(SYS_fcntl, fd, F_SETFD, 0);
		return give_flags_back(a, (int)fd);
	}
	return take(a, (int)fd, &st, path);
}

/* Opened as the program asked: is it a rule's file by another name (symbolic link)? */
static long look_afterwards(const struct open_args *a, int fd)
{
	char path[SHIM_PATH_MAX];
	struct stat st;

	if (!is_rule_file(fd, &st, path))
		return fd;
	(void)sys_call3(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
	return take(a, fd, &st, path);
}

static int open_any(const struct open_args *a)
{
	bool writes = (a->flags & O_ACCMODE) != O_RDONLY;
	enum probe found = PROBE_OTHER;
	int keep = errno;
	long fd;

	if (likely(!desc_table) || !a->path || (a->flags & O_PATH) ||
	    (!writes && !(a->flags & O_TRUNC)) || (a->flags & O_TMPFILE) == O_TMPFILE) {
		fd = real.openat(a->dir, a->path, a->flags, a->mode);
		if (fd >= 0 && desc_table)
			fresh((int)fd);
		return (int)fd;
	}
	/* Only where something would have to be undone is it worth to ask before. */
	if ((a->flags & STRIPPED_FLAGS) || config_may_match(a->path))
		found = probe(a);
	if (writes && (found == PROBE_MATCH || (found == PROBE_NOTHING && (a->flags & O_CREAT) &&
						config_may_match(a->path))))
		return (int)errno_result(open_rule_file(a));
	if (found == PROBE_MATCH) {
		/* O_RDONLY | O_TRUNC: the truncation as a call of its own. */
		if (size_truncate_path(a->dir, a->path) < 0)
			return -1;
		errno = keep;
		return real.openat(a->dir, a->path, a->flags & ~O_TRUNC, a->mode);
	}
	fd = real.openat(a->dir, a->path, a->flags, a->mode);
	if (fd < 0)
		return -1;
	fresh((int)fd);
	if (writes)
		fd = errno_result(look_afterwards(a, (int)fd));
	return (int)fd;
}

/* The mode is there only if a file may be made. */
#define MODE_OF(flags)                                   \
	({                                               \
		mode_t mode_ = 0;                        \
		if ((flags) & (O_CREAT | __O_TMPFILE)) { \
			va_list ap_;                     \
			va_start(ap_, flags);            \
			mode_ = va_arg(ap_, mode_t);     \
			va_end(ap_);                     \
		}                                        \
		mode_;                                   \
	})

static int shim_open(const char *path, int flags, ...)
{
	const struct open_args a = { AT_FDCWD, path, flags, MODE_OF(flags) };

	return open_any(&a);
}

static int shim_openat(int dir, const char *path, int flags, ...)
{
	const struct open_args a = { dir, path, flags, MODE_OF(flags) };

	return open_any(&a);
}

static int shim_open_2(const char *path, int flags)
{
	const struct open_args a = { AT_FDCWD, path, flags, 0 };

	return open_any(&a);
}

static int shim_openat_2(int dir, const char *path, int flags)
{
	const struct open_args a = { dir, path, flags, 0 };

	return open_any(&a);
}

static int shim_creat(const char *path, mode_t mode)
{
	const struct open_args a = { AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode };

	return open_any(&a);
}

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

/* libc opens streams out of our sight. One on a rule's file goes by our own open, and so to bypass. */
static FILE *shim_fopen(const char *path, const char *mode)
{
	struct open_args a = { AT_FDCWD, path, O_RDONLY, 0666 };
	enum probe found;
	FILE *f;
	int fd;

	if (unlikely(!real.fopen || !real.fdopen)) {
		errno = ENOSYS;
		return NULL;
	}
	if (desc_table && path && mode && (*mode == 'r' || *mode == 'w' || *mode == 'a'))
		a.flags = stream_flags(mode);
	if (likely((a.flags & O_ACCMODE) == O_RDONLY))
		return real.fopen(path, mode);
	found = probe(&a);
	if (found == PROBE_OTHER || (found == PROBE_NOTHING && !config_may_match(path)))
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

#define FAMILY_OPEN
#include "client/preload/export.h"
