/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names: unlink, link, rename, rename over another file, and a new file in the place of one that is gone.
 * The order of locks and calls is client/preload/name.c's.
 */

#include <errno.h>

#include "tests/crash/ops_internal.h"

struct call {
	int file;
	int over;    /* -1, or whose name it takes */
	bool synced; /* the name with it */
	struct process *p;
	struct file_ref *dropped;
};

static long call_unlink(void *arg)
{
	const struct call *c = arg;

	return disk_unlink(c->file);
}

static long call_link(void *arg)
{
	const struct call *c = arg;

	disk_link(c->file);
	return 0;
}

static long call_rename(void *arg)
{
	const struct call *c = arg;

	disk_rename(c->file, c->over);
	return 0;
}

static void op_unlink(struct ops *o)
{
	struct process *p = ops_process(o);
	struct file_ref *r = &p->ref[o->file][OPEN_DSYNC];
	struct call c = { .file = o->file };
	bool last = disk.files[o->file].links == 1;
	bool refused = disk.unlink_fails;
	long rc;

	if (disk.files[o->file].links == 0)
		return;
	if (last && !refused)
		model_begin_unlink(o->file, control_head(&world.ctl).head);
	else
		model_begin_none();
	if (!OPS_CALL(o)) {
		ops_killed(o, p, false);
		return;
	}
	rc = file_lock(&p->s, &p->who, r);
	if (rc == 0) {
		rc = file_unlinking_locked(&p->s, &p->who, r, call_unlink, &c);
		file_unlock(&p->s, r);
	}
	ops_disarm();
	if (rc == -EPERM && refused)
		return;
	ops_judge(o, rc);
	if (rc < 0)
		(void)model_perhaps();
	else
		model_done(0);
}

static long drop_locked(void *arg)
{
	const struct call *c = arg;

	return file_unlinking_locked(&c->p->s, &c->p->who, c->dropped, call_rename, arg);
}

static long drop(void *arg)
{
	const struct call *c = arg;
	long rc = file_lock(&c->p->s, &c->p->who, c->dropped);

	if (rc < 0)
		return rc;
	rc = drop_locked(arg);
	file_unlock(&c->p->s, c->dropped);
	return rc;
}

/* Two file locks in the order of their entries. */
static long rename_in_order(struct call *c, struct file_ref *moved)
{
	struct process *p = c->p;
	long rc;

	if (c->over < 0)
		return file_touched(&p->s, &p->who, moved, call_rename, c);
	if (c->file < c->over)
		return file_touched(&p->s, &p->who, moved, drop, c);
	rc = file_lock(&p->s, &p->who, c->dropped);
	if (rc < 0)
		return rc;
	rc = file_touched(&p->s, &p->who, moved, drop_locked, c);
	file_unlock(&p->s, c->dropped);
	return rc;
}

static long rename_and_sync(struct call *c, struct file_ref *moved)
{
	struct process *p = c->p;
	long rc = rename_in_order(c, moved);

	if (rc >= 0 && file_lock(&p->s, &p->who, moved) == 0) {
		/* An error is not told: the call itself has been made. */
		c->synced = file_sync_locked(&p->s, &p->who, moved) == 0;
		file_unlock(&p->s, moved);
	}
	return rc;
}

/* Whose name may be taken: another file with one name, of which nothing is to be put right. */
static int victim(const struct ops *o)
{
	for (int i = 1; i < DISK_FILES; i++) {
		int file = (o->file + i) % DISK_FILES;

		if (world_entry(file)->id && disk.files[file].links == 1 &&
		    !world_entry(file)->lock.word)
			return file;
	}
	return -1;
}

static void op_rename(struct ops *o, bool replace)
{
	struct process *p = ops_process(o);
	struct call c = { .file = o->file, .over = replace ? victim(o) : -1, .p = p };
	long rc;

	if (disk.files[o->file].links != 1 || (replace && c.over < 0))
		return;
	if (c.over >= 0)
		c.dropped = &p->ref[c.over][OPEN_DSYNC];
	model_begin_rename(o->file, c.over, control_head(&world.ctl).head);
	if (!OPS_CALL(o)) {
		ops_killed(o, p, false);
		return;
	}
	rc = rename_and_sync(&c, &p->ref[o->file][OPEN_DSYNC]);
	ops_disarm();
	ops_judge(o, rc);
	if (rc < 0) {
		(void)model_perhaps();
		return;
	}
	model_done(0);
	if (c.synced)
		model_synced(o->file);
	else /* until the next good one, which the program's own fsync will be */
		model_other_name(o->file, disk.files[o->file].safe_name);
}

static void op_link(struct ops *o)
{
	struct process *p = ops_process(o);
	struct call c = { .file = o->file };
	long rc;

	if (disk.files[o->file].links != 1)
		return;
	model_begin_none();
	if (!OPS_CALL(o)) {
		ops_killed(o, p, false);
		return;
	}
	rc = file_touched(&p->s, &p->who, &p->ref[o->file][OPEN_DSYNC], call_link, &c);
	ops_disarm();
	ops_judge(o, rc);
}

void ops_name(struct ops *o, enum op op)
{
	if (op == OP_UNLINK)
		op_unlink(o);
	else if (op == OP_LINK)
		op_link(o);
	else
		op_rename(o, op == OP_REPLACE);
}

/* A file that is gone is made again. Its entry is free when nothing of it is live; else another one. */
void ops_recreate(struct ops *o)
{
	if (!world.daemon_up || disk.files[o->file].links != 0)
		return;
	for (int i = 0; i < DISK_FILES; i++) {
		int file = (o->file + i) % DISK_FILES;

		if (disk.files[file].links != 0 || world_live(file) ||
		    world_entry(file)->lock.word || world.owed_publish)
			continue;
		disk_create(file, 0);
		model_create(file, 0);
		world_register(file);
		o->file = file;
		o->last_offset[file] = 0;
		return;
	}
}
