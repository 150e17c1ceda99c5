/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A small database of logs, which knows nothing of pmemlogd: plain POSIX calls, each followed by the
 * sync that makes it durable.
 *
 *   toydb FOLDER PROCESSES SEED FIRST OUT
 *
 * PROCESSES writers, each with FILES files FOLDER/toy-P-I.log of its own and a list of what it does in
 * OUT.P (one write() a line, nanoseconds of CLOCK_MONOTONIC last):
 *   B SEQ W I OFFSET LENGTH NS   about to write pattern(P, SEQ) there
 *   B SEQ T I SIZE 0 NS          to truncate
 *   B SEQ R I 0 LENGTH NS        to rename it to .old and begin a new one with LENGTH bytes
 *   B SEQ U I 0 0 NS             to unlink .old
 *   A SEQ ... NS                 it is done and durable
 *   E SEQ errno NS               it failed; the writer ends
 * SEQ counts from FIRST. It runs until it is killed.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES	 4
#define BIG_MAX	 (2u << 20) /* above bypass_size, and above an eighth of a small lane */
#define SMALL	 9000u
#define FILE_MAX (3u << 20) /* longer ones are truncated or rotated */

struct log {
	char name[32], old[48];
	int fd;	    /* positioned writes, O_DSYNC or not by chance of opening */
	int append; /* O_APPEND */
	int dsync;
	uint64_t position; /* of fd */
};

static struct log logs[FILES];
static int folder, out;
static unsigned process;
static uint64_t rng, seq;
static char data[BIG_MAX];

static uint64_t chance(uint64_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (rng * UINT64_C(0x2545f4914f6cdd1d) >> 33) % n;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void say(char what, char op, int file, uint64_t offset, uint64_t length)
{
	char line[128];
	int n = snprintf(line, sizeof(line),
			 "%c %" PRIu64 " %c %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", what, seq,
			 op, file, offset, length, now_ns());

	if (write(out, line, (size_t)n) != n)
		_exit(3);
}

/* The call of the operation under way failed. */
static void must(int ok)
{
	if (ok)
		return;
	say('E', 'x', 0, (uint64_t)errno, 0);
	_exit(1);
}

static void pattern(uint64_t n)
{
	uint64_t word = ((seq + 1) * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)process << 56);

	for (uint64_t i = 0; i < n; i += sizeof(word))
		memcpy(data + i, &word, sizeof(word));
}

static void open_log(struct log *l)
{
	l->dsync = chance(2) == 0;
	l->fd = openat(folder, l->name, O_RDWR | O_CREAT | O_CLOEXEC | (l->dsync ? O_DSYNC : 0),
		       0600);
	must(l->fd >= 0);
	l->append = openat(folder, l->name, O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	must(l->append >= 0);
	l->position = 0;
}

static void close_log(struct log *l)
{
	must(close(l->fd) == 0);
	must(close(l->append) == 0);
}

static uint64_t size_of(const struct log *l)
{
	struct stat st;

	must(fstat(l->fd, &st) == 0);
	return (uint64_t)st.st_size;
}

static void sync_written(const struct log *l)
{
	if (!l->dsync)
		must((chance(4) ? fdatasync(l->fd) : fsync(l->fd)) == 0);
}

static void do_pwrite(int i, uint64_t offset, uint64_t n)
{
	const struct log *l = &logs[i];

	pattern(n);
	say('B', 'W', i, offset, n);
	if (chance(3)) {
		must(pwrite(l->fd, data, n, (off_t)offset) == (ssize_t)n);
	} else {
		struct iovec v[3] = { { data, n / 3 },
				      { data + n / 3, n / 3 },
				      { data + n / 3 * 2, n - n / 3 * 2 } };

		must(pwritev(l->fd, v, 3, (off_t)offset) == (ssize_t)n);
	}
	sync_written(l);
	say('A', 'W', i, offset, n);
}

static void do_append(int i, uint64_t n)
{
	const struct log *l = &logs[i];
	uint64_t end = size_of(l);

	pattern(n);
	say('B', 'W', i, end, n);
	must(write(l->append, data, n) == (ssize_t)n);
	must(fdatasync(l->append) == 0);
	say('A', 'W', i, end, n);
}

static void do_next(int i, uint64_t n)
{
	struct log *l = &logs[i];

	if (l->position > size_of(l)) {
		must(lseek(l->fd, 0, SEEK_SET) == 0);
		l->position = 0;
	}
	pattern(n);
	say('B', 'W', i, l->position, n);
	must(write(l->fd, data, n) == (ssize_t)n);
	sync_written(l);
	say('A', 'W', i, l->position, n);
	l->position += n;
}

/* A child writes through the descriptor that it inherited. */
static void do_fork(int i, uint64_t offset, uint64_t n)
{
	const struct log *l = &logs[i];
	int status = 0;
	pid_t child;

	pattern(n);
	say('B', 'W', i, offset, n);
	child = fork();
	must(child >= 0);
	if (child == 0) {
		int good = pwrite(l->fd, data, n, (off_t)offset) == (ssize_t)n &&
			   fdatasync(l->fd) == 0;

		_exit(good ? 0 : errno);
	}
	must(waitpid(child, &status, 0) == child);
	/* Killed by the test, which wanted a writer: the operation may have been done or not. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		_exit(4);
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	must(status == 0);
	say('A', 'W', i, offset, n);
}

static void do_truncate(int i, uint64_t size)
{
	say('B', 'T', i, size, 0);
	must(ftruncate(logs[i].fd, (off_t)size) == 0);
	must(fsync(logs[i].fd) == 0);
	say('A', 'T', i, size, 0);
}

static void do_rotate(int i, uint64_t n)
{
	struct log *l = &logs[i];

	pattern(n);
	say('B', 'R', i, 0, n);
	must(renameat(folder, l->name, folder, l->old) == 0);
	close_log(l);
	open_log(l);
	must(pwrite(l->fd, data, n, 0) == (ssize_t)n);
	must(fsync(l->fd) == 0);
	must(fsync(folder) == 0);
	say('A', 'R', i, 0, n);
}

static void do_unlink(int i)
{
	say('B', 'U', i, 0, 0);
	must(unlinkat(folder, logs[i].old, 0) == 0 || errno == ENOENT);
	must(fsync(folder) == 0);
	say('A', 'U', i, 0, 0);
}

static void one(void)
{
	int i = (int)chance(FILES);
	uint64_t size = size_of(&logs[i]);
	uint64_t n = 1 + chance(chance(4) ? 600 : SMALL);
	uint64_t offset = chance(size + 1);

	if (size > FILE_MAX) {
		if (chance(2))
			do_rotate(i, n);
		else
			do_truncate(i, chance(size));
		return;
	}
	switch (chance(24)) {
	case 0:
		do_truncate(i, chance(size + 4096));
		break;
	case 1:
		do_rotate(i, n);
		break;
	case 2:
		do_unlink(i);
		break;
	case 3:
		if (chance(3) == 0)
			do_pwrite(i, offset, BIG_MAX - chance(BIG_MAX / 2));
		break;
	case 4:
		do_fork(i, offset, n);
		break;
	case 5:
		close_log(&logs[i]);
		open_log(&logs[i]);
		break;
	case 6:
	case 7:
	case 8:
	case 9:
		do_append(i, n);
		break;
	case 10:
	case 11:
	case 12:
		do_next(i, n);
		break;
	default:
		do_pwrite(i, offset, n);
		break;
	}
}

static void writer(const char *prefix, uint64_t seed)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s.%u", prefix, process);
	out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (out < 0)
		_exit(2);
	rng = (seed * 64 + process + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(logs[i].name, sizeof(logs[i].name), "toy-%u-%d.log", process, i);
		(void)snprintf(logs[i].old, sizeof(logs[i].old), "toy-%u-%d.log.old", process, i);
		open_log(&logs[i]);
	}
	must(fsync(folder) == 0);
	say('S', 'x', 0, 0, 0); /* started: the files are there */
	for (;; seq++)
		one();
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: toydb FOLDER PROCESSES SEED FIRST OUT\n");
		return 64;
	}
	folder = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0) {
		perror(argv[1]);
		return 2;
	}
	seq = strtoull(argv[4], NULL, 10);
	for (unsigned i = 1; i < (unsigned)atoi(argv[2]); i++) {
		pid_t child = fork();

		if (child < 0)
			return 2;
		if (child == 0) {
			process = i;
			break;
		}
	}
	writer(argv[5], strtoull(argv[3], NULL, 10));
	return 0;
}
