/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"

#define INODES 64u

/* Relaxed everywhere: the tests wait for effects, not for these words. */
static uint64_t failing_ino;
static int failing_errno;
static struct {
	uint64_t ino;
	unsigned syncs;
} counts[INODES];

void faults_set(uint64_t ino, int error)
{
	atomic_store_relaxed(&failing_ino, ino);
	atomic_store_relaxed(&failing_errno, error);
}

static unsigned *counter(uint64_t ino)
{
	for (unsigned i = 0; i < INODES; i++) {
		uint64_t seen = 0;

		if (atomic_cas_seq(&counts[i].ino, &seen, ino) || seen == ino)
			return &counts[i].syncs;
	}
	return &counts[0].syncs;
}

static uint64_t after_ino;
static void (*after_call)(void);

void faults_after_sync(uint64_t ino, void (*call)(void))
{
	after_call = call;
	atomic_store_seq(&after_ino, ino); /* release: pairs with the exchange in sync_call */
}

unsigned faults_syncs(uint64_t ino)
{
	return atomic_load_relaxed(counter(ino));
}

static int sync_call(long number, int fd)
{
	int error = atomic_load_relaxed(&failing_errno);
	struct stat st;
	bool after = false;
	int r;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		if (error && st.st_ino == atomic_load_relaxed(&failing_ino)) {
			errno = error;
			return -1;
		}
		(void)atomic_add_relaxed(counter(st.st_ino), 1);
		after = atomic_load_seq(&after_ino) == st.st_ino;
	}
	r = (int)syscall(number, fd);
	if (after && atomic_xchg_seq(&after_ino, 0) != 0)
		after_call();
	return r;
}

static void (*before_reopen)(void);

void faults_before_reopen(void (*call)(void))
{
	atomic_store_seq(&before_reopen, call); /* release: pairs with the exchange in open */
}

/* In place of libc's, which pool/ and the test itself call, too. */
__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
	void (*call)(void) = NULL;
	mode_t mode = 0;
	va_list ap;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (strncmp(path, "/proc/self/fd/", 14) == 0)
		call = atomic_xchg_seq(&before_reopen, NULL);
	if (call)
		call();
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int handle_errno;

void faults_open_by_handle(int error)
{
	atomic_store_relaxed(&handle_errno, error);
}

__attribute__((visibility("default"))) int open_by_handle_at(int mount, struct file_handle *h,
							     int flags)
{
	int error = atomic_load_relaxed(&handle_errno);

	if (error) {
		errno = error;
		return -1;
	}
	return (int)syscall(SYS_open_by_handle_at, mount, h, flags);
}

static unsigned write_ms;

void faults_slow_writes(unsigned ms)
{
	atomic_store_relaxed(&write_ms, ms);
}

__attribute__((visibility("default"))) ssize_t pwritev(int fd, const struct iovec *iov, int count,
						       off_t offset)
{
	(void)usleep(1000 * atomic_load_relaxed(&write_ms));
	return syscall(SYS_pwritev, fd, iov, count, offset, 0);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	return sync_call(SYS_fdatasync, fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
	return sync_call(SYS_fsync, fd);
}
