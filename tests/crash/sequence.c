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

#define SCRIPTED   (UINT64_C(1) << 40) /* seeds from here on */
#define SCRIPT_OPS 12

/* What chance comes to too seldom. */
#define SCRIPT(...)                                                                   \
	{                                                                             \
		{ __VA_ARGS__ }, sizeof((enum op[]){ __VA_ARGS__ }) / sizeof(enum op) \
	}
static const struct script {
	enum op ops[SCRIPT_OPS];
	size_t count;
} scripts[] = {
	/* the daemon's sync fails and loses pages; then a call that needs a FENCE */
	SCRIPT(OP_WRITE, OP_BAD_SYNC, OP_DESTAGE, OP_TRUNCATE, OP_TRUNCATE, OP_OVERLAP, OP_BIG),
	SCRIPT(OP_WRITE, OP_BAD_SYNC, OP_DESTAGE, OP_BYPASS, OP_BYPASS, OP_OVERLAP, OP_DESTAGE),
	/* the kernel's write-back fails, and who opens afterwards is not told */
	SCRIPT(OP_WRITE, OP_OVERLAP, OP_BAD_SYNC, OP_WRITE_BACK, OP_REOPEN, OP_TRUNCATE,
	       OP_OVERLAP),
	SCRIPT(OP_WRITE, OP_BAD_SYNC, OP_WRITE_BACK, OP_DAEMON, OP_DAEMON, OP_EVICT, OP_WRITE),
	/* bytes without a record are lost beside those that have one */
	SCRIPT(OP_BYPASS, OP_PLAIN, OP_LANE, OP_WRITE, OP_BAD_SYNC, OP_DESTAGE, OP_TRUNCATE,
	       OP_SYNC, OP_OVERLAP),
	SCRIPT(OP_BYPASS, OP_PLAIN, OP_LANE, OP_SYNC, OP_OVERLAP),
	/* killed within RULE F */
	SCRIPT(OP_WRITE, OP_OVERLAP, OP_KILL, OP_TRUNCATE, OP_TRUNCATE, OP_TRUNCATE, OP_OVERLAP),
	SCRIPT(OP_WRITE, OP_KILL, OP_BYPASS, OP_BYPASS, OP_OVERLAP, OP_OTHER_PROC, OP_OVERLAP),
	SCRIPT(OP_OVERLAP, OP_KILL, OP_BIG, OP_OVERLAP, OP_KILL, OP_BIG, OP_TRUNCATE),
	/* killed with a whole record at head that nobody was told of */
	SCRIPT(OP_KILL, OP_OVERLAP, OP_BYPASS, OP_OVERLAP, OP_OVERLAP, OP_LANE, OP_OVERLAP),
	SCRIPT(OP_KILL, OP_WRITE, OP_TRUNCATE, OP_OVERLAP, OP_KILL, OP_APPEND, OP_TRUNCATE),
	SCRIPT(OP_WRITE, OP_KILL, OP_TRUNCATE, OP_TRUNCATE, OP_WRITE, OP_KILL, OP_TRUNCATE,
	       OP_TRUNCATE, OP_WRITE, OP_KILL, OP_TRUNCATE, OP_TRUNCATE),
	/* killed in a write, over pages that the kernel has lost and nobody was told of */
	SCRIPT(OP_WRITE, OP_BAD_SYNC, OP_WRITE_BACK, OP_EVICT, OP_OTHER_PROC, OP_REOPEN,
	       OP_OTHER_PROC, OP_KILL, OP_OVERLAP, OP_TRUNCATE, OP_OVERLAP),
	SCRIPT(OP_WRITE, OP_OVERLAP, OP_KILL, OP_OVERLAP, OP_HEAL, OP_KILL, OP_APPEND, OP_NEXT),
	/* no sign of life but the records' */
	SCRIPT(OP_WRITE, OP_DAEMON, OP_TIME, OP_TIME, OP_OVERLAP, OP_TIME, OP_CHMOD, OP_TIME,
	       OP_HEAL),
	/* a full lane without a daemon, and back */
	SCRIPT(OP_WRITE, OP_DAEMON, OP_FILL, OP_FILL, OP_OVERLAP, OP_DAEMON, OP_WRITE, OP_FILL),
	SCRIPT(OP_WRITE, OP_OTHER_FILE, OP_WRITE, OP_DAEMON, OP_FILL, OP_UNLINK, OP_OTHER_FILE,
	       OP_FILL, OP_DAEMON, OP_OVERLAP),
	/* parts of writes, and somebody else's */
	SCRIPT(OP_APPEND, OP_SHORT, OP_APPEND, OP_SHORT, OP_WRITE, OP_SHORT, OP_NEXT),
	SCRIPT(OP_APPEND, OP_FOREIGN, OP_APPEND, OP_APPEND, OP_DESTAGE, OP_LANE, OP_APPEND),
	SCRIPT(OP_APPEND, OP_BAD_SYNC, OP_DESTAGE, OP_FOREIGN, OP_APPEND, OP_FOREIGN, OP_APPEND,
	       OP_BIG),
	SCRIPT(OP_WRITE, OP_UNLINK, OP_OVERLAP, OP_HEAL, OP_OVERLAP, OP_DESTAGE, OP_OVERLAP),
	/* the daemon at work inside a call; one life of the lane after the other */
	SCRIPT(OP_WRITE, OP_BESIDE, OP_OVERLAP, OP_BESIDE, OP_OVERLAP, OP_BESIDE, OP_TRUNCATE),
	SCRIPT(OP_WRITE, OP_LAST_END, OP_OVERLAP, OP_OVERLAP, OP_LAST_END, OP_FILL, OP_LAST_END,
	       OP_WRITE),
};
#define SCRIPTS (sizeof(scripts) / sizeof(scripts[0]))

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

uint64_t sequence_scripted(uint64_t i)
{
	return SCRIPTED + i;
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
	if (seed >= SCRIPTED) {
		const struct script *script = &scripts[(seed - SCRIPTED) % SCRIPTS];

		for (size_t i = 0; i < script->count; i++)
			run_op(&o, script->ops[i], trace);
		return;
	}
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
