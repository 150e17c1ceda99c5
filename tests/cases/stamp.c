/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A plain POSIX program that writes, and a checker of what it wrote.
 *
 *	stamp run DIR SHARED SEED FIRST THREADS FILES PLAN SYNC [COUNT [PAUSE]]
 *	stamp check DIR SHARED
 *
 * Thread t (FIRST and up) has 64 KiB of its own in each of DIR/log.0, log.1, ... Which units of 64
 * bytes its n-th write covers follows from (SEED, t, n); each unit says who wrote it, where and as
 * which write. How far each thread came is noted in SHARED, a file on another file system: `issued`
 * before the call, `acked` after the sync has returned.
 *
 * PLAN: mixed, overlap (a block, then its first and last 512 bytes, again and again), wide (64 B to
 * 64 KiB). SYNC: fdatasync (after each write), dsync (O_DSYNC), fork (fdatasync; a child for each write,
 * one after the other). PAUSE: microseconds after each. A killed `run` goes on with the same SHARED at the
 * write that was under way.
 *
 * check: the files must be what the first k writes of each thread leave, in order, with k = acked;
 * units of later writes that were issued may be there, too (of the last one all in a page or block, or none).
 * Anything else is older than an acknowledgement, comes from elsewhere, or is damaged. With a power cut k is what had been
 * acknowledged before it: a sync that is under way while the file system shuts down may well say
 * yes (ext4 does, now and then), which without power nobody would hear.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UNIT	    64u
#define UNITS	    1024u /* of a thread in a file */
#define THREADS_MAX 64u
#define FILES_MAX   16u
#define MAGIC	    UINT64_C(0x7374616d70303031)

enum plan {
	MIXED,
	OVERLAP,
	WIDE
};

struct shared {
	uint64_t seed, count;
	uint32_t first, threads, files, plan, dsync;
	uint32_t stop; /* the test wants an end: errors from now on are its doing */
	uint32_t error;
	uint32_t ready;
	uint64_t slow_us; /* longest write with its sync; the test may set it back to 0 */
	char words[72];
	struct {
		uint64_t issued, acked;
	} thread[THREADS_MAX];
	uint64_t cut;		     /* the test has stored floor[] */
	uint64_t floor[THREADS_MAX]; /* acked just before the power cut */
	uint64_t signals;	     /* taken, with STAMP_SIGNALS in the environment */
	uint32_t pause_us;	     /* after each write; the test may change it */
	uint32_t forks;
	uint32_t dead; /* the test knows that nobody writes any more */
};

struct unit {
	uint64_t magic, seed, n;
	uint32_t thread, file, at, check;
	uint8_t fill[24];
};

_Static_assert(sizeof(struct unit) == UNIT, "unit");

struct piece {
	uint32_t file, at, units;
};

static struct shared *sh;
static int fds[FILES_MAX];

static uint64_t hash(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ b * UINT64_C(0xc2b2ae3d27d4eb4f) ^
		     c * UINT64_C(0x165667b19e3779f9);

	x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static struct piece piece_of(uint32_t t, uint64_t n)
{
	uint64_t h = hash(sh->seed, t, n);
	struct piece p = { .file = (uint32_t)(h % sh->files) };
	uint32_t kind = (uint32_t)(h >> 32) % 100;

	if (sh->plan == OVERLAP) {
		p.file = (uint32_t)(n / 3 % sh->files);
		p.at = n % 3 == 2 ? 56 : 0;
		p.units = n % 3 == 0 ? 64 : 8;
		return p;
	}
	if (sh->plan == WIDE)
		p.units = 1 + (uint32_t)(h >> 40) % (kind < 50 ? 16 : UNITS);
	else
		p.units = kind < 70 ? 1 + (uint32_t)(h >> 40) % 8 : kind < 95 ? 64 : 256;
	p.at = (uint32_t)(h >> 16) % (UNITS - p.units + 1);
	return p;
}

static void fill(struct unit *u, uint32_t t, uint64_t n, uint32_t file, uint32_t at)
{
	*u = (struct unit){ MAGIC, sh->seed, n, t, file, at, 0, { 0 } };
	memset(u->fill, (int)('a' + n % 26), sizeof(u->fill));
	u->check = (uint32_t)hash(n, (uint64_t)t << 32 | at, file);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* The n-th write; false: it failed. */
static int write_one(uint32_t t, uint64_t n)
{
	static _Thread_local struct unit buffer[UNITS] __attribute__((aligned(4096)));
	struct piece p = piece_of(t, n);
	off_t where = ((off_t)(t % THREADS_MAX) * UNITS + p.at) * UNIT;
	size_t bytes = p.units * UNIT;
	uint64_t from, took;
	ssize_t r;

	for (uint32_t i = 0; i < p.units; i++)
		fill(&buffer[i], t, n, p.file, p.at + i);
	__atomic_store_n(&sh->thread[t].issued, n, __ATOMIC_SEQ_CST);
	from = now_us();
	r = pwrite(fds[p.file], buffer, bytes, where);
	if (r == (ssize_t)bytes && !sh->dsync)
		r = fdatasync(fds[p.file]) < 0 ? -1 : r;
	if (r != (ssize_t)bytes) {
		if (!__atomic_load_n(&sh->stop, __ATOMIC_SEQ_CST)) {
			snprintf(sh->words, sizeof(sh->words), "thread %u write %lu: %zd %s", t, n,
				 r, r < 0 ? strerrorname_np(errno) : "short");
			sh->error = 1;
		}
		return 0;
	}
	took = now_us() - from;
	__atomic_store_n(&sh->thread[t].acked, n, __ATOMIC_SEQ_CST);
	if (took > __atomic_load_n(&sh->slow_us, __ATOMIC_RELAXED))
		__atomic_store_n(&sh->slow_us, took, __ATOMIC_RELAXED);
	return 1;
}

/* A child that was killed in its write is followed by one that makes the same again. */
static int write_in_child(uint32_t t, uint64_t n)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(write_one(t, n) ? 0 : 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 0;
	return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
}

static void *writer(void *arg)
{
	uint32_t t = (uint32_t)(uintptr_t)arg;
	uint64_t n;

	while (!__atomic_load_n(&sh->stop, __ATOMIC_RELAXED)) {
		uint32_t pause = __atomic_load_n(&sh->pause_us, __ATOMIC_RELAXED);

		n = __atomic_load_n(&sh->thread[t].acked, __ATOMIC_RELAXED) + 1;
		if (sh->count && n > sh->count)
			break;
		if (!(sh->forks ? write_in_child(t, n) : write_one(t, n)))
			break;
		if (pause)
			usleep(pause);
	}
	return NULL;
}

static int open_file(const char *dir, uint32_t file, int flags)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/log.%u", dir, file);
	return open(path, flags | O_CLOEXEC, 0644);
}

static void on_signal(int sig)
{
	(void)sig;
	__atomic_add_fetch(&sh->signals, 1, __ATOMIC_RELAXED);
}

/* One a millisecond to the process, and one to each thread in turn. */
static void *signaller(void *arg)
{
	const pthread_t *id = arg;
	const struct timespec ms = { 0, 1000000 };

	for (uint32_t i = 0; !__atomic_load_n(&sh->stop, __ATOMIC_RELAXED); i++) {
		(void)pthread_kill(id[i % sh->threads], SIGUSR1);
		nanosleep(&ms, NULL);
	}
	return NULL;
}

static int send_signals(pthread_t *id)
{
	static const struct itimerval ms = { { 0, 1000 }, { 0, 1000 } };
	const struct sigaction plain = { .sa_handler = on_signal };
	const struct sigaction again = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t own;

	return sigaction(SIGUSR1, &plain, NULL) < 0 || sigaction(SIGALRM, &again, NULL) < 0 ||
	       setitimer(ITIMER_REAL, &ms, NULL) < 0 ||
	       pthread_create(&own, NULL, signaller, id) != 0;
}

static int run(const char *dir)
{
	pthread_t id[THREADS_MAX];

	for (uint32_t i = 0; i < sh->files; i++) {
		fds[i] = open_file(dir, i, O_RDWR | O_CREAT | (sh->dsync ? O_DSYNC : 0));
		if (fds[i] < 0) {
			snprintf(sh->words, sizeof(sh->words), "open: %s", strerrorname_np(errno));
			sh->error = 1;
			return 1;
		}
	}
	sh->ready = 1;
	for (uint32_t i = 0; i < sh->threads; i++)
		if (pthread_create(&id[i], NULL, writer, (void *)(uintptr_t)(sh->first + i)) != 0)
			return 1;
	if (getenv("STAMP_SIGNALS") && send_signals(id))
		return 1;
	for (uint32_t i = 0; i < sh->threads; i++)
		pthread_join(id[i], NULL);
	return sh->error ? 1 : 0;
}

/* What is at a unit: 0 nothing, the number of the write, or UINT64_MAX: no byte of ours. */
static uint64_t look(const struct unit *u, uint32_t t, uint32_t file, uint32_t at)
{
	static const struct unit nothing;
	struct unit expected;

	if (memcmp(u, &nothing, UNIT) == 0)
		return 0;
	fill(&expected, t, u->n, file, at);
	return memcmp(u, &expected, UNIT) == 0 ? u->n : UINT64_MAX;
}

/* May write n be at this unit? Those after the last acknowledged one need not be there. */
static int late(uint32_t t, uint64_t n, uint64_t acked, uint32_t file, uint32_t at)
{
	struct piece p;

	if (n <= acked || n > sh->thread[t].issued)
		return 0;
	p = piece_of(t, n);
	return p.file == file && at >= p.at && at < p.at + p.units;
}

/*
 * The last write that was issued. A page (a block after a power cut) has all of it or nothing, but for this: it was written back before it
 * had a record, and older records that were live were laid over it, from one of them on to the newest. So there
 * is one number for all its pages: units show the write where what was acknowledged there is older, and what was
 * acknowledged where that is newer. Behind the file's end nothing counts: where no record was left of it, a
 * power cut may keep the page and not the new size.
 *
 * What this cannot see: a record that was live and was not laid over such a page, if no older one was, in any
 * page of the write. Nothing here knows where the tail stood. But what loses that record loses it for each page
 * that it had, and the others are looked at unit by unit; only bytes below this one unacknowledged write are not.
 */
static int torn(uint32_t t, const struct unit *have, const uint64_t *model, uint32_t file)
{
	uint64_t n = sh->thread[t].issued;
	struct piece p = piece_of(t, n);
	uint32_t page = 4096 / UNIT;
	off_t begin = (off_t)(t % THREADS_MAX) * UNITS * UNIT;
	/* newest write that n lies over, oldest one over n where its page came to the disk */
	uint64_t covered = 0, oldest = UINT64_MAX;
	struct stat st;

	if (n == 0 || p.file != file || fstat(fds[file], &st) < 0)
		return 0;
	/* On the disk smaller blocks have each their own way: what lies in one that was there already is kept,
	 * and one that was new is not yet part of the file. */
	if (sh->cut && st.st_blksize < 4096)
		page = (uint32_t)st.st_blksize / UNIT;
	for (uint32_t at = p.at; at < p.at + p.units;) {
		uint32_t end = (at / page + 1) * page, found = 0;
		uint64_t over = UINT64_MAX;

		if (end > p.at + p.units)
			end = p.at + p.units;
		for (; at < end && begin + (off_t)(at + 1) * UNIT <= st.st_size; at++) {
			if (look(&have[at], t, file, at) != n) {
				if (model[at] < over)
					over = model[at];
				continue;
			}
			found++;
			if (model[at] > covered)
				covered = model[at];
		}
		at = end;
		if (found && over < oldest)
			oldest = over;
	}
	if (covered < oldest)
		return 0;
	printf("thread %u log.%u: write %lu is torn: it lies over %lu, and %lu over it\n", t, file,
	       n, covered, oldest);
	return 1;
}

static int check_thread(uint32_t t, int shown)
{
	static uint64_t model[FILES_MAX][UNITS];
	uint64_t acked = sh->cut ? sh->floor[t] : sh->thread[t].acked;
	int wrong = 0;

	memset(model, 0, sizeof(model));
	for (uint64_t n = 1; n <= acked; n++) {
		struct piece p = piece_of(t, n);

		for (uint32_t i = 0; i < p.units; i++)
			model[p.file][p.at + i] = n;
	}
	for (uint32_t f = 0; f < sh->files; f++) {
		static struct unit have[UNITS];

		memset(have, 0, sizeof(have));
		if (fds[f] >= 0 &&
		    pread(fds[f], have, sizeof(have), (off_t)(t % THREADS_MAX) * UNITS * UNIT) < 0)
			return 1;
		if (sh->dead)
			wrong += torn(t, have, model[f], f);
		for (uint32_t at = 0; at < UNITS; at++) {
			uint64_t n = look(&have[at], t, f, at);

			if (n == model[f][at] || late(t, n, acked, f, at))
				continue;
			if (wrong++ + shown < 5)
				printf("thread %u log.%u unit %u: write %ld, should be %lu "
				       "(acked %lu)\n",
				       t, f, at, (long)n, model[f][at], acked);
		}
	}
	return wrong;
}

static int check(const char *dir)
{
	uint64_t acked = 0;
	int wrong = 0;

	for (uint32_t i = 0; i < sh->files; i++)
		fds[i] = open_file(dir, i, O_RDONLY); /* one that is not there is an empty one */
	for (uint32_t i = 0; i < sh->threads; i++) {
		wrong += check_thread(sh->first + i, wrong);
		acked += sh->thread[sh->first + i].acked;
	}
	if (sh->error) {
		printf("%s\n", sh->words);
		wrong++;
	}
	printf("acked %lu wrong %d\n", acked, wrong);
	return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	int fd = argc > 3 ? open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;

	if (fd < 0 || ftruncate(fd, sizeof(*sh)) < 0)
		return 2;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (sh == MAP_FAILED)
		return 2;
	if (strcmp(argv[1], "check") == 0)
		return check(argv[2]);
	if (argc < 10)
		return 2;
	sh->seed = strtoul(argv[4], NULL, 0);
	sh->first = (uint32_t)atoi(argv[5]);
	sh->threads = (uint32_t)atoi(argv[6]);
	sh->files = (uint32_t)atoi(argv[7]);
	sh->plan = strcmp(argv[8], "overlap") == 0 ? OVERLAP
		   : strcmp(argv[8], "wide") == 0  ? WIDE
						   : MIXED;
	sh->dsync = strcmp(argv[9], "dsync") == 0;
	sh->forks = strcmp(argv[9], "fork") == 0;
	sh->count = argc > 10 ? strtoul(argv[10], NULL, 0) : 0;
	if (argc > 11 && atoi(argv[11]) != 0)
		sh->pause_us = (uint32_t)atoi(argv[11]);
	if (sh->first + sh->threads > THREADS_MAX || sh->files > FILES_MAX)
		return 2;
	return run(argv[2]);
}
