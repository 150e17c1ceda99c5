/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Faults put into the daemon by LD_PRELOAD, steered from outside through a shared file (FAULT_FILE):
 * syncs that fail or take long, writes that fail, come short, are interrupted or late, and death or
 * a standstill at the n-th step. Only calls on files whose path begins with `below` and contains
 * `only` count; a step is the moment before or after such a call. cases.py knows the offsets.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct fault {
	/* orders: written by the test, the first two counted down here */
	uint32_t sync_fail;	  /* the next so many syncs: EIO */
	uint32_t write_fail;	  /* the next so many writes: EIO */
	uint32_t sync_fail_every; /* each n-th sync: EIO; 0: none */
	uint32_t sync_sleep_ms;
	uint32_t write_sleep_us; /* at most, at random */
	uint32_t write_odd;	 /* percent of writes that come short or with EINTR */
	uint32_t kill_at;	 /* SIGKILL at this step; 0: never */
	uint32_t stop_at;	 /* SIGSTOP at this step; 0: never */
	uint32_t seed;
	/* counters */
	uint32_t steps, syncs, writes, failed, odd;
	uint32_t reserved[2];
	char below[256], only[64];
};

static struct fault *order;

static void load(void)
{
	const char *path = getenv("FAULT_FILE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *p = MAP_FAILED;

	if (fd >= 0) {
		p = mmap(NULL, sizeof(*order), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (p == MAP_FAILED) {
		fprintf(stderr, "fault: FAULT_FILE cannot be mapped\n");
		_exit(99);
	}
	order = p;
}

__attribute__((constructor)) static void begin(void)
{
	load();
}

static int ours(int fd)
{
	char link[32], path[1024];
	ssize_t n;

	if (!order)
		load();
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0 || !*order->below)
		return 0;
	path[n] = '\0';
	return strncmp(path, order->below, strlen(order->below)) == 0 && strstr(path, order->only);
}

static void step(void)
{
	uint32_t n = __atomic_add_fetch(&order->steps, 1, __ATOMIC_SEQ_CST);

	if (n == order->kill_at)
		kill(getpid(), SIGKILL);
	if (n == order->stop_at)
		kill(getpid(), SIGSTOP);
}

static uint32_t some(uint32_t below)
{
	static _Thread_local uint64_t state;

	if (!state)
		state = order->seed * UINT64_C(2654435761) + (uint64_t)getpid() + 1;
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return below ? (uint32_t)(state >> 33) % below : 0;
}

static void sleep_us(uint64_t us)
{
	struct timespec t = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

	if (us)
		nanosleep(&t, NULL);
}

/* Takes one of `*left`, if any. */
static int take(uint32_t *left)
{
	uint32_t n = __atomic_load_n(left, __ATOMIC_SEQ_CST);

	while (n)
		if (__atomic_compare_exchange_n(left, &n, n - 1, 0, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return 1;
	return 0;
}

static int failing(int yes, int error)
{
	if (yes) {
		__atomic_add_fetch(&order->failed, 1, __ATOMIC_SEQ_CST);
		errno = error;
	}
	return yes;
}

static int sync_call(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	uint32_t n;
	int r;

	if (!ours(fd))
		return real(fd);
	step();
	sleep_us(UINT64_C(1000) * order->sync_sleep_ms);
	n = __atomic_add_fetch(&order->syncs, 1, __ATOMIC_SEQ_CST);
	if (failing(take(&order->sync_fail) ||
			    (order->sync_fail_every && n % order->sync_fail_every == 0),
		    EIO))
		return -1;
	r = real(fd);
	step();
	return r;
}

/* Both names of each: a program built for 64-bit offsets calls the second one. */
#pragma GCC visibility push(default)

int fsync(int fd)
{
	return sync_call("fsync", fd);
}

int fdatasync(int fd)
{
	return sync_call("fdatasync", fd);
}

#pragma GCC visibility pop

static ssize_t write_call(int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
	ssize_t (*real)(int, const struct iovec *, int, off64_t, int) =
		(ssize_t(*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT,
										"pwritev64v2");
	ssize_t r;

	if (!ours(fd))
		return real(fd, iov, n, offset, flags);
	step();
	sleep_us(some(order->write_sleep_us));
	__atomic_add_fetch(&order->writes, 1, __ATOMIC_SEQ_CST);
	if (failing(take(&order->write_fail), EIO))
		return -1;
	if (some(100) < order->write_odd) {
		struct iovec part = iov[0];

		__atomic_add_fetch(&order->odd, 1, __ATOMIC_SEQ_CST);
		if (some(2) || part.iov_len < 2) {
			errno = EINTR;
			return -1;
		}
		part.iov_len = 1 + some((uint32_t)part.iov_len - 1);
		r = real(fd, &part, 1, offset, flags);
	} else {
		r = real(fd, iov, n, offset, flags);
	}
	step();
	return r;
}

#pragma GCC visibility push(default)

ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t offset, int flags)
{
	return write_call(fd, iov, n, offset, flags);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
	return write_call(fd, iov, n, offset, flags);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t offset)
{
	return write_call(fd, iov, n, offset, 0);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	return write_call(fd, iov, n, offset, 0);
}

ssize_t pwrite64(int fd, const void *p, size_t bytes, off64_t offset)
{
	const struct iovec iov = { (void *)(uintptr_t)p, bytes };

	return write_call(fd, &iov, 1, offset, 0);
}

ssize_t pwrite(int fd, const void *p, size_t bytes, off_t offset)
{
	return pwrite64(fd, p, bytes, offset);
}
