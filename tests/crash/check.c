/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/check.h"

#include <stdio.h>
#include <string.h>

#include "base/overflow.h"
#include "pool/record.h"
#include "tests/crash/replay.h"
#include "tests/crash/sequence.h"
#include "tests/crash/world.h"

#define PICKED	      3	 /* lines tried alone in, alone out */
#define RANDOM	      2	 /* images of each random kind */
#define SPARSE_IN     11 /* steps, prime to those of one write */
#define NESTED_HEADER 6
#define TWICE_IN      8	 /* one state in so many is recovered twice */
#define NESTED_IN     24 /* one state in so many is cut again during its recovery */

struct check_stats check_stats;

static uint64_t seed_now, only_step, reports_left;
static uint64_t seen_medium, seen_disk;
static bool sparse;
static enum check_depth depth;
static struct rng chance;
static struct medium nested;
static const char *nested_why;
static struct disk_cut cut[DISK_FILES], after[DISK_FILES];
static struct replay plan;

void check_begin(uint64_t seed, uint64_t only_at, uint64_t max_reports)
{
	seed_now = seed;
	only_step = only_at;
	reports_left = max_reports;
	seen_medium = seen_disk = UINT64_MAX;
	sparse = false;
	depth = CHECK_ALL;
}

void check_depth(enum check_depth d)
{
	depth = d;
}

void check_sparse(bool on)
{
	sparse = on;
}

static void report(const char *image, const char *what, int file)
{
	check_stats.failures++;
	if (reports_left == 0)
		return;
	reports_left--;
	printf("FAILED: %s (file %d), image: %s, op: %s\n"
	       "  again: --seed %llu --at %llu\n",
	       what, file, image, sequence_op_name(), (unsigned long long)seed_now,
	       (unsigned long long)world.steps);
}

void check_fail(const char *what, int file)
{
	report("no cut", what, file);
}

/* Every line of it is the call's, or was of one that was killed. */
static const char *check_lines(const struct model_call *c, const struct record_header *h,
			       const uint8_t *payload)
{
	struct lines_run run = { 0 };
	int rc;

	while ((rc = lines_next(payload, h->length, &run)) > 0) {
		uint64_t at = h->offset + run.offset;

		if (model_was_killed(c->file, at, run.length, run.bytes))
			continue;
		if (at < c->offset || at + run.length > c->offset + c->length)
			return "changed lines lie outside of what was written";
		if (memcmp(run.bytes, c->data + (at - c->offset), run.length) != 0)
			return "changed lines have other bytes than were written";
	}
	return rc < 0 ? "a map and its lines do not agree" : NULL;
}

/* The record of the call under way, if it is whole, is the call's. */
static const char *check_record(void)
{
	const struct model_call *c = model_only_call();
	struct record_header h;
	const uint8_t *payload;

	if (!c || c->length == 0 || !replay_find(&plan, c->file, c->head, &h))
		return NULL;
	payload = lane_at(&plan.lane, h.position) + RECORD_HEADER_BYTES;
	if (h.type == RECORD_LINES)
		return check_lines(c, &h, payload);
	/* Or the last words of a process that was killed before head was published. */
	if (model_was_killed(c->file, h.offset, h.length, payload))
		return NULL;
	if (h.offset != c->offset || h.length > c->length)
		return "a record does not say what was written";
	return memcmp(payload, c->data, h.length) ? "a record has other bytes than were written"
						  : NULL;
}

static const char *check_files(const struct disk_cut files[DISK_FILES], int *ret_file)
{
	for (int i = 0; i < DISK_FILES; i++) {
		const char *why = model_check(i, &files[i]);

		*ret_file = i;
		if (why)
			return why;
	}
	return NULL;
}

static const char *recover_again(void *image, struct disk_cut files[DISK_FILES])
{
	const char *why = replay_all(image, files);
	int file;

	check_stats.nested++;
	return why ? why : check_files(files, &file);
}

/* The files as recovery left them, and the lane as its trim was cut. */
static const char *recover_trimmed(void *image)
{
	static struct disk_cut files[DISK_FILES];
	static struct replay again;
	const char *why = replay_plan(&again, image, after);
	int file;

	check_stats.nested++;
	/* Without records it changes nothing, and those files were looked at. */
	if (!why && again.plan.walked) {
		memcpy(files, after, sizeof(files));
		why = replay_apply(&again, files);
		if (!why)
			why = check_files(files, &file);
	}
	replay_free(&again);
	return why;
}

/* Trimming begins when all is replayed and synced. */
static void nested_step(void)
{
	for (int kind = 0; kind < 4 && !nested_why; kind++) {
		static const enum image_kind kinds[] = { IMAGE_NONE, IMAGE_ALL, IMAGE_WORDS,
							 IMAGE_WORDS };

		medium_image(&nested, kinds[kind], 0, &chance);
		nested_why = recover_trimmed(nested.image);
		medium_restore(&nested);
	}
}

/* What a cut in the middle of the replay leaves. */
static void tear(struct disk_cut torn[DISK_FILES])
{
	for (int i = 0; i < DISK_FILES; i++) {
		torn[i] = cut[i];
		for (size_t s = 0; s < DISK_BYTES; s += DISK_SECTOR)
			if (rng_one_in(&chance, 2))
				memcpy(torn[i].bytes + s, after[i].bytes + s, DISK_SECTOR);
		if (rng_one_in(&chance, 2))
			torn[i].size = after[i].size;
		memset(torn[i].bytes + torn[i].size, 0, DISK_BYTES - torn[i].size);
	}
}

/* A cut while recovery writes, and at each step of its trim. */
static const char *check_nested(uint8_t *image)
{
	static struct disk_cut torn[DISK_FILES];
	static struct replay left;
	struct lane lane = plan.lane;
	const char *why;

	tear(torn);
	why = recover_again(image, torn);
	if (why)
		return why;

	for (int i = 0; i < DISK_FILES; i++)
		after[i].ctime_ns = 0; /* rewrite_until tells that it was us */
	medium_clear(&nested);
	memcpy(nested.work, image, MEDIUM_BYTES);
	memcpy(nested.safe, image, MEDIUM_BYTES);
	memcpy(nested.image, image, MEDIUM_BYTES);
	nested_why = NULL;
	lane.base = nested.work;
	medium_use(&nested, nested_step);
	lane_tail_write(&lane, plan.plan.head, plan.plan.head_chain);
	lane_set_incarnation(&lane, lane.incarnation + 1);
	medium_use(&world.medium, world_step);
	if (!nested_why) {
		nested_why = replay_plan(&left, nested.work, after);
		if (!nested_why && left.plan.walked)
			nested_why = "records are left after recovery";
		replay_free(&left);
	}
	return nested_why;
}

/* A recovery that is run again has the same result. */
static const char *check_twice(void)
{
	static struct disk_cut twice[DISK_FILES];
	const char *why;

	memcpy(twice, after, sizeof(twice));
	why = replay_apply(&plan, twice);
	for (int i = 0; i < DISK_FILES && !why; i++)
		if (twice[i].size != after[i].size ||
		    memcmp(twice[i].bytes, after[i].bytes, DISK_BYTES) != 0)
			why = "a second recovery has another result";
	return why;
}

static const char *check_planned(int *ret_file)
{
	const char *why = check_record();

	check_stats.records += plan.plan.walked;
	if (why)
		return why;
	memcpy(after, cut, sizeof(after));
	why = replay_apply(&plan, after);
	if (!why)
		why = check_files(after, ret_file);
	if (!why && plan.plan.walked && rng_one_in(&chance, TWICE_IN))
		why = check_twice();
	/* Two cuts in a row matter most where the header is written. */
	if (!why && rng_one_in(&chance, world.medium.count <= 2 ? NESTED_HEADER : NESTED_IN))
		why = check_nested(world.medium.image);
	return why;
}

static const char *check_state(int *ret_file)
{
	const char *why = replay_plan(&plan, world.medium.image, cut);

	*ret_file = -1;
	if (!why)
		why = check_planned(ret_file);
	replay_free(&plan);
	return why;
}

static void try_state(enum image_kind kind, unsigned which, enum cut_policy policy)
{
	const char *why;
	int file;

	medium_image(&world.medium, kind, which, &chance);
	for (int i = 0; i < DISK_FILES; i++)
		disk_cut(i, policy, &chance, &cut[i]);
	check_stats.states++;
	why = check_state(&file);
	if (why) {
		check_stats.failures_by_image[kind]++;
		report(image_names[kind], why, file);
	}
	medium_restore(&world.medium);
}

static enum cut_policy any_policy(void)
{
	return (enum cut_policy)rng_below(&chance, CUT_POLICIES);
}

static void try_few(void)
{
	static const enum image_kind kinds[] = { IMAGE_FLUSHED, IMAGE_ALL,   IMAGE_ONE_IN,
						 IMAGE_ONE_OUT, IMAGE_LINES, IMAGE_WORDS,
						 IMAGE_TRASH };
	unsigned lines = world.medium.count;

	try_state(IMAGE_NONE, 0, any_policy());
	if (lines)
		try_state(kinds[rng_below(&chance, sizeof(kinds) / sizeof(kinds[0]))],
			  rng_below(&chance, lines), any_policy());
}

static void try_all(bool disk_moved)
{
	unsigned lines = world.medium.count;

	try_state(IMAGE_NONE, 0, any_policy());
	if (disk_moved)
		try_state(IMAGE_NONE, 0, CUT_MIXED);
	if (lines == 0)
		return;
	try_state(rng_one_in(&chance, 2) ? IMAGE_FLUSHED : IMAGE_ALL, 0, any_policy());
	try_state(IMAGE_ONE_IN, rng_below(&chance, lines), any_policy());
	try_state(IMAGE_ONE_OUT, rng_below(&chance, lines), any_policy());
	try_state(IMAGE_LINES, 0, any_policy());
	try_state(IMAGE_WORDS, 0, any_policy());
	try_state(IMAGE_TRASH, 0, any_policy());
}

void check_step(void)
{
	bool disk_moved = disk.version != seen_disk;

	if (depth == CHECK_NOT || (sparse && world.steps % SPARSE_IN != 0) ||
	    (world.medium.version == seen_medium && !disk_moved))
		return;
	seen_medium = world.medium.version;
	seen_disk = disk.version;
	if (only_step && world.steps != only_step)
		return;
	rng_seed(&chance, seed_now, world.steps);
	if (depth == CHECK_FEW)
		try_few();
	else
		try_all(disk_moved);
}

void check_now(void)
{
	seen_medium = UINT64_MAX;
	world.checking = true;
	check_step();
	world.checking = false;
}

void check_cache(void)
{
	for (int i = 0; i < DISK_FILES; i++) {
		const char *why = model_check_cache(i);

		if (why)
			check_fail(why, i);
	}
}
