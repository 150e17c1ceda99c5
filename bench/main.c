/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"

static double ns_per_tick = 1.0;
static uint64_t overhead;

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void ticks_calibrate(void)
{
	static struct histogram h;
	uint64_t t0 = ticks(), n0 = monotonic_ns(), t1, n1;

	do {
		n1 = monotonic_ns();
		t1 = ticks();
	} while (n1 - n0 < 50000000);
	ns_per_tick = (double)(n1 - n0) / (double)(t1 - t0);

	for (unsigned i = 0; i < 10000; i++) {
		t0 = ticks();
		t1 = ticks();
		histogram_add(&h, t1 - t0);
	}
	overhead = histogram_share(&h, 0.5);
}

double ticks_to_ns(uint64_t t)
{
	return (double)t * ns_per_tick;
}

uint64_t ticks_of_ns(double ns)
{
	return (uint64_t)(ns / ns_per_tick);
}

uint64_t ticks_overhead(void)
{
	return overhead;
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
	to->count += from->count;
	if (from->max > to->max)
		to->max = from->max;
}

uint64_t histogram_share(const struct histogram *h, double share)
{
	uint64_t want = (uint64_t)((double)h->count * share), seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen > want)
			return (uint64_t)(i % HISTOGRAM_STEPS) << i / HISTOGRAM_STEPS;
	}
	return h->max;
}

int main(int argc, char **argv)
{
	if (argc >= 2 && strcmp(argv[1], "append") == 0)
		return bench_append(argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "log") == 0)
		return bench_log(argc - 1, argv + 1);
#ifdef HAVE_SHIM
	if (argc >= 2 && strcmp(argv[1], "shim") == 0)
		return bench_shim(argc - 1, argv + 1);
#endif
	fputs("usage: pmemlogd-bench append [--json] [--sizes LIST] [--threads LIST] [--seconds S]\n"
	      "                             [--rounds N] [--only LIST] [--pool DIR] [--disk DIR]\n"
	      "       pmemlogd-bench log    the same; with a daemon (bench/log)\n",
	      stderr);
#ifdef HAVE_SHIM
	fputs("       pmemlogd-bench shim [--json] ...\n", stderr);
#endif
	return 64;
}
