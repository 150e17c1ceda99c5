/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A set of byte ranges, and memory for it without malloc (a heal may run inside a database). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Anonymous memory that grows. Zero-initialised: empty. */
struct scratch {
	void *base;
	size_t bytes; /* mapped */
};

/* Makes sure of at least `bytes`; contents stay. base may move. 0 or -ENOMEM. */
int scratch_grow(struct scratch *m, size_t bytes);
void scratch_free(struct scratch *m);

struct interval {
	uint64_t start, end; /* bytes, end exclusive */
};

/* Disjoint, not touching, sorted. Zero-initialised: empty. */
struct interval_set {
	struct scratch memory;
	size_t count;
};

/* Adds [start, end); merges. 0 or -ENOMEM (the set is unchanged). */
int interval_add(struct interval_set *set, uint64_t start, uint64_t end);

/*
 * First part of [*start, end) that is not in the set: true and *start, *ret_end; false when all of the
 * rest is. Call again with *start = *ret_end for the next.
 */
bool interval_gap(const struct interval_set *set, uint64_t *start, uint64_t end, uint64_t *ret_end);

void interval_free(struct interval_set *set);
