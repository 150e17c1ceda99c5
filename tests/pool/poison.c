/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Poison for one process: LD_PRELOAD with POISON=NAME:OFFSET:BYTES. In every shared mapping of a file whose
 * path ends with NAME those pages raise SIGBUS (they are another file's, beyond its end), and pread of them
 * fails with EIO, as on memory with an uncorrectable error. POISON_WHEN=PATH: only once that file is there
 * (looked at every 5 ms by a thread; existing mappings are hit then).
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPPINGS 64

static struct {
	uint8_t *at;
	size_t bytes;
} known[MAPPINGS];
static unsigned n_known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char name[128];
static uint64_t offset, bytes;
static int empty = -1;
static volatile int active;

static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);

static int is_it(int fd)
{
	char link[64], path[512];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || name[0] == '\0')
		return 0;
	path[n] = '\0';
	return (size_t)n >= strlen(name) && strcmp(path + n - strlen(name), name) == 0;
}

static void poison(uint8_t *at, size_t n)
{
	if (offset < n)
		(void)real_mmap(at + offset, bytes < n - offset ? bytes : n - offset,
				PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty, 0);
}

static void *watch(void *when)
{
	while (access(when, F_OK) < 0)
		(void)usleep(5000);
	(void)pthread_mutex_lock(&lock);
	active = 1;
	for (unsigned i = 0; i < n_known; i++)
		poison(known[i].at, known[i].bytes);
	(void)pthread_mutex_unlock(&lock);
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	const char *p = getenv("POISON");
	char *when = getenv("POISON_WHEN");
	pthread_t thread;

	real_mmap = dlsym(RTLD_NEXT, "mmap");
	real_pread = dlsym(RTLD_NEXT, "pread");
	if (!p || sscanf(p, "%127[^:]:%lu:%lu", name, &offset, &bytes) != 3)
		return;
	empty = memfd_create("poison", MFD_CLOEXEC);
	if (!when)
		active = 1;
	else
		(void)pthread_create(&thread, NULL, watch, when);
}

void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t at)
{
	void *p = real_mmap ? real_mmap(addr, n, prot, flags, fd, at) : MAP_FAILED;

	if (p == MAP_FAILED || at != 0 || !(flags & MAP_SHARED) || fd < 0 || !is_it(fd))
		return p;
	(void)pthread_mutex_lock(&lock);
	if (active)
		poison(p, n);
	else if (n_known < MAPPINGS) {
		known[n_known].at = p;
		known[n_known++].bytes = n;
	}
	(void)pthread_mutex_unlock(&lock);
	return p;
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	if (active && (uint64_t)at < offset + bytes && (uint64_t)at + n > offset && is_it(fd)) {
		errno = EIO;
		return -1;
	}
	return real_pread(fd, buf, n, at);
}

void *mmap64(void *addr, size_t n, int prot, int flags, int fd, off_t at)
	__attribute__((alias("mmap")));
ssize_t pread64(int fd, void *buf, size_t n, off_t at) __attribute__((alias("pread")));
