/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Shared by the parts of pmemlogd-bench. Each part has the signature of main and prints to stdout. */

#include <stdbool.h>
#include <stdint.h>
#include <x86intrin.h>

int bench_append(int argc, char **argv);
int bench_log(int argc, char **argv);
int bench_shim(int argc, char **argv);

/* ---- time: the processor's counter, in ns by calibration ---- */

/* Waits for the stores before it: SFENCE alone lets the processor run on, and a time taken then would
 * not hold the drain. */
static inline uint64_t ticks(void)
{
	_mm_mfence();
	_mm_lfence();
	return __rdtsc();
}

/* Measures the counter's rate and what reading it twice costs. Once, before threads start. */
void ticks_calibrate(void);
double ticks_to_ns(uint64_t t);
uint64_t ticks_of_ns(double ns);
/* Of two reads with nothing between them; taken off each measured time. */
uint64_t ticks_overhead(void);

/* ---- distribution: 64 steps for each power of two, so 1.6 % at worst ---- */

#define HISTOGRAM_STEPS	  64u
#define HISTOGRAM_BUCKETS (HISTOGRAM_STEPS * 48u)

struct histogram {
	uint64_t count, max;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

static inline void histogram_add(struct histogram *h, uint64_t v)
{
	unsigned shift = 0;

	if (v > h->max)
		h->max = v;
	if (v >= HISTOGRAM_STEPS)
		shift = (unsigned)(58 - __builtin_clzll(v)); /* v >> shift is in [32, 64) */
	if (shift > 44)
		shift = 44;
	/* values of one power of two: a block of steps for each shift */
	h->bucket[(shift * HISTOGRAM_STEPS + (v >> shift)) % HISTOGRAM_BUCKETS]++;
	h->count++;
}

void histogram_merge(struct histogram *to, const struct histogram *from);
/* Value below which the given share (0..1) of all lies. */
uint64_t histogram_share(const struct histogram *h, double share);

/* ---- what is measured ---- */

struct target {
	const char *what;
	/* Opens for records of `size` bytes in `threads` threads. 0, or a negative errno: left out. */
	int (*open)(unsigned size, unsigned threads);
	/* One operation; thread 0..threads - 1. */
	void (*once)(unsigned thread, const void *bytes, unsigned size);
	void (*close)(void);
	/* NULL, or called before each operation; not measured. */
	void (*before)(unsigned thread);
	/* An operation takes so long that nothing is done to warm up. */
	bool slow;
};

/* What one benchmark compares: in the order of a round. */
struct target_set {
	const char *name;
	const char *sizes, *threads; /* what is measured unless told otherwise */
	/* Folders for pool and disk files. 0 or a negative errno with a message. */
	int (*set_up)(const char *pool_folder, const char *disk_folder);
	void (*tear_down)(void);
	const struct target *targets;
	unsigned count;
};

/* Parses the options, measures and prints; the candidates take turns in short rounds. An exit code. */
int run_set(const struct target_set *set, int argc, char **argv);

/* Does not return: tears the running set down. */
void die(const char *what, int error) __attribute__((noreturn));
/* Tells; returns -error. */
int failed(const char *what, int error);

/* ---- targets.c: what others compare themselves with, too */

int targets_set_up(const char *pool_folder, const char *disk_folder);
void targets_tear_down(void);
int raw_open(unsigned size, unsigned threads);
void raw_once(unsigned thread, const void *bytes, unsigned size);
int pmlog_open(unsigned size, unsigned threads);
void pmlog_once(unsigned thread, const void *bytes, unsigned size);
void pmlog_close(void);
int fdatasync_open(unsigned size, unsigned threads);
void fdatasync_once(unsigned thread, const void *bytes, unsigned size);
void disk_close(void);
void nothing_to_close(void);

/* ---- log_socket.c: LOG_APPEND, a connection for each thread */

int socket_open(unsigned size, unsigned threads);
void socket_once(unsigned thread, const void *bytes, unsigned size);
void socket_close(void);

/* ---- log_sqlite.c: an INSERT by itself, WAL, synchronous=FULL */

void sqlite_folder(const char *disk_folder);
int sqlite_open(unsigned size, unsigned threads);
void sqlite_once(unsigned thread, const void *bytes, unsigned size);
void sqlite_close(void);
