/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* open and its relatives: where a file of a rule is taken over. */
#include "client/preload/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "client/preload/call.h"
#include "client/preload/config.h"
#include "client/preload/handle.h"
#include "client/preload/named.h"
#include "client/preload/others.h"
#include "client/preload/passed.h"
#include "client/preload/size.h"
#include "client/preload/takeover.h"

/* Not on the real descriptor: the lane makes writes durable, not the disk. O_TRUNC comes afterwards,
 * under RULE F, since it may throw away bytes that live records would bring back. */
#define SYNC_FLAGS     (O_DIRECT | O_DSYNC | O_SYNC)
#define STRIPPED_FLAGS (SYNC_FLAGS | O_TRUNC)

#define STRANGER_NS    1000000 /* 1 ms */
#define STRANGER_TRIES 1000
#define STRANGER_SURE  3 /* looks in a row with nothing under way; picked */

static long raw_open(const struct open_args *a, int flags)
{
	if (a->handle)
		return sys_call3(SYS_open_by_handle_at, a->dir, a->handle, flags);
	if (a->how) {
		struct open_how how = *a->how;

		/* Flags that openat2 does not know must reach it. */
		how.flags = (how.flags & ~(uint64_t)(unsigned)a->flags) | (unsigned)flags;
		/* A mode for nothing is refused: that of the program must be, ours must not. */
		if (a->flags & ~flags & (O_CREAT | __O_TMPFILE))
			how.mode = 0;
		return sys_call4(SYS_openat2, a->dir, a->path, &how, sizeof(how));
	}
	return sys_call4(SYS_openat, a->dir, a->path, flags, a->mode);
}

/* As the program asked for it: a cancellation point where libc has one. libc's convention. */
static int plain_open(const struct open_args *a, int flags)
{
	if (a->handle || a->how)
		return (int)errno_result(raw_open(a, flags));
	return real.openat(a->dir, a->path, flags, a->mode);
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

enum open_probe open_probe(const struct open_args *a)
{
	char path[SHIM_PATH_MAX];
	struct stat st;
	long fd = raw_open(a, O_PATH | O_CLOEXEC | (a->flags & O_NOFOLLOW));
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

/* A file that nobody can have opened before. */
static bool brand_new(const struct open_args *a)
{
	return (a->flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
}

/*
 * Somebody in this process writes the file past us: opened under a name of no rule, inherited, by libc
 * itself (mkstemp), from a message, or may write it by an io_uring. Looked for when the file is marked and fd in the table: whoever opens it
 * later finds the mark. An open or close under way elsewhere is no stranger: its descriptor will be in the table, or gone,
 * soon; and one that has come to its end between our two looks is not found by the next ones.
 */
static bool strangers(int fd, const struct stat *st)
{
	const struct timespec pause = { 0, STRANGER_NS };

	for (int i = 0, alone = 0; others_find(st->st_dev, st->st_ino, fd, OTHERS_PAST) >= 0; i++) {
		alone = atomic_load_seq(&page->moves) <= 1 ? alone + 1 : 0;
		if (i == STRANGER_TRIES || alone == STRANGER_SURE)
			return true;
		(void)sys_call2(SYS_nanosleep, &pause, NULL);
	}
	return others_mapped(st->st_dev, st->st_ino);
}

/* What a dead process left half written is put right before this one reads it: it might build on bytes that
 * go with its first write. */
static long op_settle(struct call *c, void *arg)
{
	(void)arg;
	return c->s ? file_settle(c->s, &c->who, &c->r) : 0;
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
	/* A failure to put it right is told to whoever writes next. */
	(void)call_make(fd, op_settle, NULL);
	if ((brand_new(a) ? others_find(0, 0, fd, OTHERS_RING) >= 0 : strangers(fd, st)) &&
	    passed_by(fd) < 0)
		r = -errno;
	if (r == 0 && (a->flags & O_TRUNC))
		r = (int)size_truncate(fd, 0);
	if (r < 0) {
		desc_clear(fd);
		(void)sys_call1(SYS_close, fd);
		return r;
	}
	return fd;
}

static long open_rule_file(const struct open_args *a, int unused)
{
	char path[SHIM_PATH_MAX];
	struct stat st;
	long fd = raw_open(a, (a->flags & ~STRIPPED_FLAGS) | O_CLOEXEC);

	(void)unused;
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

static long counted(const struct open_args *a, int fd, long open(const struct open_args *, int))
{
	long r;

	page_own();
	(void)atomic_add_seq(&page->moves, 1);
	r = open(a, fd);
	(void)atomic_sub_seq(&page->moves, 1);
	return r;
}

/* O_RDONLY | O_TRUNC on a rule's file: the truncation as a call of its own. */
static int truncate_and_open(const struct open_args *a)
{
	char link[32];
	int keep = errno;
	long fd = raw_open(a, O_PATH | O_CLOEXEC | (a->flags & O_NOFOLLOW));
	int r;

	if (fd < 0)
		return (int)errno_result(fd);
	/* The descriptor's own name, so that it is the same file. */
	r = size_truncate_path(handle_link((int)fd, link));
	(void)sys_call1(SYS_close, fd);
	if (r < 0)
		return -1;
	errno = keep;
	return plain_open(a, a->flags & ~O_TRUNC);
}

int open_any(const struct open_args *a)
{
	bool writes = (a->flags & O_ACCMODE) != O_RDONLY;
	enum open_probe found = PROBE_OTHER;
	bool may_match;
	long fd;

	if (likely(!desc_table) || (!a->path && !a->handle) || (a->flags & O_PATH) ||
	    (!writes && !(a->flags & O_TRUNC)) || (a->flags & O_TMPFILE) == O_TMPFILE) {
		fd = plain_open(a, a->flags);
		if (fd >= 0 && desc_table)
			fresh((int)fd);
		if (fd >= 0 && unlikely(desc_table != NULL) && a->path && !(a->flags & O_PATH) &&
		    config_may_match(a->path))
			named_settle(a->dir, a->path);
		return (int)fd;
	}
	/* Only where something would have to be undone is it worth to ask before. */
	may_match = !a->path || config_may_match(a->path);
	if ((a->flags & STRIPPED_FLAGS) || may_match)
		found = open_probe(a);
	if (writes &&
	    (found == PROBE_MATCH || (found == PROBE_NOTHING && (a->flags & O_CREAT) && may_match)))
		return (int)errno_result(counted(a, -1, open_rule_file));
	if (found == PROBE_MATCH)
		return truncate_and_open(a);
	fd = plain_open(a, a->flags);
	if (fd < 0)
		return -1;
	fresh((int)fd);
	if (writes)
		fd = errno_result(counted(a, (int)fd, look_afterwards));
	return (int)fd;
}

void open_named_now(int dir, const char *path)
{
	struct open_args a = { .dir = dir, .path = path };
	char name[SHIM_PATH_MAX];
	struct caller who;
	struct call_mark mark;
	struct stat st;
	int keep = errno;
	long look;
	int fd, flags, r;

	if (!path || !config_may_match(path))
		return;
	look = raw_open(&a, O_PATH | O_CLOEXEC | O_NOFOLLOW);
	if (look < 0)
		return;
	fd = is_rule_file((int)look, &st, name)
		     ? others_find(st.st_dev, st.st_ino, (int)look, OTHERS_WRITER)
		     : -1;
	(void)sys_call1(SYS_close, look);
	if (fd < 0 || mark_enter(&mark, &who) < 0)
		return;
	flags = (int)sys_call2(SYS_fcntl, fd, F_GETFL);
	r = (int)sys_call2(SYS_fcntl, fd, F_GETFD);
	r = takeover(fd, &st, name, flags, !(r & FD_CLOEXEC), &who);
	mark_leave(&mark);
	if (r == 0)
		(void)passed_by(fd);
	errno = keep;
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
	const struct open_args a = {
		.dir = AT_FDCWD, .path = path, .flags = flags, .mode = MODE_OF(flags)
	};

	return open_any(&a);
}

static int shim_openat(int dir, const char *path, int flags, ...)
{
	const struct open_args a = {
		.dir = dir, .path = path, .flags = flags, .mode = MODE_OF(flags)
	};

	return open_any(&a);
}

static int shim_open_2(const char *path, int flags)
{
	const struct open_args a = { .dir = AT_FDCWD, .path = path, .flags = flags };

	return open_any(&a);
}

static int shim_openat_2(int dir, const char *path, int flags)
{
	const struct open_args a = { .dir = dir, .path = path, .flags = flags };

	return open_any(&a);
}

static int shim_creat(const char *path, mode_t mode)
{
	const struct open_args a = {
		.dir = AT_FDCWD, .path = path, .flags = O_CREAT | O_WRONLY | O_TRUNC, .mode = mode
	};

	return open_any(&a);
}

static int shim_open_by_handle_at(int dir, struct file_handle *handle, int flags)
{
	const struct open_args a = { .dir = dir, .handle = handle, .flags = flags };

	return open_any(&a);
}

/* In libc since 2.43; one that lacks it has no program that calls it. */
static int shim_openat2(int dir, const char *path, const struct open_how *how, size_t size)
{
	return open_how(dir, path, how, size);
}

int open_how(int dir, const char *path, const struct open_how *how, size_t size)
{
	struct open_args a = { .dir = dir, .path = path, .how = how };

	/* A later kernel's structure, or none: the kernel says what it thinks of it. */
	if (!how || size != sizeof(*how)) {
		int fd = (int)sys_call4(SYS_openat2, dir, path, how, size);

		if (fd >= 0 && desc_table) {
			fresh(fd);
			a.flags = (int)(sys_call2(SYS_fcntl, fd, F_GETFL) |
					(sys_call2(SYS_fcntl, fd, F_GETFD) ? O_CLOEXEC : 0));
			if ((a.flags & O_ACCMODE) != O_RDONLY)
				fd = (int)counted(&a, fd, look_afterwards);
		}
		return (int)errno_result(fd);
	}
	a.flags = (int)how->flags;
	a.mode = (mode_t)how->mode;
	return open_any(&a);
}

#define FAMILY_OPEN
#include "client/preload/export.h"
