/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon does; it is killed and started like anybody else. */

#include <stdio.h>

#include "tests/crash/check.h"
#include "tests/crash/clock.h"
#include "tests/crash/fiber.h"
#include "tests/crash/ops_internal.h"

static void start_or_stop(void)
{
	if (world.daemon_up) {
		daemon_settle();
		if (!world.owed_publish)
			daemon_stop();
		return;
	}
	daemon_start();
	daemon_beat();
	if (daemon_destage())
		daemon_leave_bypass();
}

static void work(struct ops *o, enum op op)
{
	if (op == OP_DESTAGE)
		(void)daemon_destage();
	else if (op == OP_LANE && world.daemon_up)
		daemon_leave_bypass();
	else if (op == OP_DAEMON)
		start_or_stop();
	else if (op == OP_TIME && world.daemon_up)
		daemon_beat();
	(void)snprintf(o->note, sizeof(o->note), "daemon %s", world.daemon_up ? "up" : "down");
}

void ops_daemon(struct ops *o, enum op op)
{
	world_act(ACTOR_DAEMON);
	model_begin_none();
	if (op == OP_TIME && !fibers_active())
		clock_pass((uint64_t)rng_below(&o->rng, 30) * 100000000u);
	if (!OPS_CALL(o)) {
		world.actor[ACTOR_DAEMON].kill_at = 0;
		daemon_die();
		o->died = true;
		(void)snprintf(o->note, sizeof(o->note), "daemon killed");
		return;
	}
	work(o, op);
	ops_disarm();
}

void ops_last_end(void)
{
	if (!world.daemon_up)
		return;
	if (!daemon_destage() || world.owed_publish || world_used())
		return;
	/* Registering a file syncs it: what the last session left un-synced has no other sync. */
	for (int i = 0; i < DISK_FILES; i++) {
		struct file_ref *r = &world.daemon.ref[i][OPEN_DSYNC];

		if (!r->f)
			continue;
		if (disk_io.fsync(r->fd) < 0)
			return;
		model_synced(i);
	}
	daemon_new_incarnation();
}
