/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A small model of the destager: the rules of the design, on the product's own lane functions. */

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "pool/heal.h"
#include "pool/space.h"
#include "tests/crash/world.h"

/* The page cache may be believed for records made while our description was open without error. */
static bool trusted(const struct ctl_file *f, const struct file_ref *r)
{
	uint64_t oldest = max_of(max_of(f->first, f->fence), world.ctl.hot->tail);

	return atomic_load_seq(&f->degraded) == 0 && oldest >= r->open_head;
}

static bool sync_trusted(struct file_ref *r)
{
	if (disk_io.fdatasync(r->fd) == 0)
		return true;
	atomic_add_seq(&r->f->degraded, 1);
	r->open_head = control_head(&world.ctl).head;
	return false;
}

static bool heal_and_sync(struct process *d, struct file_ref *r)
{
	uint32_t degraded;
	int rc;

	/* A process is inside, perhaps in this very file: later. */
	if (world.inside || file_lock(&d->s, &d->who, r) < 0)
		return false;
	degraded = atomic_load_seq(&r->f->degraded);
	rc = heal_locked(&d->s, &d->who, r);
	file_unlock(&d->s, r);
	if (rc < 0 || !sync_trusted(r))
		return false;
	if (degraded && file_lock(&d->s, &d->who, r) == 0) {
		(void)atomic_cas_seq(&r->f->degraded, &degraded, 0);
		file_unlock(&d->s, r);
	}
	return true;
}

void daemon_settle(void)
{
	struct process *d = &world.daemon;
	unsigned who = world.now;

	/* Let in between two steps of a call it cannot wait for that call's lock. */
	if (!world.owed_publish || (world.inside && world.ctl.hot->lane_lock.word))
		return;
	world_act(ACTOR_DAEMON);
	if (space_publish_tail(&d->s, &d->who, world.owed_tail) == 0)
		world.owed_publish = false;
	world_act(who);
}

static bool destage(struct process *d)
{
	struct ctl_cell head;

	/* Let in between two steps of an append it cannot wait for that one's lock. */
	if ((world.inside && world.ctl.hot->lane_lock.word) ||
	    space_mark(&d->s, &d->who, &head) < 0)
		return false;
	for (int i = 0; i < DISK_FILES; i++) {
		struct file_ref *r = &d->ref[i][OPEN_DSYNC];

		if (!world_live(i) || r->f->first >= head.head)
			continue;
		if (trusted(r->f, r) ? !sync_trusted(r) : !heal_and_sync(d, r))
			return false;
	}
	lane_tail_write(&d->s.lane, head.head, head.chain);
	world.owed_tail = head.head;
	world.owed_publish = true;
	daemon_settle();
	return true;
}

bool daemon_destage(void)
{
	unsigned who = world.now;
	bool good;

	if (!world.daemon_up || world.owed_publish)
		return false;
	world_act(ACTOR_DAEMON);
	good = destage(&world.daemon);
	world_act(who);
	return good;
}

void daemon_beat(void)
{
	uint64_t now = now_realtime_ns();
	uint64_t head = control_head(&world.ctl).head;
	unsigned who = world.now;

	world_act(ACTOR_DAEMON);
	lane_beat_write(&world.daemon.s.lane, now, head);
	atomic_store_relaxed(&world.ctl.hot->beat_ns, now);
	world_act(who);
}

void daemon_leave_bypass(void)
{
	struct process *d = &world.daemon;
	unsigned who = world.now;

	world_act(ACTOR_DAEMON);
	for (int i = 0; i < DISK_FILES; i++) {
		struct file_ref *r = &d->ref[i][OPEN_DSYNC];

		if (!r->f || r->f->state != FILE_BYPASS || file_lock(&d->s, &d->who, r) < 0)
			continue;
		if (!world_live(i))
			file_leave_bypass_locked(&d->s, r);
		file_unlock(&d->s, r);
	}
	world_act(who);
}
