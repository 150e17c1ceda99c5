/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pmemlogd-crash [--states N] [--seconds S] [--kind NAME [--op NAME]] [--offset N] [--enough N]
 *                [--seed N [--at STEP]] [--trace]
 *
 * Every state that a power cut can leave, checked against a model. --states: how many recoveries (default
 * 300000). --kind: only that one of the kinds in sequence.h; --op: of `killed` only that call, of `beside` that one
 * and another. --offset: other runs. --enough: ends after so many failures. --seed: one run; --at: one step of it.
 * Last line: `states N failures N`; exit 1 if anything failed.
 */

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/crash/check.h"
#include "tests/crash/clock.h"
#include "tests/crash/medium.h"
#include "tests/crash/scan.h"
#include "tests/crash/sequence.h"
#include "tests/crash/world.h"

#define REPORTS 5u
#define ENOUGH	200u
/* Coprime to the number of enumerated runs, so that a sample is spread over all of them. */
#define STRIDE UINT64_C(7919) /* a prime */

struct options {
	uint64_t states, seconds, seed, at, offset, enough;
	bool one, trace;
	int kind; /* enum sequence_kind; -1: all of them */
	int op;	  /* enum op; -1: all of them */
};

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 0);

	if (*end) {
		fprintf(stderr, "not a number: %s\n", text);
		exit(64);
	}
	return n;
}

static int named(const char *text, const char *const names[], int count)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], text) == 0)
			return i;
	fprintf(stderr, "no such kind or operation: %s\n", text);
	exit(64);
}

static struct options parse(int argc, char **argv)
{
	static const struct option known[] = {
		{ "states", required_argument, NULL, 'n' },
		{ "seconds", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 's' },
		{ "at", required_argument, NULL, 'a' },
		{ "offset", required_argument, NULL, 'o' },
		{ "kind", required_argument, NULL, 'k' },
		{ "op", required_argument, NULL, 'p' },
		{ "enough", required_argument, NULL, 'e' },
		{ "trace", no_argument, NULL, 'v' },
		{ 0 },
	};
	struct options o = { .states = 300000, .enough = ENOUGH, .kind = -1, .op = -1 };
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'n')
			o.states = number(optarg);
		else if (c == 't')
			o.seconds = number(optarg);
		else if (c == 's') {
			o.seed = number(optarg);
			o.one = true;
		} else if (c == 'a')
			o.at = number(optarg);
		else if (c == 'o')
			o.offset = number(optarg);
		else if (c == 'k')
			o.kind = named(optarg, sequence_kind_names, SEQUENCE_KINDS);
		else if (c == 'p')
			o.op = named(optarg, op_names, OPS);
		else if (c == 'e')
			o.enough = number(optarg);
		else if (c == 'v')
			o.trace = true;
		else
			exit(64);
	}
	return o;
}

static void run(uint64_t seed, const struct options *o, uint64_t *reports)
{
	uint64_t before = check_stats.failures;

	check_begin(seed, o->at, *reports);
	sequence_run(seed, o->trace);
	if (check_stats.failures > before)
		*reports -= *reports ? 1 : 0;
}

static bool enough(const struct options *o, uint64_t begin)
{
	return check_stats.states >= o->states || check_stats.failures >= o->enough ||
	       (o->seconds && clock_real_ns() - begin > o->seconds * UINT64_C(1000000000));
}

/* In turn, with these shares: runs of a kind cost more or less, and have more or less to show. */
static const unsigned shares[SEQUENCE_KINDS] = {
	[SEQUENCE_RANDOM] = 1,	[SEQUENCE_SHORT] = 8,  [SEQUENCE_SCRIPTED] = 3,
	[SEQUENCE_KILLED] = 12, [SEQUENCE_BESIDE] = 4, [SEQUENCE_WRAPPED] = 1,
};

static void campaign(const struct options *o)
{
	uint64_t begin = clock_real_ns();
	uint64_t next[SEQUENCE_KINDS], runs = 0;
	uint64_t reports = REPORTS;

	for (int k = 0; k < SEQUENCE_KINDS; k++)
		next[k] = o->offset;
	while (!enough(o, begin)) {
		for (unsigned k = 0; k < SEQUENCE_KINDS; k++) {
			uint64_t count = sequence_count((enum sequence_kind)k);
			uint64_t before;

			if (o->kind >= 0 && o->kind != (int)k)
				continue;
			for (unsigned i = 0; i != shares[k] && !enough(o, begin); i++) {
				uint64_t n = next[k]++;

				if (count && n - o->offset >= count)
					break; /* all of them were */
				n = count || k == SEQUENCE_BESIDE ? n * STRIDE : n;
				n = count ? n % count : n;
				if (k == SEQUENCE_KILLED && o->op >= 0)
					n = scan_killed_only(n, (enum op)o->op);
				if (k == SEQUENCE_BESIDE && o->op >= 0)
					n = scan_beside_only(n, (enum op)o->op);
				before = check_stats.states;
				run((uint64_t)k << SEQUENCE_SHIFT | n, o, &reports);
				/* A kill at a step that the call does not have. */
				if (check_stats.states == before)
					i--;
				else
					runs++;
			}
		}
	}
	printf("%" PRIu64 " runs in %.1f s:", runs, (double)(clock_real_ns() - begin) / 1e9);
	for (unsigned k = 0; k < SEQUENCE_KINDS; k++)
		printf(" %s %" PRIu64, sequence_kind_names[k], next[k] - o->offset);
	printf("\n");
	sequence_coverage();
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);

	setvbuf(stdout, NULL, _IOLBF, 0);
	world_setup();
	if (o.one) {
		uint64_t reports = 1000;

		run(o.seed, &o, &reports);
	} else {
		campaign(&o);
	}
	printf("records replayed %" PRIu64 ", cuts during recovery %" PRIu64 "\n",
	       check_stats.records, check_stats.nested);
	if (check_stats.failures) {
		printf("failures by image:");
		for (int i = 0; i < IMAGE_KINDS; i++)
			printf(" %s %" PRIu64, image_names[i], check_stats.failures_by_image[i]);
		printf("\n");
	}
	printf("states %" PRIu64 " failures %" PRIu64 "\n", check_stats.states,
	       check_stats.failures);
	return check_stats.failures != 0;
}
