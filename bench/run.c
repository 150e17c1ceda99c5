/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pmemlogd-bench append, log: how long until n bytes are durable. The candidates take turns in short
 * rounds, so that what the machine does beside hits all of them.
 */
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "bench/bench.h"

#define LIST_MAX    32u
#define BYTES_MAX   65536u
#define THREADS_MAX 64u
#define TARGETS_MAX 12u
#define WARM_UP	    100u /* operations of each thread that are not counted */

struct options {
	bool json;
	unsigned sizes[LIST_MAX], n_sizes;
	unsigned threads[LIST_MAX], n_threads;
	double seconds; /* of each candidate, size and number of threads */
	unsigned rounds;
	const char *only; /* names separated by commas, or NULL */
	const char *pool, *disk;
};

struct worker {
	pthread_t thread;
	unsigned number;
	unsigned size;
	const struct target *target;
	pthread_barrier_t *start;
	uint64_t duration, begin, end; /* ticks */
	struct histogram histogram;
};

struct result {
	struct histogram histogram;
	double ops_per_s; /* sum over the rounds, while measuring */
	unsigned rounds;
};

static uint8_t bytes[BYTES_MAX + 64] __attribute__((aligned(64)));
static const struct target_set *running;

int failed(const char *what, int error)
{
	fprintf(stderr, "pmemlogd-bench: %s: %s\n", what, strerror(error));
	return -error;
}

void die(const char *what, int error)
{
	(void)failed(what, error);
	running->tear_down();
	exit(1);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t begin, before, after, overhead = ticks_overhead();

	for (unsigned i = 0; i < WARM_UP && !w->target->slow; i++)
		w->target->once(w->number, bytes, w->size);
	pthread_barrier_wait(w->start);
	begin = before = ticks();
	do {
		if (w->target->before) {
			w->target->before(w->number);
			before = ticks();
		}
		w->target->once(w->number, bytes, w->size);
		after = ticks();
		histogram_add(&w->histogram,
			      after - before > overhead ? after - before - overhead : 0);
		before = ticks();
	} while (before - begin < w->duration);
	w->begin = begin;
	w->end = before;
	return NULL;
}

/* One candidate for one round. False: it cannot run here. */
static bool run(const struct target *t, unsigned size, unsigned threads, double seconds,
		struct result *ret)
{
	static struct worker workers[THREADS_MAX];
	pthread_barrier_t start;
	uint64_t count = 0, begin = UINT64_MAX, end = 0;

	if (t->open(size, threads) < 0)
		return false;
	pthread_barrier_init(&start, NULL, threads);
	for (unsigned i = 0; i < threads; i++) {
		struct worker *w = &workers[i];

		memset(w, 0, sizeof(*w));
		w->number = i;
		w->size = size;
		w->target = t;
		w->start = &start;
		w->duration = ticks_of_ns(seconds * 1e9);
		if (pthread_create(&w->thread, NULL, work, w) != 0) {
			perror("pthread_create");
			exit(1);
		}
	}
	for (unsigned i = 0; i < threads; i++) {
		struct worker *w = &workers[i];

		pthread_join(w->thread, NULL);
		histogram_merge(&ret->histogram, &w->histogram);
		count += w->histogram.count;
		begin = min_of(begin, w->begin);
		end = max_of(end, w->end);
	}
	pthread_barrier_destroy(&start);
	t->close();
	/* Of all, from the first one's beginning to the last one's end: they may not have run at the same time. */
	ret->ops_per_s += (double)count * 1e9 / ticks_to_ns(end - begin);
	ret->rounds++;
	return true;
}

static void print_one(const struct options *o, const char *what, unsigned size, unsigned threads,
		      const struct result *r)
{
	static bool first = true;
	double p50 = ticks_to_ns(histogram_share(&r->histogram, 0.50));
	double p99 = ticks_to_ns(histogram_share(&r->histogram, 0.99));
	double p999 = ticks_to_ns(histogram_share(&r->histogram, 0.999));
	double max = ticks_to_ns(r->histogram.max);
	double rate = r->ops_per_s / r->rounds;

	if (o->json)
		printf("%s{\"what\": \"%s\", \"size\": %u, \"threads\": %u, \"p50_ns\": %.1f, "
		       "\"p99_ns\": %.1f, \"p999_ns\": %.1f, \"max_ns\": %.1f, \"ops_per_s\": %.0f}",
		       first ? "[\n " : ",\n ", what, size, threads, p50, p99, p999, max, rate);
	else
		printf("%-11s %6u B %2u threads  p50 %8.0f  p99 %8.0f  p999 %9.0f  max %10.0f ns  "
		       "%10.0f/s\n",
		       what, size, threads, p50, p99, p999, max, rate);
	first = false;
	fflush(stdout);
}

static bool wanted(const char *list, const char *name)
{
	size_t n = strlen(name);

	if (!list)
		return true;
	for (const char *p = list; (p = strstr(p, name)); p += n)
		if ((p == list || p[-1] == ',') && (p[n] == ',' || p[n] == '\0'))
			return true;
	return false;
}

/* All candidates with all numbers of threads take turns, so that ratios between any two are fair. */
static void measure(const struct target_set *set, const struct options *o, unsigned size)
{
	static struct result results[LIST_MAX][TARGETS_MAX];

	memset(results, 0, sizeof(results));
	for (unsigned round = 0; round < o->rounds; round++)
		for (unsigned n = 0; n < o->n_threads; n++)
			for (unsigned i = 0; i < set->count; i++)
				if (wanted(o->only, set->targets[i].what))
					(void)run(&set->targets[i], size, o->threads[n],
						  o->seconds / o->rounds, &results[n][i]);
	for (unsigned n = 0; n < o->n_threads; n++)
		for (unsigned i = 0; i < set->count; i++)
			if (results[n][i].rounds)
				print_one(o, set->targets[i].what, size, o->threads[n],
					  &results[n][i]);
}

/* Numbers separated by commas, in [1, max]. */
static bool parse_list(const char *text, unsigned max, unsigned *ret, unsigned *ret_n)
{
	*ret_n = 0;
	while (*text) {
		char *end;
		unsigned long v = strtoul(text, &end, 10);

		if (end == text || v < 1 || v > max || *ret_n == LIST_MAX || (*end && *end != ','))
			return false;
		ret[(*ret_n)++] = (unsigned)v;
		text = *end ? end + 1 : end;
	}
	return *ret_n > 0;
}

static bool parse(const struct target_set *set, int argc, char **argv, struct options *o)
{
	static const struct option names[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "sizes", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' },
		{ "seconds", required_argument, NULL, 'S' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "only", required_argument, NULL, 'o' },
		{ "pool", required_argument, NULL, 'p' },
		{ "disk", required_argument, NULL, 'd' },
		{ 0 },
	};
	bool good = parse_list(set->sizes, BYTES_MAX, o->sizes, &o->n_sizes) &&
		    parse_list(set->threads, THREADS_MAX, o->threads, &o->n_threads);
	int c;

	o->seconds = 0.2;
	o->rounds = 5;
	o->pool = "/dev/shm";
	o->disk = "/var/tmp";
	while (good && (c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'j')
			o->json = true;
		else if (c == 's')
			good = parse_list(optarg, BYTES_MAX, o->sizes, &o->n_sizes);
		else if (c == 't')
			good = parse_list(optarg, THREADS_MAX, o->threads, &o->n_threads);
		else if (c == 'S')
			good = (o->seconds = strtod(optarg, NULL)) > 0;
		else if (c == 'r')
			good = (o->rounds = (unsigned)strtoul(optarg, NULL, 10)) > 0;
		else if (c == 'o')
			o->only = optarg;
		else if (c == 'p')
			o->pool = optarg;
		else if (c == 'd')
			o->disk = optarg;
		else
			good = false;
	}
	return good && optind == argc;
}

int run_set(const struct target_set *set, int argc, char **argv)
{
	struct options o = { 0 };
	int r;

	running = set;
	assert(set->count <= TARGETS_MAX);
	if (!parse(set, argc, argv, &o)) {
		fprintf(stderr, "pmemlogd-bench %s: wrong option\n", set->name);
		return 64;
	}
	/* libpmem reads it when it is loaded: so that it flushes and does not msync, as we do */
	if (!getenv("PMEM_IS_PMEM_FORCE")) {
		setenv("PMEM_IS_PMEM_FORCE", "1", 1);
		execv("/proc/self/exe", argv - 1);
		perror("pmemlogd-bench: exec");
		return 1;
	}
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 131 + (i >> 8));
	ticks_calibrate();
	r = set->set_up(o.pool, o.disk);
	for (unsigned i = 0; r == 0 && i < o.n_sizes; i++)
		measure(set, &o, o.sizes[i]);
	if (o.json)
		puts(r == 0 ? "\n]" : "[]");
	set->tear_down();
	return r == 0 ? 0 : 1;
}
