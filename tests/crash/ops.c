/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/overflow.h"
#include "pool/heal.h"
#include "pool/space.h"
#include "tests/crash/check.h"
#include "tests/crash/clock.h"

#define KILL_STEPS  40u	   /* an ordinary call has fewer */
#define KILL_SHORT  14u	   /* steps of a short one */
#define SMALL	    600u   /* bytes of most writes */
#define GROW_MAX    12000u /* files stay below, so that big writes fit */
#define FILL_WRITES 24u

static struct process *process_now(struct ops *o)
{
	struct process *p = &world.process[o->process];

	if (!p->alive)
		process_start(p);
	world.medium.thread = p->thread;
	return p;
}

/* Room first, as the destager makes it in time: a run has one thread and must not wait. */
static void make_room(void)
{
	if (world.daemon_up && world_used() > MEDIUM_RING / 2)
		(void)daemon_destage();
	daemon_settle();
}

static void arm(struct ops *o)
{
	/* Most calls are short. */
	if (o->kill_next)
		world.kill_at =
			world.steps + 1 +
			rng_below(&o->rng, rng_one_in(&o->rng, 4) ? KILL_STEPS : KILL_SHORT);
	if (o->beside_next)
		world.destage_at = world.steps + 1 + rng_below(&o->rng, KILL_STEPS);
	o->kill_next = o->beside_next = false;
}

static void disarm(void)
{
	world.kill_at = world.destage_at = 0;
	world.inside = false;
	daemon_settle();
}

/* The process that was in the call is gone; the other one goes on. */
static void was_killed(struct ops *o, struct process *p, bool fenced)
{
	int file = o->file;

	/* A write without its record counts like an interrupted RULE F: it may have been read. */
	if (world_entry(file)->write_length)
		fenced = true;

	disarm();
	if (!model_perhaps())
		o->kill_next = false;
	if (fenced)
		o->unsettled = 1 + file;
	process_die(p);
	o->process = (o->process + 1) % WORLD_PROCESSES;
	daemon_settle();
	(void)snprintf(o->note, sizeof(o->note), "file %d, killed", file);
}

/* What an interrupted RULE F left is put right by whoever takes the lock next. */
static void settle(struct ops *o)
{
	struct process *p;
	const struct disk_file *d;
	struct file_ref *r;
	int file = o->unsettled - 1;
	bool interrupted;
	int rc;

	if (!o->unsettled)
		return;
	o->unsettled = 0;
	p = process_now(o);
	r = &p->ref[file][OPEN_DSYNC];
	interrupted = r->f->op != 0 || r->f->write_length != 0;
	rc = file_lock(&p->s, &p->who, r);
	if (rc < 0) {
		if (rc != -EIO || !world.bad_sync)
			check_fail("the lock of a dead owner is not to be had", file);
		o->unsettled = 1 + file;
		return;
	}
	file_unlock(&p->s, r);
	if (r->f->op)
		check_fail("op stands after the lock was taken", file);
	/* Without op it had not begun, or was all done: then the disk says so. */
	d = &disk.files[file];
	if (interrupted && !world.bad_sync && memcmp(d->cache, d->safe, DISK_BYTES) != 0)
		check_fail("what was put right is not durable", file);
	if (interrupted || (d->safe_size == d->size && !d->truncated))
		model_settle(file, interrupted && !world.bad_sync);
}

static void fill_random(struct ops *o, uint8_t *data, uint64_t n)
{
	uint64_t v = rng_next(&o->rng) | 1;

	/* never zero: a hole must look different */
	for (uint64_t i = 0; i < n; i++)
		data[i] = (uint8_t)(1 + ((v >> (i % 7 * 8)) + i * 31) % 255);
}

static void judge_result(struct ops *o, long n)
{
	(void)snprintf(o->note, sizeof(o->note), "process %u file %d: %ld", o->process, o->file, n);
	if (n == -EIO && world.bad_sync) {
		model_told(o->file);
		return;
	}
	if (n < 0)
		check_fail("a call failed", o->file);
}

/* Somebody else appends as soon as our write has looked at the size. Returns where ours will go. */
static uint64_t foreign_first(struct ops *o, uint64_t at)
{
	uint8_t bytes[DISK_FOREIGN];

	memset(bytes, DISK_FOREIGN_BYTE, sizeof(bytes));
	model_begin_write(o->file, at, bytes, sizeof(bytes), UINT64_MAX);
	model_done_unsynced(sizeof(bytes));
	return at + sizeof(bytes);
}

/* offset: bytes, or -1 for the description's position. */
static void do_write(struct ops *o, enum open_kind kind, int64_t offset, uint64_t n)
{
	static uint8_t data[DISK_BYTES];
	struct process *p = process_now(o);
	struct file_ref *r = &p->ref[o->file][kind];
	struct disk_file *d = &disk.files[o->file];
	struct iovec iov[2];
	uint64_t at;
	ssize_t rc;

	if (kind == OPEN_APPEND)
		at = d->size;
	else
		at = offset < 0 ? (uint64_t)disk.fds[r->fd].position : (uint64_t)offset;
	if (at + n + DISK_FOREIGN > DISK_BYTES)
		return;
	if (kind == OPEN_APPEND && disk.foreign_next)
		at = foreign_first(o, at);
	fill_random(o, data, n);
	iov[0] = (struct iovec){ data, n / 3 };
	iov[1] = (struct iovec){ data + n / 3, n - n / 3 };

	model_begin_write(o->file, at, data, n, control_head(&world.ctl).head);
	arm(o);
	if (setjmp(world.killed)) {
		was_killed(o, p, r->f->op != 0);
		return;
	}
	rc = file_write(&p->s, &p->who, r, iov, 2, offset, 0);
	disarm();
	judge_result(o, rc);
	if (rc < 0) {
		(void)model_perhaps();
		if (r->f->op)
			o->unsettled = 1 + o->file;
		return;
	}
	if (offset < 0 && kind != OPEN_APPEND && disk.fds[r->fd].position != (int64_t)at + rc)
		check_fail("the position did not move with the write", o->file);
	if (r->f->state == FILE_BYPASS && kind == OPEN_PLAIN)
		model_done_unsynced((uint64_t)rc);
	else
		model_done((uint64_t)rc);
	o->last_offset[o->file] = at;
}

static uint64_t some_offset(struct ops *o, uint64_t n)
{
	uint64_t size = disk.files[o->file].size;
	uint64_t top = min_of(size + 200, (uint64_t)GROW_MAX - n);

	return top ? rng_below(&o->rng, (uint32_t)top) : 0;
}

static uint64_t some_length(struct ops *o)
{
	if (rng_one_in(&o->rng, 8))
		return WORLD_BYPASS_SIZE - rng_below(&o->rng, 3);
	return 1 + rng_below(&o->rng, SMALL);
}

static void op_write(struct ops *o, enum open_kind kind)
{
	uint64_t n = some_length(o);

	if (kind == OPEN_APPEND && disk.files[o->file].size + n > GROW_MAX)
		return;
	do_write(o, kind, (int64_t)some_offset(o, n), n);
}

static void op_overlap(struct ops *o)
{
	uint64_t n = 1 + rng_below(&o->rng, SMALL);

	do_write(o, OPEN_DSYNC, (int64_t)o->last_offset[o->file], n);
}

static void op_next(struct ops *o)
{
	struct process *p = process_now(o);
	int fd = p->ref[o->file][OPEN_DSYNC].fd;

	if (disk.fds[fd].position > 8000)
		disk.fds[fd].position = 0;
	do_write(o, OPEN_DSYNC, -1, 1 + rng_below(&o->rng, SMALL));
	do_write(o, OPEN_DSYNC, -1, 1 + rng_below(&o->rng, SMALL));
}

static void op_fill(struct ops *o)
{
	check_sparse(true);
	for (unsigned i = 0; i < FILL_WRITES; i++) {
		uint64_t n = 2000 + rng_below(&o->rng, 1000);

		/* few distinct offsets: records in layers */
		do_write(o, OPEN_DSYNC, (int64_t)(rng_below(&o->rng, 4) * 1500), n);
		make_room();
	}
	check_sparse(false);
}

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

static long call_unlink(void *arg)
{
	const struct call *c = arg;

	disk_unlink(c->file);
	return 0;
}

static void op_truncate(struct ops *o)
{
	struct process *p = process_now(o);
	struct file_ref *r = &p->ref[o->file][OPEN_DSYNC];
	struct call c = { o->file, rng_below(&o->rng, GROW_MAX) };
	long rc;

	model_begin_truncate(o->file, c.size, control_head(&world.ctl).head);
	arm(o);
	if (setjmp(world.killed)) {
		was_killed(o, p, true);
		return;
	}
	rc = file_fenced(&p->s, &p->who, r, call_truncate, &c);
	disarm();
	judge_result(o, rc);
	if (rc < 0) {
		(void)model_perhaps();
		o->unsettled = 1 + o->file;
		return;
	}
	model_done(0);
}

static void op_unlink(struct ops *o)
{
	struct process *p = process_now(o);
	struct file_ref *r = &p->ref[o->file][OPEN_DSYNC];
	struct call c = { o->file, 0 };
	long rc;

	if (disk.files[o->file].links == 0)
		return;
	model_begin_unlink(o->file, control_head(&world.ctl).head);
	arm(o);
	if (setjmp(world.killed)) {
		was_killed(o, p, false);
		return;
	}
	rc = file_lock(&p->s, &p->who, r);
	if (rc == 0) {
		rc = file_unlinking_locked(&p->s, &p->who, r, call_unlink, &c);
		file_unlock(&p->s, r);
	}
	disarm();
	judge_result(o, rc);
	if (rc < 0)
		(void)model_perhaps();
	else
		model_done(0);
}

/* Calls that change no bytes. */
static void op_quiet(struct ops *o, enum op op)
{
	struct process *p = process_now(o);
	struct file_ref *r = &p->ref[o->file][OPEN_DSYNC];
	struct call c = { o->file, 0 };
	long rc = 0;

	model_begin_none();
	arm(o);
	if (setjmp(world.killed)) {
		was_killed(o, p, false);
		return;
	}
	if (op == OP_CHMOD)
		rc = file_touched(&p->s, &p->who, r, call_chmod, &c);
	else if (op == OP_BYPASS)
		rc = file_enter_bypass(&p->s, &p->who, r, BYPASS_LANE_FULL);
	else
		rc = file_sync(&p->s, &p->who, r, rng_one_in(&o->rng, 2));
	disarm();
	judge_result(o, rc);
	if (op == OP_SYNC && rc == 0)
		model_synced(o->file);
}

static void op_heal(struct ops *o)
{
	struct process *p = process_now(o);
	struct file_ref *r = &p->ref[o->file][OPEN_APPEND];
	long rc;

	model_begin_none();
	arm(o);
	if (setjmp(world.killed)) {
		was_killed(o, p, false);
		return;
	}
	rc = file_lock(&p->s, &p->who, r);
	if (rc == 0) {
		rc = heal_locked(&p->s, &p->who, r);
		file_unlock(&p->s, r);
	}
	disarm();
	judge_result(o, rc);
}

static void op_time(struct ops *o)
{
	clock_pass((uint64_t)rng_below(&o->rng, 30) * 100000000u);
	if (world.daemon_up)
		daemon_beat();
}

static void op_daemon(void)
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

static void op_last_end(void)
{
	if (!world.daemon_up)
		return;
	if (!daemon_destage() || world.owed_publish || world_used())
		return;
	/* Registering a file syncs it: what the last session left un-synced has no other sync. */
	for (int i = 0; i < DISK_FILES; i++) {
		if (disk_io.fsync(world.daemon.ref[i][OPEN_DSYNC].fd) < 0)
			return;
		model_synced(i);
	}
	daemon_new_incarnation();
}

static void op_bad_sync(struct ops *o)
{
	disk.files[o->file].fail_next = true;
	world.bad_sync = true;
}

static void run_call(struct ops *o, enum op op)
{
	switch (op) {
	case OP_WRITE:
		op_write(o, OPEN_DSYNC);
		break;
	case OP_OVERLAP:
		op_overlap(o);
		break;
	case OP_APPEND:
		op_write(o, OPEN_APPEND);
		break;
	case OP_PLAIN:
		op_write(o, OPEN_PLAIN);
		break;
	case OP_NEXT:
		op_next(o);
		break;
	case OP_BIG:
		do_write(o, rng_one_in(&o->rng, 2) ? OPEN_DSYNC : OPEN_PLAIN,
			 rng_below(&o->rng, 3000),
			 WORLD_BYPASS_SIZE + 1 + rng_below(&o->rng, 3000));
		break;
	case OP_FILL:
		op_fill(o);
		break;
	case OP_TRUNCATE:
		op_truncate(o);
		break;
	case OP_UNLINK:
		op_unlink(o);
		break;
	case OP_HEAL:
		op_heal(o);
		break;
	default:
		op_quiet(o, op);
		break;
	}
}

void ops_run(struct ops *o, enum op op)
{
	o->note[0] = '\0';
	make_room();
	settle(o);
	switch (op) {
	case OP_LANE:
		if (world.daemon_up)
			daemon_leave_bypass();
		break;
	case OP_DESTAGE:
		(void)daemon_destage();
		break;
	case OP_OTHER_FILE:
		o->file = (o->file + 1) % DISK_FILES;
		break;
	case OP_OTHER_PROC:
		o->process = (o->process + 1) % WORLD_PROCESSES;
		break;
	case OP_REOPEN:
		process_reopen(process_now(o), o->file);
		break;
	case OP_KILL:
		o->kill_next = true;
		break;
	case OP_BESIDE:
		o->beside_next = true;
		break;
	case OP_SHORT:
		disk.short_next = true;
		break;
	case OP_FOREIGN:
		disk.foreign_next = true;
		break;
	case OP_BAD_SYNC:
		op_bad_sync(o);
		break;
	case OP_WRITE_BACK:
		disk_write_back(o->file, &o->rng);
		break;
	case OP_EVICT:
		disk_evict(o->file);
		break;
	case OP_TIME:
		op_time(o);
		break;
	case OP_DAEMON:
		op_daemon();
		break;
	case OP_LAST_END:
		op_last_end();
		break;
	default:
		run_call(o, op);
		break;
	}
}
