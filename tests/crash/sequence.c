/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/sequence.h"

#include <stdio.h>
#include <string.h>

#include "tests/crash/check.h"
#include "tests/crash/scan.h"
#include "tests/crash/world.h"

#define RANDOM_OPS 24u /* in a random run */
#define SCRIPT_OPS 12

#define LENGTH_1 ((uint64_t)OPS)
#define LENGTH_2 (LENGTH_1 * OPS)
#define LENGTH_3 (LENGTH_2 * OPS)

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
	/* names: what a file's end, and another one in its place, leave behind */
	SCRIPT(OP_WRITE, OP_UNLINK, OP_RECREATE, OP_WRITE, OP_OVERLAP, OP_TRUNCATE, OP_OVERLAP),
	SCRIPT(OP_WRITE, OP_UNLINK, OP_DESTAGE, OP_RECREATE, OP_APPEND, OP_UNLINK, OP_RECREATE,
	       OP_APPEND),
	SCRIPT(OP_WRITE, OP_REFUSED, OP_UNLINK, OP_OVERLAP, OP_RENAME, OP_OVERLAP, OP_UNLINK),
	SCRIPT(OP_WRITE, OP_LINK, OP_UNLINK, OP_OVERLAP, OP_UNLINK, OP_RECREATE, OP_BIG),
	SCRIPT(OP_WRITE, OP_OTHER_FILE, OP_WRITE, OP_REPLACE, OP_OVERLAP, OP_RECREATE, OP_WRITE,
	       OP_RENAME),
	SCRIPT(OP_WRITE, OP_KILL, OP_REPLACE, OP_OVERLAP, OP_KILL, OP_RENAME, OP_OVERLAP, OP_KILL,
	       OP_UNLINK, OP_OVERLAP),
	/* the daemon killed at its work, and a new one that goes on with live sessions */
	SCRIPT(OP_WRITE, OP_KILL, OP_DESTAGE, OP_OVERLAP, OP_DAEMON, OP_OVERLAP, OP_KILL,
	       OP_DESTAGE, OP_DAEMON, OP_TRUNCATE),
	SCRIPT(OP_WRITE, OP_BAD_SYNC, OP_DESTAGE, OP_KILL, OP_DESTAGE, OP_OVERLAP, OP_DAEMON,
	       OP_DESTAGE, OP_OVERLAP),
	SCRIPT(OP_WRITE, OP_BYPASS, OP_PLAIN, OP_KILL, OP_LANE, OP_SYNC, OP_DAEMON, OP_LANE,
	       OP_PLAIN, OP_SYNC),
	/* changed lines: what must make the image of a block void, and what came of it */
	SCRIPT(OP_REWRITE, OP_REWRITE, OP_OTHER_PROC, OP_REWRITE, OP_OVERLAP, OP_REWRITE,
	       OP_OTHER_PROC, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_TRUNCATE, OP_REWRITE, OP_REWRITE, OP_TRUNCATE, OP_APPEND, OP_REWRITE,
	       OP_TRUNCATE, OP_TRUNCATE, OP_REWRITE, OP_DESTAGE, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_HEAL, OP_REWRITE, OP_BAD_SYNC, OP_DESTAGE, OP_REWRITE, OP_REWRITE,
	       OP_HEAL, OP_DESTAGE, OP_REWRITE, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_BAD_SYNC, OP_WRITE_BACK, OP_EVICT, OP_REWRITE, OP_REOPEN, OP_REWRITE,
	       OP_REWRITE, OP_DESTAGE, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_BYPASS, OP_REWRITE, OP_PLAIN, OP_LANE, OP_REWRITE, OP_SYNC,
	       OP_REWRITE, OP_LANE, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_KILL, OP_REWRITE, OP_REWRITE, OP_KILL, OP_REWRITE, OP_OTHER_PROC,
	       OP_REWRITE, OP_KILL, OP_OVERLAP, OP_REWRITE, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_KILL, OP_TRUNCATE, OP_REWRITE, OP_REWRITE, OP_KILL, OP_BIG,
	       OP_REWRITE, OP_KILL, OP_BYPASS, OP_REWRITE, OP_LANE),
	SCRIPT(OP_REWRITE, OP_SHORT, OP_REWRITE, OP_REWRITE, OP_SHORT, OP_REWRITE, OP_OTHER_PROC,
	       OP_REWRITE, OP_BIG, OP_REWRITE, OP_CHMOD, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_UNLINK, OP_REWRITE, OP_RECREATE, OP_REWRITE, OP_REWRITE, OP_REPLACE,
	       OP_RECREATE, OP_REWRITE, OP_RENAME, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_BESIDE, OP_REWRITE, OP_DAEMON, OP_REWRITE, OP_DAEMON, OP_REWRITE,
	       OP_LAST_END, OP_REWRITE, OP_REWRITE, OP_WRAP, OP_REWRITE),
	SCRIPT(OP_REWRITE, OP_OVERLAP, OP_REWRITE, OP_BIG, OP_REWRITE, OP_TRUNCATE, OP_TRUNCATE,
	       OP_REWRITE, OP_REFUSED, OP_UNLINK, OP_REWRITE, OP_REWRITE),
	/* fsync and fdatasync of what has no record */
	SCRIPT(OP_WRITE, OP_BYPASS, OP_PLAIN, OP_SYNC, OP_PLAIN, OP_SYNC, OP_PLAIN, OP_SYNC,
	       OP_PLAIN, OP_SYNC),
	/* across the ring's end */
	SCRIPT(OP_WRAP, OP_OVERLAP, OP_WRAP, OP_KILL, OP_WRAP, OP_OVERLAP, OP_TRUNCATE),
};
#define SCRIPTS (sizeof(scripts) / sizeof(scripts[0]))

const char *const sequence_kind_names[SEQUENCE_KINDS] = { "random", "short",  "scripted",
							  "killed", "beside", "wrapped" };

static const char *running = "start";
static bool tracing;
static unsigned done_now; /* operations of this run so far */
static enum op last[2];
static uint8_t seen[OPS], seen_pairs[OPS][OPS], seen_triples[OPS][OPS][OPS];

const char *sequence_op_name(void)
{
	return running;
}

uint64_t sequence_count(enum sequence_kind kind)
{
	switch (kind) {
	case SEQUENCE_SHORT:
		return LENGTH_1 + LENGTH_2 + LENGTH_3;
	case SEQUENCE_KILLED:
		return scan_killed_count();
	case SEQUENCE_WRAPPED:
		return scan_wrapped_count();
	default:
		return 0;
	}
}

static enum op pick(struct rng *r)
{
	uint32_t total = 0, at;

	for (unsigned i = 0; i < OPS; i++)
		total += op_weights[i];
	at = rng_below(r, total);
	for (unsigned i = 0; i < OPS; i++) {
		if (at < op_weights[i])
			return (enum op)i;
		at -= op_weights[i];
	}
	return OP_WRITE;
}

static void count_op(enum op op)
{
	seen[op] = 1;
	if (done_now > 0)
		seen_pairs[last[0]][op] = 1;
	if (done_now > 1)
		seen_triples[last[1]][last[0]][op] = 1;
	last[1] = last[0];
	last[0] = op;
	done_now++;
}

void sequence_step(struct ops *o, enum op op)
{
	running = op_names[op];
	count_op(op);
	if (tracing)
		printf("%8llu  %-10s", (unsigned long long)world.steps, running);
	ops_run(o, op);
	if (tracing)
		printf("  %s\n", o->note);
	check_cache();
}

void sequence_pair(struct ops *o, const struct ops_pair *pair)
{
	static char name[40];

	(void)snprintf(name, sizeof(name), "%s | %s", op_names[pair->a], op_names[pair->b]);
	running = name;
	done_now = 0;
	if (tracing)
		printf("%8llu  %s at %llu, %llu kill %u at %llu%s", (unsigned long long)world.steps,
		       name, (unsigned long long)pair->switch_at[0],
		       (unsigned long long)pair->switch_at[1], pair->kill,
		       (unsigned long long)pair->kill_step, pair->apart ? " apart" : "");
	ops_run_pair(o, pair);
	if (tracing)
		printf("  %s\n", o->note);
	check_cache();
}

static void run_short(struct ops *o, uint64_t n)
{
	unsigned length = n < LENGTH_1 ? 1 : n < LENGTH_1 + LENGTH_2 ? 2 : 3;

	n -= length == 1 ? 0 : length == 2 ? LENGTH_1 : LENGTH_1 + LENGTH_2;
	check_depth(CHECK_NOT);
	/* A record or two first, or most calls have nothing to be wrong about. */
	sequence_step(o, OP_WRITE);
	sequence_step(o, OP_OVERLAP);
	done_now = 0;
	for (unsigned i = 0; i < length; i++) {
		/* What came before was looked at as a shorter run's last. */
		if (i == length - 1)
			check_depth(length == 3 ? CHECK_FEW : CHECK_ALL);
		sequence_step(o, (enum op)(n % OPS));
		n /= OPS;
	}
	/* What a modifier changes shows in what comes after it. */
	sequence_step(o, OP_OVERLAP);
}

static void run_script(struct ops *o, uint64_t n)
{
	const struct script *script = &scripts[n % SCRIPTS];

	for (size_t i = 0; i < script->count; i++)
		sequence_step(o, script->ops[i]);
}

void sequence_run(uint64_t seed, bool trace)
{
	uint64_t n = seed & ((UINT64_C(1) << SEQUENCE_SHIFT) - 1);
	struct ops o;

	tracing = trace;
	running = "start";
	done_now = 0;
	world_reset(check_step);
	ops_begin(&o, seed);
	switch (seed >> SEQUENCE_SHIFT) {
	case SEQUENCE_SHORT:
		run_short(&o, n);
		break;
	case SEQUENCE_SCRIPTED:
		run_script(&o, n);
		break;
	case SEQUENCE_KILLED:
		scan_killed(&o, n);
		break;
	case SEQUENCE_BESIDE:
		scan_beside(&o, n);
		break;
	case SEQUENCE_WRAPPED:
		scan_wrapped(&o, n);
		break;
	default:
		for (unsigned i = 0; i < RANDOM_OPS; i++)
			sequence_step(&o, pick(&o.rng));
		break;
	}
}

static unsigned ones(const uint8_t *bytes, size_t n)
{
	unsigned sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += bytes[i];
	return sum;
}

void sequence_coverage(void)
{
	printf("operations %u of %u, pairs %u of %u, triples %u of %u\n", ones(seen, OPS),
	       (unsigned)LENGTH_1, ones(&seen_pairs[0][0], LENGTH_2), (unsigned)LENGTH_2,
	       ones(&seen_triples[0][0][0], LENGTH_3), (unsigned)LENGTH_3);
	for (unsigned i = 0; i < OPS; i++)
		if (!seen[i])
			printf("never: %s\n", op_names[i]);
	scan_coverage();
}
