/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What the processes and the daemon do: short runs enumerated, longer ones by chance. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/crash/ops.h"

/* Kinds of runs. A seed is kind << SEQUENCE_SHIFT, plus a number below what the kind has. */
enum sequence_kind {
	SEQUENCE_RANDOM,
	SEQUENCE_SHORT,	   /* every operation, every two, every three of them after another */
	SEQUENCE_SCRIPTED, /* each script again and again, with other lengths and instants */
	SEQUENCE_KILLED, /* every call and the daemon's work, in each state, killed at every step */
	SEQUENCE_BESIDE, /* two calls at once, switched at any two steps */
	SEQUENCE_WRAPPED, /* every length at every distance from the ring's end */
	SEQUENCE_KINDS,
};
#define SEQUENCE_SHIFT 40

extern const char *const sequence_kind_names[SEQUENCE_KINDS];

/* How many different ones there are; 0: no end. */
uint64_t sequence_count(enum sequence_kind kind);

/* One run; everything in it follows from the seed. trace: print each step. */
void sequence_run(uint64_t seed, bool trace);

/* For the kinds: one operation, or two at once, counted and checked. */
void sequence_step(struct ops *o, enum op op);
void sequence_pair(struct ops *o, const struct ops_pair *pair);

/* What is being done now. */
const char *sequence_op_name(void);

/* Prints which operations, pairs and triples of them were done in one run, one after the other, and which
 * kills and pairs at once. */
void sequence_coverage(void);
