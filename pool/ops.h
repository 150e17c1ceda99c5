/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * The only way to persistent memory: three calls. A crash simulator is another filling of the table.
 *
 * copy makes bytes visible; they may become durable at any time from then on, in any order of 8-byte
 * words. flush starts them on their way; drain returns when all that this thread copied or flushed
 * before is durable. copy is non-temporal: it needs no flush, only the drain.
 */

#include <stddef.h>

struct pool_ops {
	/* Copies n bytes; dst 64-byte aligned, n a multiple of 8. Weakly ordered, needs drain. */
	void (*copy)(void *dst, const void *src, size_t n);
	/* Starts write-back of the lines of [p, p + n) that were stored by other means. */
	void (*flush)(const void *p, size_t n);
	/* Afterwards all earlier copies and flushes of this thread are durable. */
	void (*drain)(void);
};

/* The table in force: never NULL, set once by pool_ops_select before threads start (constant then). */
extern const struct pool_ops *pool_ops;

/*
 * Picks the instructions by CPUID (AVX-512, AVX, SSE2 stores; CLWB, CLFLUSHOPT, CLFLUSH) and stores
 * the table in pool_ops. Idempotent, async-signal-safe, allocates nothing. Names itself for status.
 */
void pool_ops_select(void);
const char *pool_ops_name(void);

/* The i-th table that this processor can run, NULL behind the last: for tests of every one. */
const struct pool_ops *pool_ops_nth(unsigned i);
