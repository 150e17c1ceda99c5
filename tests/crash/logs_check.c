/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What recovery makes of an image, and whether that is right. */
#include "tests/crash/logs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/recover/plan.h"

struct known logs_known[LOGS_RECORDS];
uint32_t logs_n;
uint64_t logs_given;
struct stream logs_on_disk;
struct rng logs_looks;
struct logs_stats logs_stats;

void logs_fail(const char *what, const char *image)
{
	if (logs_stats.failures++ < 5)
		printf("FAILED: %s, image: %s\n  again: --seed %" PRIu64 ", step %" PRIu64 "\n",
		       what, image, logs_stats.seed, logs_stats.steps);
}

uint8_t logs_byte(uint32_t number, uint32_t i)
{
	return (uint8_t)(number * 37 + i * 11 + (i >> 5));
}

/* Behind the last one, or there already. NULL or what is wrong. */
const char *logs_put(struct stream *s, uint64_t lsn, const uint8_t *payload, uint32_t length)
{
	uint32_t head_of[2];

	if (lsn + length <= s->end)
		return NULL;
	if (lsn != s->end)
		return "a gap, or half a record";
	if (length < sizeof(head_of) || s->n == LOGS_RECORDS)
		return "a record that nobody wrote";
	memcpy(head_of, payload, sizeof(head_of));
	if (head_of[0] >= logs_n || head_of[1] != length || logs_known[head_of[0]].length != length)
		return "a record that nobody wrote";
	for (uint32_t i = sizeof(head_of); i < length; i++)
		if (payload[i] != logs_byte(head_of[0], i))
			return "a record has other bytes than were written";
	s->number[s->n] = head_of[0];
	s->lsn[s->n++] = lsn;
	s->end += length;
	return NULL;
}

struct putting {
	struct stream *to;
	const struct plan *plan;
	const char *why;
	uint32_t left; /* records until a cut */
};

static int put_one(void *arg, size_t file, uint64_t offset, const void *payload, uint32_t length)
{
	struct putting *p = arg;

	if (p->plan->files[file].id != LOGS_ID)
		return 0;
	if (p->left-- == 0)
		return -EIO;
	p->why = logs_put(p->to, offset, payload, length);
	return p->why ? -EBADMSG : 0;
}

/* left: it is cut short behind so many records. */
static const char *recover(uint8_t *image, struct stream *s, uint32_t left)
{
	struct putting p = { .to = s, .left = left };
	struct lane lane = { .base = NULL };
	struct plan plan;
	const char *why = NULL;
	int r;

	memset(&plan, 0, sizeof(plan));
	if (lane_attach(&lane, image, MEDIUM_BYTES) < 0)
		return "the lane's header is not valid";
	r = plan_make(&plan, &lane, &why);
	if (r == 0) {
		p.plan = &plan;
		logs_stats.replayed += plan.walked;
		r = plan_each(&plan, &lane, put_one, &p);
		why = p.why ? p.why : "the replay failed";
		r = r == -EIO ? 0 : r;
	}
	plan_free(&plan);
	return r < 0 ? why : NULL;
}

const char *logs_judge(const struct stream *s)
{
	static uint64_t at[LOGS_RECORDS];

	memset(at, 0, sizeof(at));
	/* Followers have seen it. */
	if (s->end < logs_ref.l->lsn)
		return "what a follower has seen is gone";
	for (uint32_t i = 0; i < s->n; i++) {
		const struct known *k = &logs_known[s->number[i]];

		if (at[s->number[i]])
			return "a record is there twice";
		at[s->number[i]] = s->lsn[i] + 1;
		if (k->returned && s->lsn[i] != k->lsn)
			return "a record has another LSN than was told";
		if (s->lsn[i] < k->above)
			return "a record stands before one that was there before it";
	}
	for (uint32_t i = 0; i < logs_n; i++)
		if (logs_known[i].acked && !at[i])
			return "an acknowledged record is gone";
	return NULL;
}

static const char *look_at(uint8_t *image)
{
	static struct stream s, again;
	const char *why;

	logs_stats.states++;
	s = logs_on_disk;
	why = recover(image, &s, UINT32_MAX);
	if (!why)
		why = logs_judge(&s);
	if (why || !rng_one_in(&logs_looks, 6))
		return why;
	/* Cut in the middle, and run again; all of it run again. */
	again = logs_on_disk;
	why = recover(image, &again, rng_below(&logs_looks, 8));
	if (!why)
		why = recover(image, &again, UINT32_MAX);
	if (!why)
		why = recover(image, &again, UINT32_MAX);
	if (!why && (again.n != s.n || again.end != s.end ||
		     memcmp(again.number, s.number, s.n * sizeof(s.number[0])) != 0))
		why = "a second recovery has another result";
	return why;
}

void logs_look(void)
{
	static uint64_t seen_version, seen_lsn, seen_disk, seen_given;

	if (seen_version == logs_medium.version && seen_lsn == logs_ref.l->lsn &&
	    seen_disk == logs_on_disk.end && seen_given == logs_given)
		return;
	seen_version = logs_medium.version;
	seen_lsn = logs_ref.l->lsn;
	seen_disk = logs_on_disk.end;
	seen_given = logs_given;
	for (unsigned k = 0; k < IMAGE_KINDS; k++) {
		enum image_kind kind = (enum image_kind)k;
		unsigned which = logs_medium.count ? rng_below(&logs_looks, logs_medium.count) : 0;
		const char *why;

		if (kind != IMAGE_NONE && logs_medium.count == 0)
			break;
		medium_image(&logs_medium, kind, which, &logs_looks);
		why = look_at(logs_medium.image);
		medium_restore(&logs_medium);
		if (why)
			logs_fail(why, image_names[k]);
	}
}
