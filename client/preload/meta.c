/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * chmod, chown, times, extended attributes: they change a registered file's ctime, so the lane is told
 * (TOUCH), or recovery would take them for a stranger's. By descriptor the file is found through
 * /proc/self/fd, since the descriptor need not be one that was taken over (opened for reading only).
 */
#include "client/preload/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <utime.h>

#include "base/sys.h"
#include "client/preload/desc.h"
#include "client/preload/named.h"

/* One system call. */
struct meta_call {
	long number;
	long a, b, c, d, e, f;
};

static long make(void *arg)
{
	const struct meta_call *m = arg;

	return sys_call6(m->number, m->a, m->b, m->c, m->d, m->e, m->f);
}

/* True: it was a registered file's, the call has been made, *ret is its result. */
static bool by_path(int dir, const char *path, int follow, struct meta_call *m, int *ret)
{
	struct named n;

	if (likely(!desc_table) || likely(!named_find(dir, path, follow, &n)))
		return false;
	*ret = (int)named_make(&n, NAMED_TOUCHED, make, m);
	return true;
}

static bool by_fd(int fd, struct meta_call *m, int *ret)
{
	if (likely(!desc_table) || fd < 0)
		return false;
	return by_path(fd, "", AT_EMPTY_PATH, m, ret);
}

#define ARGS5(n, v, w, x, y, z)                                             \
	{                                                                   \
		n, (long)(v), (long)(w), (long)(x), (long)(y), (long)(z), 0 \
	}

static int shim_fchmod(int fd, mode_t mode)
{
	struct meta_call m = ARGS5(SYS_fchmod, fd, mode, 0, 0, 0);
	int r;

	return by_fd(fd, &m, &r) ? r : real.fchmod(fd, mode);
}

static int shim_chmod(const char *path, mode_t mode)
{
	struct meta_call m = ARGS5(SYS_chmod, path, mode, 0, 0, 0);
	int r;

	return by_path(AT_FDCWD, path, AT_SYMLINK_FOLLOW, &m, &r) ? r : real.chmod(path, mode);
}

static int follow_of(int flags)
{
	return (flags & AT_SYMLINK_NOFOLLOW ? 0 : AT_SYMLINK_FOLLOW) | (flags & AT_EMPTY_PATH);
}

static int shim_fchmodat(int dir, const char *path, mode_t mode, int flags)
{
	struct meta_call m = ARGS5(SYS_fchmodat, dir, path, mode, 0, 0);
	int r;

	/* A link's own mode never matters: what is found without following one is the file itself. */
	if (!(flags & ~AT_SYMLINK_NOFOLLOW) && by_path(dir, path, follow_of(flags), &m, &r))
		return r;
	if (real.fchmodat)
		return real.fchmodat(dir, path, mode, flags);
	return (int)errno_result(flags ? -EOPNOTSUPP : make(&m));
}

static int shim_lchmod(const char *path, mode_t mode)
{
	return shim_fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW);
}

static int shim_fchown(int fd, uid_t uid, gid_t gid)
{
	struct meta_call m = ARGS5(SYS_fchown, fd, uid, gid, 0, 0);
	int r;

	return by_fd(fd, &m, &r) ? r : real.fchown(fd, uid, gid);
}

static int shim_chown(const char *path, uid_t uid, gid_t gid)
{
	struct meta_call m = ARGS5(SYS_chown, path, uid, gid, 0, 0);
	int r;

	return by_path(AT_FDCWD, path, AT_SYMLINK_FOLLOW, &m, &r) ? r : real.chown(path, uid, gid);
}

static int shim_lchown(const char *path, uid_t uid, gid_t gid)
{
	struct meta_call m = ARGS5(SYS_lchown, path, uid, gid, 0, 0);
	int r;

	return by_path(AT_FDCWD, path, 0, &m, &r) ? r : real.lchown(path, uid, gid);
}

static int shim_fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags)
{
	struct meta_call m = ARGS5(SYS_fchownat, dir, path, uid, gid, flags);
	int r;

	return by_path(dir, path, follow_of(flags), &m, &r)
		       ? r
		       : real.fchownat(dir, path, uid, gid, flags);
}

static int shim_utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
	struct meta_call m = ARGS5(SYS_utimensat, dir, path, times, flags, 0);
	int r;

	return by_path(dir, path, follow_of(flags), &m, &r)
		       ? r
		       : real.utimensat(dir, path, times, flags);
}

static int shim_futimens(int fd, const struct timespec times[2])
{
	struct meta_call m = ARGS5(SYS_utimensat, fd, 0, times, 0, 0);
	int r;

	/* The kernel takes an empty path for "the descriptor"; libc refuses negative ones first. */
	if (fd < 0)
		return (int)errno_result(-EBADF);
	return by_fd(fd, &m, &r) ? r : (int)errno_result(make(&m));
}

/* The older calls: microseconds, made into utimensat as libc does itself. */
static bool convert(const struct timeval in[2], struct timespec out[2])
{
	for (int i = 0; i < 2; i++) {
		if (in[i].tv_usec < 0 || in[i].tv_usec >= 1000000)
			return false;
		out[i] = (struct timespec){ in[i].tv_sec, in[i].tv_usec * 1000 };
	}
	return true;
}

static int times_at(int dir, const char *path, const struct timeval *times, int flags)
{
	struct timespec t[2];

	if (times && !convert(times, t))
		return (int)errno_result(-EINVAL);
	return shim_utimensat(dir, path, times ? t : NULL, flags);
}

static int shim_utimes(const char *path, const struct timeval times[2])
{
	return times_at(AT_FDCWD, path, times, 0);
}

static int shim_lutimes(const char *path, const struct timeval times[2])
{
	return times_at(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

static int shim_futimesat(int dir, const char *path, const struct timeval times[2])
{
	struct timespec t[2];

	if (path)
		return times_at(dir, path, times, 0);
	if (times && !convert(times, t))
		return (int)errno_result(-EINVAL);
	return shim_futimens(dir, times ? t : NULL);
}

static int shim_futimes(int fd, const struct timeval times[2])
{
	return shim_futimesat(fd, NULL, times);
}

static int shim_utime(const char *path, const struct utimbuf *times)
{
	struct timespec t[2];

	if (!times)
		return shim_utimensat(AT_FDCWD, path, NULL, 0);
	t[0] = (struct timespec){ times->actime, 0 };
	t[1] = (struct timespec){ times->modtime, 0 };
	return shim_utimensat(AT_FDCWD, path, t, 0);
}

static int shim_setxattr(const char *path, const char *name, const void *value, size_t n, int flags)
{
	struct meta_call m = ARGS5(SYS_setxattr, path, name, value, n, flags);
	int r;

	return by_path(AT_FDCWD, path, AT_SYMLINK_FOLLOW, &m, &r)
		       ? r
		       : real.setxattr(path, name, value, n, flags);
}

static int shim_lsetxattr(const char *path, const char *name, const void *value, size_t n,
			  int flags)
{
	struct meta_call m = ARGS5(SYS_lsetxattr, path, name, value, n, flags);
	int r;

	return by_path(AT_FDCWD, path, 0, &m, &r) ? r : real.lsetxattr(path, name, value, n, flags);
}

static int shim_fsetxattr(int fd, const char *name, const void *value, size_t n, int flags)
{
	struct meta_call m = ARGS5(SYS_fsetxattr, fd, name, value, n, flags);
	int r;

	return by_fd(fd, &m, &r) ? r : real.fsetxattr(fd, name, value, n, flags);
}

static int shim_removexattr(const char *path, const char *name)
{
	struct meta_call m = ARGS5(SYS_removexattr, path, name, 0, 0, 0);
	int r;

	return by_path(AT_FDCWD, path, AT_SYMLINK_FOLLOW, &m, &r) ? r
								  : real.removexattr(path, name);
}

static int shim_lremovexattr(const char *path, const char *name)
{
	struct meta_call m = ARGS5(SYS_lremovexattr, path, name, 0, 0, 0);
	int r;

	return by_path(AT_FDCWD, path, 0, &m, &r) ? r : real.lremovexattr(path, name);
}

static int shim_fremovexattr(int fd, const char *name)
{
	struct meta_call m = ARGS5(SYS_fremovexattr, fd, name, 0, 0, 0);
	int r;

	return by_fd(fd, &m, &r) ? r : real.fremovexattr(fd, name);
}

bool meta_by_number(long n, const long arg[6], long *ret)
{
	struct meta_call m = { n, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5] };
	const char *path = (const char *)m.b;
	int flags, r;

	switch (n) {
	case META_fchmodat2:
		flags = (int)m.d;
		break;
	case META_setxattrat:
	case META_removexattrat:
		flags = (int)m.c;
		break;
	case META_file_setattr:
		flags = (int)m.e;
		break;
	default:
		return false;
	}
	/* All but fchmodat2 take no path for an empty one. */
	if (!path && (flags & AT_EMPTY_PATH))
		path = "";
	*ret = by_path((int)m.a, path, follow_of(flags), &m, &r) ? r : errno_result(make(&m));
	return true;
}

#define FAMILY_META
#include "client/preload/export.h"
