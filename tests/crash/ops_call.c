/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Calls that are no writes and change no name. */

#include "pool/heal.h"
#include "tests/crash/ops_internal.h"

struct call {
	int file;
	uint64_t size;
};

static long call_truncate(void *arg)
{
	const struct call *c = arg;

	return disk_truncate(c->file, c->size);
}

static long call_chmod(void *arg)
{
	const struct call *c = arg;

	disk_chmod(c->file);
	return 0;
}

static uint64_t some_size(struct ops *o)
{
	bool imaged = world.ctl.images[o->file].valid;

	/* What an image is of is cut off, and grows again as zeros. */
	if (imaged && disk.files[o->file].size >= OPS_BLOCK_AT + OPS_BLOCK &&
	    rng_one_in(&o->rng, 2))
		return rng_below(&o->rng, OPS_BLOCK_AT + OPS_BLOCK);
	return rng_below(&o->rng, GROW_MAX);
}

static void op_truncate(struct ops *o)
{
	struct process *p = ops_process(o);
	struct file_ref *r = &p->ref[o->file][OPEN_DSYNC];
	struct call c = { o->file, some_size(o) };
	long rc;

	model_begin_truncate(o->file, c.size, control_head(&world.ctl).head);
	if (!OPS_CALL(o)) {
		ops_killed(o, p, true);
		return;
	}
	rc = file_fenced(&p->s, &p->who, r, call_truncate, &c);
	ops_disarm();
	ops_judge(o, rc);
	if (rc < 0) {
		(void)model_perhaps();
		ops_unsettled(o->file);
		return;
	}
	model_done(0);
}

/* Calls that change no bytes. */
static void op_quiet(struct ops *o, enum op op)
{
	struct process *p = ops_process(o);
	struct file_ref *r = &p->ref[o->file][OPEN_DSYNC];
	struct call c = { o->file, 0 };
	long rc = 0;

	model_begin_none();
	if (!OPS_CALL(o)) {
		ops_killed(o, p, false);
		return;
	}
	if (op == OP_CHMOD)
		rc = file_touched(&p->s, &p->who, r, call_chmod, &c);
	else if (op == OP_BYPASS)
		rc = file_enter_bypass(&p->s, &p->who, r, BYPASS_LANE_FULL);
	else
		rc = file_sync(&p->s, &p->who, r, rng_one_in(&o->rng, 2));
	ops_disarm();
	ops_judge(o, rc);
	if (op == OP_SYNC && rc == 0)
		model_synced(o->file);
}

static void op_heal(struct ops *o)
{
	struct process *p = ops_process(o);
	struct file_ref *r = &p->ref[o->file][OPEN_APPEND];
	long rc;

	model_begin_none();
	if (!OPS_CALL(o)) {
		ops_killed(o, p, false);
		return;
	}
	rc = file_lock(&p->s, &p->who, r);
	if (rc == 0) {
		rc = heal_locked(&p->s, &p->who, r);
		file_unlock(&p->s, r);
	}
	ops_disarm();
	ops_judge(o, rc);
}

void ops_call(struct ops *o, enum op op)
{
	if (op == OP_TRUNCATE)
		op_truncate(o);
	else if (op == OP_HEAL)
		op_heal(o);
	else
		op_quiet(o, op);
}
