/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Every call by which recovery changes something counts as a step: copies through the table of pool_ops,
 * calls on files through the linker (--wrap). With a seed, drains too, and what was not drained is lost in part.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/ops.h"
#include "tests/recover/torn.h"
#include "tests/recover/world.h"

#define DIED 42

uint64_t steps_synced_directory;

static unsigned step, die_before;
static enum fault fault;
static unsigned fault_in;
static int fault_error;

ssize_t __real_pwrite64(int fd, const void *p, size_t n, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *p, size_t n, off_t offset);
ssize_t __real_pread64(int fd, void *p, size_t n, off_t offset);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __real_fremovexattr(int fd, const char *name);
int __wrap_fremovexattr(int fd, const char *name);
int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __real_unlinkat(int fd, const char *path, int flags);
int __wrap_unlinkat(int fd, const char *path, int flags);
int __real_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __real_open_by_handle_at(int fd, struct file_handle *h, int flags);
int __wrap_open_by_handle_at(int fd, struct file_handle *h, int flags);

static void count_step(void)
{
	if (!die_before || ++step != die_before)
		return;
	torn_cut();
	_exit(DIED);
}

void fault_set(enum fault which, unsigned n, int error)
{
	fault = which;
	fault_in = n;
	fault_error = error;
}

static bool fails(enum fault which)
{
	if (which == FAULT_FDATASYNC && fault == FAULT_FDATASYNC_ALL) {
		errno = fault_error;
		return true;
	}
	if (fault != which || fault_in == 0 || --fault_in > 0)
		return false;
	errno = fault_error;
	return true;
}

ssize_t __wrap_pwrite64(int fd, const void *p, size_t n, off_t offset)
{
	count_step();
	return fails(FAULT_PWRITE) ? -1 : __real_pwrite64(fd, p, n, offset);
}

ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t offset)
{
	return fails(FAULT_PREAD) ? -1 : __real_pread64(fd, p, n, offset);
}

int __wrap_fdatasync(int fd)
{
	count_step();
	return fails(FAULT_FDATASYNC) ? -1 : __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
	struct stat st;

	count_step();
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		steps_synced_directory = st.st_ino;
	return __real_fsync(fd);
}

int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	count_step();
	return __real_fsetxattr(fd, name, value, size, flags);
}

int __wrap_fremovexattr(int fd, const char *name)
{
	count_step();
	return __real_fremovexattr(fd, name);
}

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	count_step();
	return __real_ioctl(fd, request, arg);
}

int __wrap_unlinkat(int fd, const char *path, int flags)
{
	count_step();
	return __real_unlinkat(fd, path, flags);
}

int __wrap_renameat(int a, const char *from, int b, const char *to)
{
	count_step();
	return __real_renameat(a, from, b, to);
}

int __wrap_open_by_handle_at(int fd, struct file_handle *h, int flags)
{
	return fails(FAULT_OPEN_BY_HANDLE) ? -1 : __real_open_by_handle_at(fd, h, flags);
}

static const struct pool_ops *real_ops;

static void counted_copy(void *dst, const void *src, size_t n)
{
	count_step();
	real_ops->copy(dst, src, n);
}

static void counted_flush(const void *p, size_t n)
{
	real_ops->flush(p, n);
}

/* No step: a process that dies loses nothing that it copied. tests/crash is for what a cut takes away. */
static void counted_drain(void)
{
	real_ops->drain();
}

static const struct pool_ops counted_ops = { counted_copy, counted_flush, counted_drain };

void steps_begin(void)
{
	step = 0;
	die_before = (unsigned)atoi(getenv("DIE_BEFORE"));
	if (getenv("DIE_SEED"))
		return; /* torn from the child's beginning */
	real_ops = pool_ops;
	pool_ops = &counted_ops;
}

bool die_torn_at_step(unsigned n, uint64_t seed, void (*body)(void *), void *arg)
{
	char text[24];
	bool died;

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	(void)setenv("DIE_SEED", text, 1);
	died = die_at_step(n, body, arg);
	(void)unsetenv("DIE_SEED");
	return died;
}

bool die_at_step(unsigned n, void (*body)(void *), void *arg)
{
	char text[16];
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)snprintf(text, sizeof(text), "%u", n);
		(void)setenv("DIE_BEFORE", text, 1);
		if (getenv("DIE_SEED"))
			torn_begin(strtoull(getenv("DIE_SEED"), NULL, 0), count_step);
		body(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == DIED);
	return WEXITSTATUS(status) == DIED;
}
