/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/sequence.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/overflow.h"
#include "tests/crash/check.h"
#include "tests/crash/clock.h"
#include "tests/crash/ops.h"
#include "tests/crash/world.h"

#define RANDOM_OPS  24u /* in a random run */
#define ENUM_LENGTH 3u

#define OP_NAME(name, weight)	#name,
#define OP_WEIGHT(name, weight) weight,
static const char *const names[OPS] = { OP_LIST(OP_NAME) };
static const uint8_t weights[OPS] = { OP_LIST(OP_WEIGHT) };

static const char *running = "start";

const char *sequence_op_name(void)
{
	return running;
}

uint64_t sequence_enumerated(void)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < ENUM_LENGTH; i++)
		n *= OPS;
	return n;
}

static enum op pick(struct rng *r)
{
	uint32_t total = 0, at;

	for (unsigned i = 0; i < OPS; i++)
		total += weights[i];
	at = rng_below(r, total);
	for (unsigned i = 0; i < OPS; i++) {
		if (at < weights[i])
			return (enum op)i;
		at -= weights[i];
	}
	return OP_WRITE;
}

static void run_op(struct ops *o, enum op op, bool trace)
{
	running = names[op];
	if (trace)
		printf("%8llu  %-10s", (unsigned long long)world.steps, names[op]);
	ops_run(o, op);
	if (trace)
		printf("  %s\n", o->note);
	for (int i = 0; i < DISK_FILES; i++) {
		const char *why = model_check_cache(i);

		if (why)
			check_fail(why, i);
	}
}

void sequence_run(uint64_t seed, bool trace)
{
	struct ops o = { 0 };

	rng_seed(&o.rng, seed, 0);
	running = "start";
	world_reset(check_step);
	if (seed < sequence_enumerated()) {
		/* A record or two first, or most calls have nothing to be wrong about. */
		run_op(&o, OP_WRITE, trace);
		run_op(&o, OP_OVERLAP, trace);
		for (unsigned i = 0; i < ENUM_LENGTH; i++) {
			run_op(&o, (enum op)(seed % OPS), trace);
			seed /= OPS;
		}
		run_op(&o, OP_OVERLAP, trace);
		return;
	}
	for (unsigned i = 0; i < RANDOM_OPS; i++)
		run_op(&o, pick(&o.rng), trace);
}
