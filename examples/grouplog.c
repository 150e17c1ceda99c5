/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A logger for a program of many threads, with group commit: each thread appends its message without waiting and
 * then waits for it; whoever waits first makes the messages of all durable at once.
 *
 *	cc -std=c99 -pthread -o grouplog grouplog.c $(pkg-config --cflags --libs pmemlogd)
 *	grouplog LOG [THREADS [MESSAGES]]
 *
 * Prints "LSN THREAD NUMBER" for each message, in the order in which they stand in the log, after all are done, and
 * to standard error how long it took. 8 threads, 1000 messages each.
 */
#define _XOPEN_SOURCE 700
#include <pmemlogd.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 64
#define PATIENCE    30 /* appends without room, each of which has waited for a second and longer */

struct entry {
	uint64_t lsn;
	unsigned thread, number;
};

struct worker {
	pthread_t thread;
	unsigned number;
	int error;
};

static struct pmemlogd_log *the_log;
static unsigned messages = 1000;
static struct entry *entries; /* of thread t: from t * messages on */

/* One message, durable on return. -ENOSPC left nothing behind, so trying again doubles nothing. */
static int message(const char *text, size_t n, uint64_t *lsn)
{
	int r, tries = 0;

	do {
		r = pmemlogd_append_nowait(the_log, text, n, lsn);
	} while (r == -ENOSPC && ++tries < PATIENCE);
	if (r < 0)
		return r;
	/* Its place is fixed now: locks that keep the order can be released here, before the wait. */
	do {
		r = pmemlogd_wait(the_log, *lsn);
	} while (r == -ENOSPC && ++tries < PATIENCE);
	return r;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < messages && w->error == 0; i++) {
		struct entry *e = &entries[(size_t)w->number * messages + i];
		char text[64];
		int n = snprintf(text, sizeof(text), "thread %u message %u\n", w->number, i);

		e->thread = w->number;
		e->number = i;
		w->error = message(text, (size_t)n, &e->lsn);
	}
	return NULL;
}

static int by_lsn(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->lsn < y->lsn ? -1 : x->lsn > y->lsn;
}

static int run(unsigned threads)
{
	struct worker workers[THREADS_MAX];
	struct timespec begin, end;
	size_t n = (size_t)threads * messages;
	double seconds;
	int r = 0;

	entries = calloc(n, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	(void)clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned i = 0; i < threads; i++) {
		workers[i] = (struct worker){ .number = i };
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < threads; i++) {
		(void)pthread_join(workers[i].thread, NULL);
		if (workers[i].error < 0)
			r = workers[i].error;
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	fprintf(stderr, "%zu messages of %u threads in %.3f s\n", n, threads, seconds);
	qsort(entries, n, sizeof(*entries), by_lsn);
	for (size_t i = 0; r == 0 && i < n; i++)
		printf("%llu %u %u\n", (unsigned long long)entries[i].lsn, entries[i].thread,
		       entries[i].number);
	free(entries);
	return r;
}

int main(int argc, char **argv)
{
	unsigned threads = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 8;
	struct pmemlogd *c = NULL;
	char why[512] = "";
	int r;

	if (argc > 3)
		messages = (unsigned)strtoul(argv[3], NULL, 10);
	if (argc < 2 || argc > 4 || threads < 1 || threads > THREADS_MAX || messages < 1) {
		fputs("usage: grouplog LOG [THREADS [MESSAGES]]\n", stderr);
		return 64;
	}
	r = pmemlogd_connect(&c, NULL);
	if (r == 0)
		r = pmemlogd_open(c, argv[1], PMEMLOGD_CREATE, 0600, 0, &the_log);
	if (r == 0)
		r = run(threads);
	if (r < 0)
		fprintf(stderr, "grouplog: %s: %s %s\n", argv[1], strerror(-r),
			pmemlogd_message(c, why, sizeof(why)));
	(void)pmemlogd_close(the_log);
	(void)pmemlogd_disconnect(c);
	return r < 0;
}
