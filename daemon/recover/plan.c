/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/recover/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/pool.h"
#include "base/cleanup.h"
#include "base/overflow.h"
#include "pool/crc.h"
#include "pool/guard.h"
#include "pool/record.h"
#include "pool/walk.h"

/* Twice as many slots as a catalog has files: a lane with more ids than that is not ours. */
#define PLAN_SLOTS (2 * POOL_FILES)
static_assert((PLAN_SLOTS & (PLAN_SLOTS - 1)) == 0, "a power of two");

/* The jump of a guard may not run over locals of the caller: each guarded step is a function. */
static int find_head_guarded(const struct lane *l, struct walk *w, uint32_t *ret_chain,
			     const char **ret_why)
{
	return GUARD(walk_find_head(l, w, ret_chain, ret_why));
}

static int next_guarded(struct walk *w, struct record_header *h)
{
	return GUARD(walk_next(w, h));
}

static int payload_guarded(const struct lane *l, const struct record_header *h, void *dst)
{
	return GUARD(record_payload(l, h, dst));
}

static int beat_read(const struct lane *l, uint64_t *ret_ns)
{
	uint64_t head;

	lane_beat_read(l, ret_ns, &head);
	return 0;
}

static int beat_guarded(const struct lane *l, uint64_t *ret_ns)
{
	return GUARD(beat_read(l, ret_ns));
}

/*
 * What stops the walk has a good CRC: then it is no torn record but one that this version does not
 * understand, and was acknowledged.
 */
static int whole_but_strange(const struct walk *w)
{
	const struct lane *l = w->lane;
	const uint8_t *p = lane_at(l, w->position);
	uint64_t room = l->ring_size - w->position % l->ring_size;
	struct record_header h;
	uint32_t crc;

	if (w->position - w->tail >= l->ring_size)
		return 0;
	memcpy(&h, p, sizeof(h));
	if (h.position != w->position || h.incarnation != l->incarnation || h.chain != w->chain)
		return 0;
	crc = crc32c(0, (const uint8_t *)&h + sizeof(h.crc), sizeof(h) - sizeof(h.crc));
	if (crc == h.crc)
		return 1;
	if (h.length > room - RECORD_HEADER_BYTES)
		return 0;
	return crc32c(crc, p + RECORD_HEADER_BYTES, h.length) == h.crc;
}

static int strange_guarded(const struct walk *w)
{
	return GUARD(whole_but_strange(w));
}

static size_t slot_of(uint64_t id)
{
	return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (PLAN_SLOTS - 1);
}

/* The slot that has the id, or the free one where it belongs. Slots hold index + 1. */
static uint32_t *find_slot(const struct plan *plan, uint64_t id)
{
	size_t i = slot_of(id);

	while (plan->slots[i] != 0 && plan->files[plan->slots[i] - 1].id != id)
		i = (i + 1) & (PLAN_SLOTS - 1);
	return &plan->slots[i];
}

int plan_find(const struct plan *plan, uint64_t id)
{
	return plan->slots ? (int)*find_slot(plan, id) - 1 : -1;
}

static int find_or_add(struct plan *plan, uint64_t id, struct plan_file **ret)
{
	uint32_t *slot = find_slot(plan, id);

	if (*slot == 0) {
		if (plan->n_files == POOL_FILES)
			return -EBADMSG;
		if (plan->n_files % 64 == 0) {
			struct plan_file *more =
				reallocarray(plan->files, plan->n_files + 64, sizeof(*more));

			if (!more)
				return -ENOMEM;
			plan->files = more;
		}
		plan->files[plan->n_files] = (struct plan_file){ .id = id };
		*slot = (uint32_t)++plan->n_files;
	}
	*ret = &plan->files[*slot - 1];
	return 0;
}

/* First pass: which files, up to where they are durable, what was unlinked. */
static int note(struct plan *plan, const struct lane *l, const struct record_header *h,
		const char **ret_why)
{
	struct plan_file *f;
	int r;

	(void)l;
	plan->walked++;
	plan->newest_ns = max_of(plan->newest_ns, h->time_ns);
	if (h->type == RECORD_PAD)
		return 0;
	r = find_or_add(plan, h->file_id, &f);
	if (r < 0) {
		*ret_why = "it names more files than a catalog has";
		return r;
	}
	switch (h->type) {
	case RECORD_FENCE:
		if (h->offset > h->position) {
			*ret_why = "a FENCE covers records that come after it";
			return -EBADMSG;
		}
		f->fence = max_of(f->fence, h->offset);
		break;
	case RECORD_UNLINK:
		f->unlinked = true;
		break;
	case RECORD_WRITE:
	case RECORD_LINES:
		if (h->offset > (uint64_t)INT64_MAX - h->length) {
			*ret_why = "a record lies beyond the largest file";
			return -EBADMSG;
		}
		/* A file without a name gets none of these: it was not unlinked after all. */
		f->unlinked = false;
		break;
	default: /* TOUCH counts by its time */
		break;
	}
	return 0;
}

static bool is_live(const struct plan_file *f, const struct record_header *h)
{
	return (h->type == RECORD_WRITE || h->type == RECORD_LINES) && h->position >= f->fence;
}

/* Offset behind the last line of a LINES record: looked at before any file is written, since a map that
 * does not fit is damage. */
static int lines_end(const struct lane *l, const struct record_header *h, uint64_t *ret)
{
	cleanup_free void *payload = malloc(h->length);
	struct lines_run run = { 0 };
	int r;

	if (!payload)
		return -ENOMEM;
	if (payload_guarded(l, h, payload) < 0)
		return -EBADMSG;
	*ret = h->offset;
	while ((r = lines_next(payload, h->length, &run)) > 0)
		*ret = h->offset + run.offset + run.length;
	return r;
}

/* Second pass: what of it is live. */
static int count(struct plan *plan, const struct lane *l, const struct record_header *h,
		 const char **ret_why)
{
	uint64_t end = h->offset + h->length;
	struct plan_file *f;
	int i, r;

	if (h->type == RECORD_PAD)
		return 0;
	i = plan_find(plan, h->file_id);
	if (i < 0)
		return -EBADMSG;
	f = &plan->files[i];
	if (h->type != RECORD_FENCE && h->position >= f->fence)
		f->named = true;
	if (!is_live(f, h))
		return 0;
	r = h->type == RECORD_LINES ? lines_end(l, h, &end) : 0;
	if (r < 0) {
		*ret_why = "the map of a LINES record does not fit its lines";
		return r;
	}
	if (f->records++ == 0)
		f->begin = h->offset;
	f->bytes += h->length;
	f->end = max_of(f->end, end);
	plan->records++;
	plan->bytes += h->length;
	plan->largest = max_of(plan->largest, h->length);
	return 0;
}

static int pass(struct plan *plan, const struct lane *l, const char **ret_why,
		int (*step)(struct plan *, const struct lane *, const struct record_header *,
			    const char **))
{
	struct record_header h;
	struct walk w;
	int r;

	walk_begin(&w, l, plan->tail, plan->tail_chain, plan->head);
	while ((r = next_guarded(&w, &h)) == WALK_RECORD) {
		r = step(plan, l, &h, ret_why);
		if (r < 0)
			return r;
	}
	if (r == WALK_END)
		return 0;
	*ret_why = "it changed while it was read";
	return -EBADMSG;
}

int plan_make(struct plan *ret, const struct lane *l, const char **ret_why)
{
	struct walk w = { 0 };
	int r;

	memset(ret, 0, sizeof(*ret));
	*ret_why = "";
	ret->slots = calloc(PLAN_SLOTS, sizeof(*ret->slots));
	if (!ret->slots)
		return -ENOMEM;
	r = find_head_guarded(l, &w, &ret->tail_chain, ret_why);
	if (r == -EFAULT)
		*ret_why = "its memory cannot be read";
	ret->tail = w.tail;
	ret->head = w.position;
	ret->head_chain = w.chain;
	if (r == 0 && beat_guarded(l, &ret->beat_ns) < 0) {
		*ret_why = "its header cannot be read";
		r = -EBADMSG;
	}
	if (r == 0 && strange_guarded(&w) != 0) {
		*ret_why = "it holds a record of a kind that this version does not know";
		r = -EBADMSG;
	}
	if (r == 0)
		r = pass(ret, l, ret_why, note);
	if (r == 0)
		r = pass(ret, l, ret_why, count);
	if (r == -ENOMEM)
		return r;
	return r < 0 ? -EBADMSG : 0;
}

void plan_free(struct plan *plan)
{
	free(plan->files);
	free(plan->slots);
	memset(plan, 0, sizeof(*plan));
}

static int each_line_run(const struct record_header *h, const void *payload, size_t file,
			 int (*each)(void *arg, size_t file, uint64_t offset, const void *payload,
				     uint32_t length),
			 void *arg)
{
	struct lines_run run = { 0 };
	int r;

	while ((r = lines_next(payload, h->length, &run)) > 0) {
		r = each(arg, file, h->offset + run.offset, run.bytes, run.length);
		if (r < 0)
			return r;
	}
	return r;
}

int plan_each(const struct plan *plan, const struct lane *l,
	      int (*each)(void *arg, size_t file, uint64_t offset, const void *payload,
			  uint32_t length),
	      void *arg)
{
	cleanup_free void *payload = malloc((size_t)plan->largest + 1);
	struct record_header h;
	struct walk w;
	int r;

	if (!payload)
		return -ENOMEM;
	walk_begin(&w, l, plan->tail, plan->tail_chain, plan->head);
	while ((r = next_guarded(&w, &h)) == WALK_RECORD) {
		int i = h.type == RECORD_PAD ? -1 : plan_find(plan, h.file_id);

		if (h.type == RECORD_PAD)
			continue;
		if (i < 0)
			return -EBADMSG;
		if (!is_live(&plan->files[i], &h))
			continue;
		/* A client that still has the lane mapped may have changed it since plan_make. */
		if (h.length > plan->largest || h.offset > (uint64_t)INT64_MAX - h.length ||
		    payload_guarded(l, &h, payload) < 0)
			return -EBADMSG;
		if (plan->each_ns)
			*plan->each_ns = h.time_ns;
		r = h.type == RECORD_WRITE ? each(arg, (size_t)i, h.offset, payload, h.length)
					   : each_line_run(&h, payload, (size_t)i, each, arg);
		if (r < 0)
			return r;
	}
	return r == WALK_END ? 0 : -EBADMSG;
}
