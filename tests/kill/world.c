/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "world.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS_MAX 256u
#define FILES_MAX   64u

struct mapped {
	int fd;
	dev_t dev;
	ino_t ino;
	char *bytes;
	size_t length;
	uint64_t sum;
};

static struct call calls[THREADS_MAX];
static struct mapped files[FILES_MAX];
static unsigned files_n;

struct call *world_call(pid_t tid)
{
	struct call *free = NULL;

	for (unsigned i = 0; i < THREADS_MAX; i++) {
		if (calls[i].tid == tid)
			return &calls[i];
		if (calls[i].tid == 0 && !free)
			free = &calls[i];
	}
	if (!free) {
		fprintf(stderr, "killat: more than %u threads\n", THREADS_MAX);
		exit(125);
	}
	*free = (struct call){ .tid = tid };
	return free;
}

void world_gone(pid_t tid)
{
	for (unsigned i = 0; i < THREADS_MAX; i++)
		if (calls[i].tid == tid)
			calls[i] = (struct call){ 0 };
}

/* Locks, descriptors and threads go with the process anyway, and what it has only waited for is not its doing. */
static bool leaves_nothing(uint64_t nr, const uint64_t *args)
{
	static const int quiet[] = {
		SYS_read,
		SYS_pread64,
		SYS_close,
		SYS_fstat,
		SYS_newfstatat,
		SYS_statx,
		SYS_fstatfs,
		SYS_statfs,
		SYS_lseek,
		SYS_mmap,
		SYS_munmap,
		SYS_mprotect,
		SYS_brk,
		SYS_access,
		SYS_getdents64,
		SYS_fgetxattr,
		SYS_getrandom,
		SYS_rt_sigaction,
		SYS_uname,
		SYS_prctl,
		SYS_getpid,
		SYS_readlink,
		SYS_rt_sigprocmask,
		SYS_open_by_handle_at,
		SYS_clock_gettime,
		SYS_set_robust_list,
		SYS_fcntl,
		SYS_flock,
		SYS_clone,
		SYS_clone3,
		SYS_epoll_wait,
		SYS_epoll_pwait,
		SYS_epoll_pwait2,
		SYS_epoll_ctl,
		SYS_epoll_create1,
		SYS_poll,
		SYS_ppoll,
		SYS_clock_nanosleep,
		SYS_nanosleep,
		SYS_recvmsg,
		SYS_recvfrom,
		SYS_accept4,
		SYS_socket,
		SYS_eventfd2,
		SYS_signalfd4,
		SYS_timerfd_create,
		SYS_timerfd_settime,
		SYS_wait4,
		SYS_sched_yield,
		SYS_gettid,
		SYS_rt_sigreturn,
	};

	if (nr == SYS_openat)
		return (args[2] & (O_CREAT | O_TRUNC)) == 0;
	if (nr == SYS_futex) /* a wake-up wakes others */
		return ((int)args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ||
		       ((int)args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
	if (nr == SYS_ioctl) /* _IOR: asks only */
		return args[1] >> 30 == 2;
	for (size_t i = 0; i < sizeof(quiet) / sizeof(quiet[0]); i++)
		if (nr == (uint64_t)quiet[i])
			return true;
	return false;
}

void world_entered(struct call *call, const struct __ptrace_syscall_info *info)
{
	call->nr = (uint32_t)info->entry.nr;
	for (unsigned i = 0; i < 6; i++)
		call->args[i] = info->entry.args[i];
	call->inside = true;
	call->leaves_nothing = leaves_nothing(call->nr, call->args);
}

bool world_others_inside(const struct call *call)
{
	for (unsigned i = 0; i < THREADS_MAX; i++)
		if (calls[i].tid != 0 && &calls[i] != call && calls[i].inside &&
		    !calls[i].leaves_nothing)
			return true;
	return false;
}

static void map_noted(pid_t tid, int fd)
{
	struct mapped m = { .fd = -1 };
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", tid, fd);
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	for (unsigned i = 0; i < files_n; i++)
		if (files[i].dev == st.st_dev && files[i].ino == st.st_ino)
			return;
	m.fd = open(path, O_RDONLY | O_CLOEXEC);
	m.dev = st.st_dev;
	m.ino = st.st_ino;
	if (m.fd < 0 || files_n == FILES_MAX) {
		fprintf(stderr, "killat: a mapped file cannot be watched\n");
		exit(125);
	}
	files[files_n++] = m;
}

void world_left(struct call *call, const struct __ptrace_syscall_info *info)
{
	call->inside = false;
	if (call->nr == SYS_mmap && !info->exit.is_error && (int)call->args[4] >= 0 &&
	    (call->args[2] & PROT_WRITE) && (call->args[3] & MAP_TYPE) != MAP_PRIVATE)
		map_noted(call->tid, (int)call->args[4]);
}

/* No bytes of other people's making, so nothing that withstands them: four chains, to keep the processor busy. */
static uint64_t sum_of(uint64_t sum, const uint64_t *words, size_t n)
{
	const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t s[4] = { sum, sum ^ k, sum + k, ~sum };

	for (size_t i = 0; i + 4 <= n; i += 4)
		for (unsigned j = 0; j < 4; j++)
			s[j] = (s[j] ^ words[i + j]) * k + (s[j] >> 47);
	return s[0] ^ (s[1] << 13 | s[1] >> 51) ^ (s[2] << 29 | s[2] >> 35) ^
	       (s[3] << 47 | s[3] >> 17);
}

/* Of all that is not a hole; a page of zeros and a hole are told apart, which costs an event. Mapped, since the
 * pool's catalog is long and copies would double the time; what the tracer maps it does not allocate. */
static uint64_t content(struct mapped *m)
{
	struct stat st;
	uint64_t sum;
	off_t at = 0;

	if (fstat(m->fd, &st) < 0)
		return 0;
	if (m->length != (size_t)st.st_size) {
		if (m->bytes)
			(void)munmap(m->bytes, m->length);
		m->length = (size_t)st.st_size;
		m->bytes =
			m->length ? mmap(NULL, m->length, PROT_READ, MAP_SHARED, m->fd, 0) : NULL;
		if (m->bytes == MAP_FAILED) {
			fprintf(stderr, "killat: a mapped file cannot be mapped here\n");
			exit(125);
		}
	}
	sum = (uint64_t)st.st_size;
	while ((at = lseek(m->fd, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(m->fd, at, SEEK_HOLE);
		const uint64_t *words = (const uint64_t *)(const void *)(m->bytes + at);

		if (end <= at)
			break;
		sum = sum_of(sum ^ (uint64_t)at, words, (size_t)(end - at) / sizeof(*words));
		at = end;
	}
	return sum;
}

bool world_stored(void)
{
	bool stored = false;

	for (unsigned i = 0; i < files_n; i++) {
		uint64_t sum = content(&files[i]);

		stored = stored || sum != files[i].sum;
		files[i].sum = sum;
	}
	return stored;
}
