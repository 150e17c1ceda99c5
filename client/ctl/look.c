/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/look.h"

#include <errno.h>
#include <unistd.h>

#include "base/overflow.h"
#include "pool/guard.h"
#include "pool/record.h"
#include "pool/walk.h"

#define TRIES	 5
#define PAUSE_US 50000 /* between them: far longer than a record takes */

/* The jump of a guard may not run over locals of the caller: each guarded step is a function. */
static int find_guarded(const struct lane *l, struct walk *w, uint32_t *ret_chain, const char **why)
{
	return GUARD(walk_find_head(l, w, ret_chain, why));
}

static int next_guarded(struct walk *w, struct record_header *h)
{
	return GUARD(walk_next(w, h));
}

static int tail_guarded(const struct lane *l, struct lane_tail_found found[2])
{
	return GUARD(lane_tail_read(l, found));
}

int look_at(const struct lane *l, uint64_t position, uint64_t tail, struct record_header *ret)
{
	return GUARD(record_check(l, position, tail, ret));
}

/*
 * The walk ended at the head, and before the rest of the ring was looked at the next records came, which say
 * that this position was acknowledged. It is good when it holds one of them now, or was trimmed since.
 */
static bool moved_on(const struct lane *l, const struct walk *w)
{
	struct lane_tail_found found[2];
	struct record_header h;

	if (tail_guarded(l, found) < 1)
		return false;
	return found[0].tail > w->position ||
	       (look_at(l, w->position, found[0].tail, &h) == 0 && h.chain == w->chain);
}

int look_head(struct look *look, const struct lane *l, bool in_use)
{
	struct walk w = { 0 };
	int r = -EBADMSG;

	*look = (struct look){ .lane = l, .in_use = in_use };
	for (int i = 0; r < 0 && i < (in_use ? TRIES : 1); i++) {
		if (i > 0)
			(void)usleep(PAUSE_US);
		w = (struct walk){ 0 };
		look->why = NULL;
		r = find_guarded(l, &w, &look->tail_chain, &look->why);
		if (r < 0 && in_use && w.position > w.tail && moved_on(l, &w))
			r = 0;
	}
	look->tail = w.tail;
	look->head = w.position;
	if (r == 0)
		look->why = NULL;
	else if (!look->why)
		look->why = r == -EFAULT ? "its memory cannot be read" : "it cannot be walked";
	return r < 0 ? -EBADMSG : 0;
}

/* A walk that was stopped goes on from the tail as it is now, if that has passed it. */
static bool go_on(struct look *look, struct walk *w)
{
	struct lane_tail_found found[2];

	if (!look->in_use || tail_guarded(look->lane, found) < 1 || found[0].tail <= w->position)
		return false;
	look->trimmed += min_of(found[0].tail, w->limit) - w->position;
	walk_begin(w, look->lane, found[0].tail, found[0].chain, w->limit);
	return true;
}

int look_each(struct look *look, void (*each)(void *arg, const struct record_header *h), void *arg)
{
	struct record_header h;
	struct walk w;
	int r;

	walk_begin(&w, look->lane, look->tail, look->tail_chain, look->head);
	while ((r = next_guarded(&w, &h)) != WALK_END) {
		if (r == WALK_RECORD) {
			each(arg, &h);
		} else if (!go_on(look, &w)) {
			look->why = "it changed while it was read";
			return -EBADMSG;
		}
	}
	return 0;
}
