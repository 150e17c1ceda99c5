/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Models: tests/models/slots.pml (takeover), space.pml (the recount). */
#include "pool/lanelock.h"

#include <string.h>

#include "base/atomic.h"
#include "pool/ops.h"
#include "pool/space.h"

/* Picked: above what fits into a stage, and one more, and a PAD (log.c). A bound for hostile bytes. */
#define BATCH_RECORDS 10000u

/*
 * A dead owner's records behind the one at head: of a batch, or behind a PAD. Whole ones, and a later record may end
 * where one of them stands: then a walk from there finds a record to which no chain leads, and takes it for damage.
 * The one at head comes last, and each keeps its length: should we die too, who comes next finds them all again.
 */
static void strike_out_behind(struct session *s, uint64_t head)
{
	uint64_t ring = s->lane.ring_size, position = head;
	uint64_t tail = atomic_load_acquire(&s->ctl.hot->tail);

	for (unsigned i = 0; i < BATCH_RECORDS && position - tail < ring; i++) {
		struct record_header h __attribute__((aligned(64)));

		memcpy(&h, lane_at(&s->lane, position), sizeof(h));
		if (h.position != position || h.incarnation != s->lane.incarnation ||
		    h.length > ring - RECORD_HEADER_BYTES ||
		    record_bytes(h.length) > ring - position % ring)
			return;
		if (position != head) {
			h.type = 0;
			h.crc = 0;
			pool_ops->copy(lane_at(&s->lane, position), &h, sizeof(h));
		}
		position += record_bytes(h.length);
	}
}

int lane_lock(struct session *s, const struct caller *who)
{
	static const struct record_header nothing __attribute__((aligned(64)));
	uint64_t head;
	int r = lock_acquire(&s->ctl, &s->ctl.hot->lane_lock, &s->me, who->tid, session_lock_ns(s),
			     who->stale_self);

	if (r != LOCK_OWNER_DIED)
		return r;
	/* It may have died with a whole record at head that nobody was told of: after this drain
	 * no walk takes it for one. In a ring that is full to the last line it found no room, and
	 * head's place is the oldest record's. */
	head = control_head(&s->ctl).head & ~UINT64_C(63);
	if (head - atomic_load_acquire(&s->ctl.hot->tail) < s->lane.ring_size) {
		strike_out_behind(s, head);
		pool_ops->copy(lane_at(&s->lane, head), &nothing, sizeof(nothing));
		pool_ops->drain();
	}
	space_recount_locked(s);
	return 0;
}

void lane_unlock(struct session *s)
{
	lock_release(&s->ctl.hot->lane_lock);
}
