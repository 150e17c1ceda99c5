/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/replay.h"

#include <errno.h>
#include <string.h>

#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/recover/judge.h"
#include "pool/dir/identity.h"
#include "pool/walk.h"
#include "tests/crash/medium.h"
#include "tests/crash/world.h"

static const char *judge(const struct replay *r, const struct plan_file *p,
			 const struct disk_cut cut[DISK_FILES])
{
	int file = world_file_of(p->id);
	const struct disk_cut *c = file < 0 ? NULL : &cut[file];
	const struct judge_facts facts = {
		.live = p->records > 0,
		.named = p->named,
		.known = file >= 0,
		.unlinked = p->unlinked,
		.found = c && c->exists ? FOUND_OPEN : FOUND_STALE,
		.mark = MARK_OURS,
		.ctime_ns = c ? (int64_t)c->ctime_ns : 0,
		.newest_record_ns = r->plan.newest_ns,
		.beat_ns = r->plan.beat_ns,
		.now_ns = now_realtime_ns(),
	};
	const struct judge_text *text = &judge_texts[judge_file(&facts)];

	if (text->action == ACTION_NONE || text->action == ACTION_REPLAY ||
	    text->action == ACTION_DROP)
		return NULL;
	return text->text;
}

const char *replay_plan(struct replay *ret, void *image, const struct disk_cut cut[DISK_FILES])
{
	const char *why = NULL;

	memset(&ret->plan, 0, sizeof(ret->plan));
	if (lane_attach(&ret->lane, image, MEDIUM_BYTES) < 0)
		return "the lane's header is not valid";
	if (plan_make(&ret->plan, &ret->lane, &why) < 0)
		return why && *why ? why : "the lane is damaged";
	for (size_t i = 0; i < ret->plan.n_files; i++) {
		why = judge(ret, &ret->plan.files[i], cut);
		if (why)
			return why;
	}
	return NULL;
}

void replay_free(struct replay *r)
{
	plan_free(&r->plan);
}

struct apply {
	const struct plan *plan;
	struct disk_cut *cut;
};

static int apply_one(void *arg, size_t index, uint64_t offset, const void *payload, uint32_t length)
{
	const struct apply *a = arg;
	struct disk_cut *f = &a->cut[world_file_of(a->plan->files[index].id)];

	if (!f->exists)
		return 0;
	if (offset + length > DISK_BYTES)
		return -EFBIG;
	memcpy(f->bytes + offset, payload, length);
	f->size = max_of(f->size, offset + length);
	return 0;
}

const char *replay_apply(const struct replay *r, struct disk_cut cut[DISK_FILES])
{
	struct apply a = { &r->plan, cut };

	return plan_each(&r->plan, &r->lane, apply_one, &a) < 0 ? "the replay failed" : NULL;
}

const char *replay_all(void *image, struct disk_cut cut[DISK_FILES])
{
	struct replay r;
	const char *why = replay_plan(&r, image, cut);

	if (!why)
		why = replay_apply(&r, cut);
	replay_free(&r);
	return why;
}

bool replay_find(const struct replay *r, int file, uint64_t from, struct record_header *ret)
{
	struct walk w;

	walk_begin(&w, &r->lane, r->plan.tail, r->plan.tail_chain, r->plan.head);
	while (walk_next(&w, ret) == WALK_RECORD)
		if ((ret->type == RECORD_WRITE || ret->type == RECORD_LINES) &&
		    ret->position >= from && world_file_of(ret->file_id) == file)
			return true;
	return false;
}
