/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * syscall(2) with the number of a call that is taken over: the same function stands behind it. What passes
 * libc by altogether (a syscall instruction in the program) is seen by nobody.
 */

#include <errno.h>
#include <fcntl.h>

#include "base/sys.h"
#include "client/preload/desc.h"
#include "client/preload/family.h"
#include "client/preload/meta.h"
#include "client/preload/open.h"

/* Registers as the kernel takes them. */
#define PATH(x)	 ((const char *)(x))
#define IOV(x)	 ((const struct iovec *)(x))
#define TIMES(x) ((const struct timespec *)(x))
#define OFF(x)	 ((off_t *)(x))

/* libaio's convention is not that of syscall. */
static long submit(long context, long n, long requests)
{
	return errno_result(local_io_submit((void *)context, n, (struct iocb **)requests));
}

static long by_name(long n, long a, long b, long c, long d, long e, bool *ret_done)
{
	*ret_done = true;
	switch (n) {
#ifdef SYS_open
	case SYS_open:
		return local_open(PATH(a), (int)b, (mode_t)c);
	case SYS_creat:
		return local_creat(PATH(a), (mode_t)b);
	case SYS_rename:
		return local_rename(PATH(a), PATH(b));
	case SYS_link:
		return local_link(PATH(a), PATH(b));
	case SYS_unlink:
		return local_unlink(PATH(a));
	case SYS_chmod:
		return local_chmod(PATH(a), (mode_t)b);
	case SYS_chown:
		return local_chown(PATH(a), (uid_t)b, (gid_t)c);
	case SYS_lchown:
		return local_lchown(PATH(a), (uid_t)b, (gid_t)c);
	case SYS_utime:
		return local_utime(PATH(a), (const struct utimbuf *)b);
	case SYS_utimes:
		return local_utimes(PATH(a), (const struct timeval *)b);
	case SYS_futimesat:
		return local_futimesat((int)a, PATH(b), (const struct timeval *)c);
	case SYS_renameat:
		return local_renameat((int)a, PATH(b), (int)c, PATH(d));
#endif
	case SYS_openat:
		return local_openat((int)a, PATH(b), (int)c, (mode_t)d);
	case SYS_openat2:
		return open_how((int)a, PATH(b), (const struct open_how *)c, (size_t)d);
	case SYS_open_by_handle_at:
		return local_open_by_handle_at((int)a, (struct file_handle *)b, (int)c);
	case SYS_renameat2:
		return local_renameat2((int)a, PATH(b), (int)c, PATH(d), (unsigned)e);
	case SYS_linkat:
		return local_linkat((int)a, PATH(b), (int)c, PATH(d), (int)e);
	case SYS_unlinkat:
		return local_unlinkat((int)a, PATH(b), (int)c);
	case SYS_truncate:
		return local_truncate(PATH(a), b);
	case SYS_fchmodat:
		return local_fchmodat((int)a, PATH(b), (mode_t)c, 0);
	case SYS_fchownat:
		return local_fchownat((int)a, PATH(b), (uid_t)c, (gid_t)d, (int)e);
	case SYS_utimensat:
		/* Without a path it is the descriptor's file. */
		return b ? local_utimensat((int)a, PATH(b), TIMES(c), (int)d)
			 : local_futimens((int)a, TIMES(c));
	case SYS_setxattr:
		return local_setxattr(PATH(a), PATH(b), (void *)c, (size_t)d, (int)e);
	case SYS_lsetxattr:
		return local_lsetxattr(PATH(a), PATH(b), (void *)c, (size_t)d, (int)e);
	case SYS_removexattr:
		return local_removexattr(PATH(a), PATH(b));
	case SYS_lremovexattr:
		return local_lremovexattr(PATH(a), PATH(b));
	default:
		*ret_done = false;
		return 0;
	}
}

static long by_descriptor(long n, long a, long b, long c, long d, long e, long f, bool *ret_done)
{
	int fd = (int)a;

	*ret_done = true;
	switch (n) {
	case SYS_close:
		return local_close(fd);
	case SYS_close_range:
		return local_close_range((unsigned)a, (unsigned)b, (int)c);
	case SYS_dup:
		return local_dup(fd);
#ifdef SYS_dup2
	case SYS_dup2:
		return local_dup2(fd, (int)b);
#endif
	case SYS_dup3:
		return local_dup3(fd, (int)b, (int)c);
	case SYS_fcntl:
		return local_fcntl(fd, (int)b, c);
	case SYS_read:
		return local_read(fd, (void *)b, (size_t)c);
	case SYS_readv:
		return local_readv(fd, IOV(b), (int)c);
	case SYS_preadv2:
		return local_preadv2(fd, IOV(b), (int)c, d, (int)f);
	case SYS_lseek:
		return local_lseek(fd, b, (int)c);
	case SYS_write:
		return local_write(fd, (const void *)b, (size_t)c);
	case SYS_writev:
		return local_writev(fd, IOV(b), (int)c);
	case SYS_pwrite64:
		return local_pwrite(fd, (const void *)b, (size_t)c, d);
	case SYS_pwritev:
		return local_pwritev(fd, IOV(b), (int)c, d);
	case SYS_pwritev2:
		return local_pwritev2(fd, IOV(b), (int)c, d, (int)f);
	case SYS_fsync:
		return local_fsync(fd);
	case SYS_fdatasync:
		return local_fdatasync(fd);
	case SYS_sync_file_range:
		return local_sync_file_range(fd, b, c, (unsigned)d);
	case SYS_ftruncate:
		return local_ftruncate(fd, b);
	case SYS_fallocate:
		return local_fallocate(fd, (int)b, c, d);
	case SYS_copy_file_range:
		return local_copy_file_range(fd, OFF(b), (int)c, OFF(d), (size_t)e, (unsigned)f);
	case SYS_splice:
		return local_splice(fd, OFF(b), (int)c, OFF(d), (size_t)e, (unsigned)f);
	case SYS_sendfile:
		return local_sendfile(fd, (int)b, OFF(c), (size_t)d);
	case SYS_ioctl:
		return local_ioctl(fd, (unsigned long)b, c);
	case SYS_fchmod:
		return local_fchmod(fd, (mode_t)b);
	case SYS_fchown:
		return local_fchown(fd, (uid_t)b, (gid_t)c);
	case SYS_fsetxattr:
		return local_fsetxattr(fd, PATH(b), (void *)c, (size_t)d, (int)e);
	case SYS_fremovexattr:
		return local_fremovexattr(fd, PATH(b));
	case SYS_mmap:
		return (long)local_mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, f);
	case SYS_mprotect:
		return local_mprotect((void *)a, (size_t)b, (int)c);
	case SYS_pkey_mprotect:
		return local_pkey_mprotect((void *)a, (size_t)b, (int)c, (int)d);
	case SYS_sendmsg:
		return local_sendmsg(fd, (const struct msghdr *)b, (int)c);
	case SYS_sendmmsg:
		return local_sendmmsg(fd, (struct mmsghdr *)b, (unsigned)c, (int)d);
	case SYS_io_submit:
		return submit(a, b, c);
	case SYS_io_uring_setup:
		/* As shim_io_uring_queue_init: its requests would pass us by. */
		return errno_result(-ENOSYS);
	default:
		*ret_done = false;
		return 0;
	}
}

/* Not variadic here: a call with fewer arguments leaves the rest undefined, as the kernel takes it. */
static long shim_syscall(long n, long a, long b, long c, long d, long e, long f)
{
	if (unlikely(desc_table != NULL)) {
		bool done;
		long r = by_descriptor(n, a, b, c, d, e, f, &done);

		if (!done)
			r = by_name(n, a, b, c, d, e, &done);
		if (!done)
			done = meta_by_number(n, (const long[6]){ a, b, c, d, e, f }, &r);
		if (done)
			return r;
	}
	/* A tail call: whatever returns twice finds the stack that it left. */
	if (likely(real.syscall != NULL))
		return real.syscall(n, a, b, c, d, e, f);
	return errno_result(sys_call6(n, a, b, c, d, e, f));
}

#define FAMILY_SYSCALL
#include "client/preload/export.h"
