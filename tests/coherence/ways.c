/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ways.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20)

const char *const mode_names[MODES] = { "pread",	   "mmap", "O_DIRECT", "sendfile",
					"copy_file_range", "cp",   "tail" };

static _Thread_local sigjmp_buf over_the_end;

static void on_sigbus(int sig)
{
	(void)sig;
	siglongjmp(over_the_end, 1);
}

int way_open(struct way *w, const char *path, size_t bytes, unsigned number)
{
	static const struct sigaction act = { .sa_handler = on_sigbus, .sa_flags = SA_NODEFER };
	char copy[1024];

	sigaction(SIGBUS, &act, NULL);
	*w = (struct way){ .fd = open(path, O_RDONLY | O_CLOEXEC), .map_bytes = bytes };
	if (w->fd < 0)
		return -1;
	w->direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	file_path(copy, "copy.", (uint64_t)getpid() << 8 | number);
	w->copy = open(copy, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unlink(copy);
	w->map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, w->fd, 0);
	if (w->direct < 0 || w->copy < 0 || w->map == MAP_FAILED || pipe(w->pipe) < 0 ||
	    fcntl(w->pipe[1], F_SETPIPE_SZ, PIPE_BYTES) < 0 ||
	    posix_memalign((void **)&w->aligned, 4096, PIPE_BYTES) != 0)
		return -1;
	return 0;
}

void way_close(struct way *w)
{
	close(w->fd);
	close(w->direct);
	close(w->copy);
	close(w->pipe[0]);
	close(w->pipe[1]);
	munmap((void *)(uintptr_t)w->map, w->map_bytes);
	free(w->aligned);
}

/* A regular file gives less than asked for at its end only. */
static ssize_t all_of(int fd, uint8_t *to, size_t n, off_t at)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = pread(fd, to + done, n - done, at + (off_t)done);

		if (r < 0)
			return -1;
		if (r == 0)
			break;
		done += (size_t)r;
		/* the end, within a sector: from there O_DIRECT would be refused */
		if (done % 512 != 0)
			break;
	}
	return (ssize_t)done;
}

/* Word by word: what a page that is cut off meanwhile still gave stays. */
static ssize_t by_mmap(const struct way *w, uint64_t *to, size_t n, off_t at)
{
	const volatile uint64_t *from = (const volatile void *)(w->map + at);
	volatile size_t i = 0;

	if (sigsetjmp(over_the_end, 0) == 0)
		for (; i < n / 8; i++)
			to[i] = from[i];
	return (ssize_t)(i * 8);
}

static ssize_t by_sendfile(const struct way *w, uint8_t *to, size_t n, off_t at)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = sendfile(w->pipe[1], w->fd, &at, n - done);

		if (r < 0)
			return -1;
		if (r == 0)
			break;
		for (ssize_t got = 0, k; got < r; got += k) {
			k = read(w->pipe[0], to + done + got, (size_t)(r - got));
			if (k <= 0)
				return -1;
		}
		done += (size_t)r;
	}
	return (ssize_t)done;
}

static ssize_t by_copy(const struct way *w, uint8_t *to, size_t n, off_t at)
{
	off_t there = 0;
	size_t done = 0;

	if (ftruncate(w->copy, 0) < 0)
		return -1;
	while (done < n) {
		ssize_t r = copy_file_range(w->fd, &at, w->copy, &there, n - done, 0);

		if (r < 0)
			return -1;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return all_of(w->copy, to, done, 0);
}

ssize_t way_read(struct way *w, enum mode mode, void *buffer, size_t n, off_t at)
{
	ssize_t r;

	switch (mode) {
	case BY_MMAP:
		r = by_mmap(w, buffer, n, at);
		break;
	case BY_DIRECT:
		r = all_of(w->direct, w->aligned, n, at);
		if (r > 0)
			memcpy(buffer, w->aligned, (size_t)r);
		break;
	case BY_SENDFILE:
		r = by_sendfile(w, buffer, n, at);
		break;
	case BY_COPY:
		r = by_copy(w, buffer, n, at);
		break;
	default:
		r = all_of(w->fd, buffer, n, at);
	}
	if (r >= 0)
		memset((uint8_t *)buffer + r, 0, n - (size_t)r);
	return r;
}

ssize_t way_cp(struct way *w, const char *path, void *buffer, size_t n)
{
	char name[] = "cp", copy[64];
	char *argv[] = { name, (char *)(uintptr_t)path, copy, NULL };
	char *none[] = { NULL };
	pid_t pid;
	int status;
	ssize_t r;

	/* by its number: cp opens it anew, and ends with us if we do */
	snprintf(copy, sizeof(copy), "/proc/%d/fd/%d", (int)getpid(), w->copy);
	if (posix_spawn(&pid, "/bin/cp", NULL, NULL, argv, none) != 0 ||
	    waitpid(pid, &status, 0) != pid || status != 0)
		return -1;
	r = all_of(w->copy, buffer, n, 0);
	if (r >= 0)
		memset((uint8_t *)buffer + r, 0, n - (size_t)r);
	return r;
}
