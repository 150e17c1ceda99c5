/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program that does what it is told, line by line on stdin, and answers each line with
 * "RESULT ERRNO MICROSECONDS". Errors are names (EIO), 0 where there is none.
 *
 *	open SLOT PATH FLAGS	flags: r w + a c x t d s S (read, write, both, append, create, excl, trunc, direct,
 *				dsync, sync)
 *	write SLOT BYTES	at the position, filled with a running letter
 *	pwrite SLOT BYTES OFFSET
 *	sync SLOT | close SLOT | dup SLOT SLOT
 *	load SLOT COUNT BYTES	COUNT times pwrite + fdatasync at rising offsets; time: the longest
 *	storm SLOT THREADS COUNT	threads write COUNT blocks of 512 bytes each, side by side, sync now and
 *				then, and read them back at the end; time: the longest call
 *	fork			the child goes on reading our stdin, the parent waits for its end
 *	map SLOT | stream SLOT | fopen PATH MODE | keep SLOT	shared mapping, fdopen, fopen (a line is
 *				written), close-on-exec cleared
 *	close-all		every descriptor from 3 on, in the ways that daemons do it
 *	raw-close SLOT | raw-open SLOT PATH	by instructions that no library sees
 *	unlink PATH | rename PATH PATH | truncate PATH BYTES
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"

#define SLOTS 64

static int fds[SLOTS];
static char letter = 'a';

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int flags_of(const char *words)
{
	int flags = O_CLOEXEC;

	for (; *words; words++) {
		switch (*words) {
		case 'w':
			flags |= O_WRONLY;
			break;
		case '+':
			flags |= O_RDWR;
			break;
		case 'a':
			flags |= O_APPEND;
			break;
		case 'c':
			flags |= O_CREAT;
			break;
		case 'x':
			flags |= O_EXCL;
			break;
		case 't':
			flags |= O_TRUNC;
			break;
		case 'd':
			flags |= O_DIRECT;
			break;
		case 's':
			flags |= O_DSYNC;
			break;
		case 'S':
			flags |= O_SYNC;
			break;
		default:
			break;
		}
	}
	return flags;
}

static const char *filled(long bytes)
{
	static char *buffer;

	free(buffer);
	buffer = malloc((size_t)bytes + 1);
	if (!buffer)
		exit(3);
	memset(buffer, letter, (size_t)bytes);
	letter = letter == 'z' ? 'a' : (char)(letter + 1);
	return buffer;
}

/* Result; *ret_longest in microseconds. */
static long load(int fd, long count, long bytes, long *ret_longest)
{
	const char *p = filled(bytes);

	*ret_longest = 0;
	for (long i = 0; i < count; i++) {
		long from = now_us(), took;

		if (pwrite(fd, p, (size_t)bytes, i % 512 * bytes) != bytes || fdatasync(fd) < 0)
			return -1;
		took = now_us() - from;
		if (took > *ret_longest)
			*ret_longest = took;
	}
	return count;
}

struct storm {
	pthread_t thread;
	int fd;
	long number, threads, count, longest, bad;
};

static void note(struct storm *s, long from)
{
	long took = now_us() - from;

	if (took > s->longest)
		s->longest = took;
}

static void *storm_thread(void *arg)
{
	struct storm *s = arg;
	char block[512], back[512];

	for (long i = 0; i < s->count; i++) {
		long from = now_us();
		/* rewritten again and again, as logs are */
		off_t at = (i % 64 * s->threads + s->number) * (off_t)sizeof(block);

		memset(block, (int)('a' + i % 26), sizeof(block));
		if (pwrite(s->fd, block, sizeof(block), at) != sizeof(block) ||
		    (i % 8 == 0 && fdatasync(s->fd) < 0))
			s->bad++;
		note(s, from);
		if (pread(s->fd, back, sizeof(back), at) != sizeof(back) ||
		    memcmp(block, back, sizeof(back)) != 0)
			s->bad++;
		usleep(200);
	}
	return NULL;
}

static long storm(int fd, long threads, long count, long *ret_longest)
{
	static struct storm all[32];
	long bad = 0;

	*ret_longest = 0;
	for (long i = 0; i < threads && i < 32; i++) {
		all[i] =
			(struct storm){ .fd = fd, .number = i, .threads = threads, .count = count };
		if (pthread_create(&all[i].thread, NULL, storm_thread, &all[i]) != 0)
			exit(3);
	}
	for (long i = 0; i < threads && i < 32; i++) {
		pthread_join(all[i].thread, NULL);
		bad += all[i].bad;
		if (all[i].longest > *ret_longest)
			*ret_longest = all[i].longest;
	}
	return bad ? -1 : threads * count;
}

static long close_all(void)
{
	for (int i = 3; i < 5000; i++) {
		close(i);
		dup2(0, i);
		close(i);
	}
	if (close_range(3, ~0u, 0) < 0)
		return -1;
	closefrom(3);
	return 0;
}

/* The stream stays open. */
static long put_line(FILE *f)
{
	return f && fputs("line\n", f) >= 0 && fflush(f) == 0 ? 0 : -1;
}

static long fork_here(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		return 0;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static long obey(char *word[5], long *ret_longest)
{
	const char *verb = word[0];
	long a = word[1] ? atol(word[1]) : 0, b = word[2] ? atol(word[2]) : 0;
	long c = word[3] ? atol(word[3]) : 0;
	int *fd = &fds[a >= 0 && a < SLOTS ? a : 0];

	if (strcmp(verb, "open") == 0)
		return (*fd = open(word[2], flags_of(word[3]), 0644)) < 0 ? -1 : 0;
	if (strcmp(verb, "write") == 0)
		return write(*fd, filled(b), (size_t)b);
	if (strcmp(verb, "pwrite") == 0)
		return pwrite(*fd, filled(b), (size_t)b, c);
	if (strcmp(verb, "sync") == 0)
		return fdatasync(*fd);
	if (strcmp(verb, "close") == 0)
		return close(*fd);
	if (strcmp(verb, "dup") == 0)
		return (fds[b] = dup(*fd)) < 0 ? -1 : 0;
	if (strcmp(verb, "load") == 0)
		return load(*fd, b, c, ret_longest);
	if (strcmp(verb, "storm") == 0)
		return storm(*fd, b, c, ret_longest);
	if (strcmp(verb, "fork") == 0)
		return fork_here();
	if (strcmp(verb, "map") == 0)
		return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0) == MAP_FAILED
			       ? -1
			       : 0;
	if (strcmp(verb, "stream") == 0)
		return put_line(fdopen(*fd, "r+"));
	if (strcmp(verb, "fopen") == 0)
		return put_line(fopen(word[1], word[2]));
	if (strcmp(verb, "keep") == 0)
		return fcntl(*fd, F_SETFD, 0);
	if (strcmp(verb, "close-all") == 0)
		return close_all();
	if (strcmp(verb, "raw-close") == 0)
		return sys_call1(SYS_close, *fd);
	if (strcmp(verb, "raw-open") == 0)
		return (*fd = (int)sys_call4(SYS_openat, AT_FDCWD, word[2], O_RDWR | O_CREAT,
					     0600)) < 0
			       ? -1
			       : 0;
	if (strcmp(verb, "unlink") == 0)
		return unlink(word[1]);
	if (strcmp(verb, "rename") == 0)
		return rename(word[1], word[2]);
	if (strcmp(verb, "truncate") == 0)
		return truncate(word[1], b);
	errno = EINVAL;
	return -1;
}

int main(void)
{
	char line[2048];

	for (;;) {
		char *word[5] = { 0 }, *rest = NULL;
		long from, longest = -1, r;
		size_t n = 0;

		/* byte by byte: a forked child goes on where we were */
		while (n < sizeof(line) - 1 && read(0, line + n, 1) == 1 && line[n] != '\n')
			n++;
		line[n] = '\0';
		if (n == 0)
			return 0;
		for (int i = 0; i < 5; i++)
			word[i] = strtok_r(i ? NULL : line, " ", &rest);
		errno = 0;
		from = now_us();
		r = obey(word, &longest);
		printf("%ld %s %ld\n", r, r < 0 ? strerrorname_np(errno) : "0",
		       longest >= 0 ? longest : now_us() - from);
		fflush(stdout);
	}
}
