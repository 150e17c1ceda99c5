/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/scan.h"

#include <stdio.h>

#include "tests/crash/check.h"
#include "tests/crash/sequence.h"

#define STATE_OPS    6
#define STATE_BYPASS 5	  /* index of it */
#define STEPS	     160u /* of a call; seldom more */
#define WRAP_LINES   ((WORLD_BYPASS_SIZE + RECORD_HEADER_BYTES) / LANE_ALIGN)
#define WRAP_WAYS    3u /* as it is; killed early; killed late */

/* What was before. */
#define STATE(...)                                                                    \
	{                                                                             \
		{ __VA_ARGS__ }, sizeof((enum op[]){ __VA_ARGS__ }) / sizeof(enum op) \
	}
static const struct state {
	enum op ops[STATE_OPS];
	size_t count;
} states[] = {
	STATE(OP_OTHER_PROC),					   /* nothing */
	STATE(OP_WRITE, OP_OVERLAP),				   /* live records */
	STATE(OP_WRITE, OP_OTHER_FILE, OP_WRITE),		   /* of two files */
	STATE(OP_WRITE, OP_OTHER_PROC, OP_REOPEN),		   /* older than the description */
	STATE(OP_WRITE, OP_BAD_SYNC, OP_DESTAGE, OP_OVERLAP),	   /* a sync has failed */
	STATE(OP_WRITE, OP_BYPASS, OP_PLAIN),			   /* bypass */
	STATE(OP_WRITE, OP_BYPASS, OP_LANE, OP_WRITE),		   /* and back */
	STATE(OP_WRITE, OP_KILL, OP_OVERLAP, OP_OTHER_PROC),	   /* an owner died */
	STATE(OP_WRITE, OP_DAEMON, OP_OVERLAP),			   /* no daemon */
	STATE(OP_WRITE, OP_DESTAGE, OP_WRITE, OP_TIME, OP_TIME),   /* long ago */
	STATE(OP_WRITE, OP_DAEMON, OP_DAEMON, OP_OVERLAP),	   /* a new daemon */
	STATE(OP_WRITE, OP_KILL, OP_DESTAGE, OP_WRITE, OP_DAEMON), /* after a killed one */
	/* an owner died, and who puts that right is killed at it */
	STATE(OP_WRITE, OP_KILL, OP_TRUNCATE),
	STATE(OP_OVERLAP, OP_WRITE, OP_KILL, OP_OVERLAP),
	STATE(OP_WRITE, OP_BAD_SYNC, OP_WRITE_BACK, OP_REOPEN, OP_KILL, OP_OVERLAP),
	STATE(OP_WRITE, OP_KILL, OP_BIG),
	/* a block has an image; the one before died while it made use of it */
	STATE(OP_REWRITE, OP_REWRITE, OP_OTHER_PROC),
	STATE(OP_REWRITE, OP_KILL, OP_REWRITE),
	STATE(OP_REWRITE, OP_BAD_SYNC, OP_DESTAGE, OP_REWRITE),
};
#define STATES (sizeof(states) / sizeof(states[0]))

static uint8_t killed_seen[OPS][STATES][STEPS];
static uint16_t killed_end[OPS]
			  [STATES]; /* first step that some run did not come to; 0: not known */
static uint8_t beside_seen[OPS][OPS];

/* Calls and the daemon's work come first in the list. */
static unsigned calls(void)
{
	unsigned n = 0;

	while (op_kinds[n] != KIND_M)
		n++;
	return n;
}

uint64_t scan_killed_count(void)
{
	return (uint64_t)calls() * STATES * STEPS;
}

uint64_t scan_killed_only(uint64_t n, enum op op)
{
	return n - n % calls() + (uint64_t)op % calls();
}

uint64_t scan_beside_only(uint64_t n, enum op op)
{
	bool daemon = op_kinds[op] == KIND_D;

	if (!daemon)
		return n + (op + calls() - n / calls() % calls()) % calls() * calls();
	n = n - n % calls() + op;
	for (unsigned i = 0; i < calls(); i++) {
		if (ops_pair_known((enum op)(n / calls() % calls()), op))
			break;
		n += calls();
	}
	return n;
}

static void go_into(struct ops *o, unsigned state)
{
	check_depth(CHECK_NOT);
	for (size_t i = 0; i < states[state].count; i++)
		sequence_step(o, states[state].ops[i]);
}

/* Who comes next must find all as it should be. */
static void go_on(struct ops *o, bool daemon_died, bool rewrite)
{
	static const enum op after[] = { OP_OVERLAP, OP_TRUNCATE, OP_APPEND, OP_DESTAGE, OP_HEAL };

	check_depth(CHECK_ALL);
	check_now();
	/* What a killed daemon stored and did not drain is in its successor's way at each step. */
	check_depth(daemon_died ? CHECK_ALL : CHECK_FEW);
	if (!world.daemon_up)
		sequence_step(o, OP_DAEMON);
	if (daemon_died)
		sequence_step(o, OP_DESTAGE);
	check_depth(CHECK_FEW);
	/* The same block by another: an image that the dead one left would be made use of. */
	if (rewrite)
		sequence_step(o, OP_REWRITE);
	sequence_step(o, after[rng_below(&o->rng, sizeof(after) / sizeof(after[0]))]);
	sequence_step(o, OP_OVERLAP);
}

void scan_killed(struct ops *o, uint64_t n)
{
	enum op op = (enum op)(n % calls());
	unsigned state = (unsigned)(n / calls() % STATES);
	unsigned step = (unsigned)(n / calls() / STATES);
	uint16_t *end = &killed_end[op][state];

	if (*end && step + 1 >= *end)
		return;
	go_into(o, state);
	/* The instants before the kill are looked at in the runs where nobody is killed. */
	o->kill_next = o->beside_next = false;
	o->kill_step = step + 1;
	o->leave = o->died;
	sequence_step(o, op);
	o->kill_step = 0;
	if (!o->died) {
		*end = (uint16_t)(step + 1);
		return;
	}
	killed_seen[op][state][step] = 1;
	go_on(o, op_kinds[op] == KIND_D, op == OP_REWRITE);
}

static enum op nth_pair(uint64_t n, enum op *ret_b)
{
	for (;; n++) {
		enum op a = (enum op)(n / calls() % calls());

		*ret_b = (enum op)(n % calls());
		if (ops_pair_known(a, *ret_b))
			return a;
	}
}

static uint64_t some_step(struct rng *r)
{
	return 1 + rng_below(r, rng_one_in(r, 3) ? 250 : 80);
}

void scan_beside(struct ops *o, uint64_t n)
{
	unsigned state = (unsigned)(n / calls() / calls() % STATES);
	struct ops_pair p = { 0 };

	if (state == STATE_BYPASS)
		state = 0; /* un-synced writes beside others: the model does not know them apart */
	/* The runs follow each other in a stride that hits each pair. */
	p.a = nth_pair(n, &p.b);
	go_into(o, state);
	o->kill_next = o->beside_next = false;
	p.switch_at[0] = some_step(&o->rng);
	p.switch_at[1] = rng_one_in(&o->rng, 3) ? 0 : some_step(&o->rng);
	p.kill = rng_one_in(&o->rng, 3) ? 1 + rng_below(&o->rng, 2) : 0;
	p.kill_step = some_step(&o->rng);
	p.apart = rng_one_in(&o->rng, 4);
	beside_seen[p.a][p.b] = 1;
	check_depth(CHECK_FEW);
	sequence_pair(o, &p);
	go_on(o, false, p.a == OP_REWRITE || p.b == OP_REWRITE);
}

uint64_t scan_wrapped_count(void)
{
	return (uint64_t)WRAP_LINES * WRAP_LINES * WRAP_WAYS;
}

void scan_wrapped(struct ops *o, uint64_t n)
{
	unsigned way = (unsigned)(n % WRAP_WAYS);

	check_depth(CHECK_FEW);
	o->wrap_lines = 1 + (unsigned)(n / WRAP_WAYS % WRAP_LINES);
	o->wrap_record = 1 + (unsigned)(n / WRAP_WAYS / WRAP_LINES);
	if (way)
		o->kill_step = 1 + rng_below(&o->rng, way == 1 ? 60 : 180);
	sequence_step(o, OP_WRAP);
	o->kill_step = 0;
	o->wrap_lines = o->wrap_record = 0;
	go_on(o, false, false);
}

void scan_coverage(void)
{
	unsigned steps = 0, ends = 0, pairs = 0, known = 0;

	for (unsigned a = 0; a < calls(); a++) {
		for (unsigned s = 0; s < STATES; s++) {
			ends += killed_end[a][s] != 0;
			for (unsigned k = 0; k < STEPS; k++)
				steps += killed_seen[a][s][k];
		}
		for (unsigned b = 0; b < calls(); b++) {
			known += ops_pair_known((enum op)a, (enum op)b);
			pairs += beside_seen[a][b];
		}
	}
	printf("killed at %u steps of %u calls in %u states (last step known of %u); at once: %u of %u pairs\n",
	       steps, calls(), (unsigned)STATES, ends, pairs, known);
}
