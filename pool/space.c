/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of reservation, waits and wakes: tests/models/space.pml. */
#include "pool/space.h"

#include <errno.h>
#include <limits.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/overflow.h"
#include "pool/lanelock.h"
#include "pool/slot_word.h"

#define WAIT_NS	    UINT64_C(100000000) /* longest sleep before the next look at the daemon */
#define WAIT_FACTOR 10u /* a daemon that works without success: this many timeouts, then bypass */

uint64_t space_for(uint32_t length)
{
	return 2 * record_bytes(length) + SPACE_FILE_RESERVE;
}

bool space_file_live(const struct session *s, const struct ctl_file *f)
{
	/* Acquire: pairs with space_publish_tail; what was trimmed is durable in its file. The
	 * entry's words are under the file lock, or read as hints. */
	uint64_t tail = atomic_load_acquire(&s->ctl.hot->tail);
	uint64_t fence = atomic_load_relaxed(&f->fence);

	return atomic_load_relaxed(&f->last) > max_of(tail, fence);
}

/* Bytes taken: live records, reservations, and what is kept free for the live files. */
static uint64_t taken_locked(const struct session *s)
{
	const struct ctl_hot *hot = s->ctl.hot;
	uint64_t used = control_head(&s->ctl).head - atomic_load_relaxed(&hot->tail);

	return used + hot->reserved_bytes + (uint64_t)SPACE_FILE_RESERVE * hot->live_files;
}

static bool fits_locked(const struct session *s, uint64_t bytes)
{
	uint64_t taken = taken_locked(s);

	return taken <= s->lane.ring_size && bytes <= s->lane.ring_size - taken;
}

int space_reserve(struct session *s, const struct caller *who, uint64_t bytes)
{
	struct ctl_hot *hot = s->ctl.hot;
	uint64_t *note = &s->ctl.slots[s->me.slot].note;
	int r = lane_lock(s, who);

	if (r < 0)
		return r;
	if (!fits_locked(s, bytes))
		/* A process that died with a reservation, and whose file and slot nobody has taken
		 * since, has brought no recount yet. Not to be waited for. */
		space_recount_locked(s);
	if (!fits_locked(s, bytes)) {
		r = SPACE_FULL;
		atomic_add_relaxed(&hot->full_waits, 1);
	} else {
		/* Note first: a death in between leaves the total too low until the recount that
		 * every owner death brings. Relaxed: under the lane lock. */
		atomic_store_relaxed(note, *note + bytes);
		hot->reserved_bytes += bytes;
		r = SPACE_OK;
	}
	lane_unlock(s);
	return r;
}

int space_release(struct session *s, const struct caller *who, uint64_t bytes)
{
	int r = lane_lock(s, who);

	if (r < 0)
		return r;
	space_give_back_locked(s, bytes);
	lane_unlock(s);
	return 0;
}

void space_give_back_locked(struct session *s, uint64_t bytes)
{
	struct ctl_hot *hot = s->ctl.hot;
	uint64_t *note = &s->ctl.slots[s->me.slot].note;

	/* Never below zero: a recount may have struck the note out. */
	bytes = min_of(bytes, *note);
	atomic_store_relaxed(note, *note - bytes);
	hot->reserved_bytes -= min_of(bytes, hot->reserved_bytes);
}

void space_recount_notes(const struct control *c, const struct holder *me)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < CTL_SLOTS; i++) {
		struct ctl_slot *slot = &c->slots[i];
		/* Relaxed: under the lane lock. The generation may be an old one: then the slot counts as
		 * dead, and its new holder strikes the note out itself, waiting for this lock. */
		uint64_t note = atomic_load_relaxed(&slot->note);
		struct holder h = { .slot = i };

		if (note == 0)
			continue;
		h.generation =
			(uint32_t)(atomic_load_relaxed(&slot->generation) & WORD_GENERATION_MASK);
		if (i != me->slot && slot_dead(c, word_of(&h, 0))) {
			atomic_store_relaxed(&slot->note, 0);
			continue;
		}
		total += note;
	}
	c->hot->reserved_bytes = total;
}

static uint32_t count_live_files(const struct session *s)
{
	uint32_t end = control_files_end(&s->ctl);
	uint32_t live = 0;

	for (uint32_t i = 0; i < end; i++) {
		const struct ctl_file *f = &s->ctl.files[i];

		/* Acquire: pairs with the daemon's store of id. */
		if (atomic_load_acquire(&f->id) != 0 && space_file_live(s, f))
			live++;
	}
	return live;
}

static void recount_live_files(struct session *s)
{
	/* Relaxed: under the lane lock. */
	atomic_store_relaxed(&s->ctl.hot->live_files, count_live_files(s));
}

void space_recount_locked(struct session *s)
{
	space_recount_notes(&s->ctl, &s->me);
	recount_live_files(s);
}

int space_recount(struct session *s, const struct caller *who)
{
	int r = lane_lock(s, who);

	if (r < 0)
		return r;
	space_recount_locked(s);
	lane_unlock(s);
	return 0;
}

/* What moves when the daemon gets on. */
struct progress {
	uint32_t seq;
	uint64_t ns;
};

static struct progress look(const struct session *s)
{
	/* Acquire: pairs with the daemon's stores; the words are compared and nothing else. */
	return (struct progress){
		.seq = atomic_load_acquire(&s->ctl.hot->daemon_seq),
		.ns = atomic_load_acquire(&s->ctl.hot->daemon_ns),
	};
}

/* Wakes the destager if it sleeps: its space is wanted. */
static void wake_destager(struct ctl_hot *hot)
{
	/* Seq_cst: pairs with the destager's store of asleep and its look at head. */
	if (atomic_load_seq(&hot->asleep) != 0 && atomic_xchg_seq(&hot->asleep, 0) != 0)
		(void)futex_wake(&hot->asleep, 1);
}

static void remember_stall(struct session *s, uint32_t seq)
{
	struct progress p = look(s);

	/* Relaxed, in no order: see struct session. */
	atomic_store_relaxed(&s->stalled_trim, seq);
	atomic_store_relaxed(&s->stalled_seq, p.seq);
	atomic_store_relaxed(&s->stalled_ns, p.ns + 1);
}

/* True if a wait was given up and the daemon has not moved since: the outage is one, not one a file. */
static bool stalled_still(struct session *s, uint32_t seq)
{
	struct progress p = look(s);

	/* relaxed: as above */
	return atomic_load_relaxed(&s->stalled_ns) == p.ns + 1 &&
	       atomic_load_relaxed(&s->stalled_seq) == p.seq &&
	       atomic_load_relaxed(&s->stalled_trim) == seq;
}

int space_wait(struct session *s, uint32_t seq)
{
	struct ctl_hot *hot = s->ctl.hot;
	uint64_t timeout = s->head_copy.reconnect_timeout_ns;
	uint64_t begin = now_monotonic_ns(), moved = begin;
	struct progress last = look(s);
	int r = SPACE_STALLED;

	if (s->is_daemon)
		return SPACE_STALLED;
	if (stalled_still(s, seq)) {
		wake_destager(hot);
		return SPACE_STALLED;
	}

	/* Raised before the look at trim_seq (seq_cst): the daemon raises trim_seq, then looks here. */
	atomic_add_seq(&hot->space_waiters, 1);
	for (;;) {
		uint64_t now;
		struct progress p;

		/* Pairs with the raise in space_publish_tail, which comes before its look at us. */
		if (atomic_load_seq(&hot->trim_seq) != seq) {
			r = SPACE_OK;
			break;
		}
		p = look(s);
		now = now_monotonic_ns();
		if (p.seq != last.seq || (p.ns != last.ns && slot_daemon_live(&s->ctl)))
			moved = now;
		last = p;
		if (now - moved >= timeout || now - begin >= WAIT_FACTOR * timeout)
			break;
		wake_destager(hot);
		(void)futex_wait(&hot->trim_seq, seq, min_of(WAIT_NS, timeout - (now - moved)));
	}
	atomic_sub_seq(&hot->space_waiters, 1);
	if (r == SPACE_STALLED)
		remember_stall(s, seq);
	return r;
}

int space_mark(struct session *s, const struct caller *who, struct ctl_cell *ret_head)
{
	int r = lane_lock(s, who);

	if (r < 0)
		return r;
	/* Relaxed: append compares it under the same lock. Who reads it elsewhere may be late, and is told
	 * there. */
	atomic_add_relaxed(&s->ctl.hot->rule_f, 1);
	*ret_head = control_head(&s->ctl);
	lane_unlock(s);
	return 0;
}

int space_publish_tail(struct session *s, const struct caller *who, uint64_t tail)
{
	struct ctl_hot *hot = s->ctl.hot;
	int r;

	/* Brings the entries into the cache, so that writers wait for the second count only. */
	(void)count_live_files(s);
	r = lane_lock(s, who);
	if (r < 0)
		return r;
	/* Release: pairs with the acquire in append and space_file_live. */
	atomic_store_release(&hot->tail, tail);
	recount_live_files(s);
	lane_unlock(s);

	/* Seq_cst raise, then the look at the waiters: see space_wait. */
	atomic_add_seq(&hot->trim_seq, 1);
	if (atomic_load_seq(&hot->space_waiters) != 0)
		(void)futex_wake(&hot->trim_seq, INT_MAX);
	return 0;
}
