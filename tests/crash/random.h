/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One seed reproduces all: no other source of chance in the simulator. */

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline void rng_seed(struct rng *r, uint64_t a, uint64_t b)
{
	/* splitmix: neighbouring seeds must not give neighbouring streams; never 0 */
	uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xbf58476d1ce4e5b9) + 1;

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	r->state = (z ^ (z >> 31)) | 1;
}

static inline uint64_t rng_next(struct rng *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return r->state * UINT64_C(0x2545f4914f6cdd1d);
}

/* 0..n-1, n > 0 */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)((rng_next(r) >> 32) % n);
}

static inline bool rng_one_in(struct rng *r, uint32_t n)
{
	return rng_below(r, n) == 0;
}
