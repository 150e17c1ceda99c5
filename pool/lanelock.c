/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Models: tests/models/slots.pml (takeover), space.pml (the recount). */
#include "pool/lanelock.h"

#include "base/atomic.h"
#include "pool/ops.h"
#include "pool/space.h"

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
