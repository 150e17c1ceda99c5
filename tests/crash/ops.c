/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How a call begins, ends or is killed, and what is checked then. */

#include "tests/crash/ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/crash/check.h"
#include "tests/crash/fiber.h"
#include "tests/crash/ops_internal.h"

#define KILL_STEPS 150u /* an ordinary call has fewer */
#define KILL_SHORT 45u	/* steps of a short one */
#define LOCK_TRIES 3u

#define OP_NAME(name, weight, kind)   #name,
#define OP_WEIGHT(name, weight, kind) weight,
#define OP_KIND(name, weight, kind)   KIND_##kind,
const char *const op_names[OPS] = { OP_LIST(OP_NAME) };
const uint8_t op_weights[OPS] = { OP_LIST(OP_WEIGHT) };
const enum op_kind op_kinds[OPS] = { OP_LIST(OP_KIND) };

static bool unsettled[DISK_FILES];
static uint8_t blocks[DISK_FILES][OPS_BLOCK];

void ops_begin(struct ops *o, uint64_t seed)
{
	memset(o, 0, sizeof(*o));
	memset(unsettled, 0, sizeof(unsettled));
	memset(blocks, 0, sizeof(blocks));
	o->block = blocks;
	rng_seed(&o->rng, seed, 0);
}

void ops_unsettled(int file)
{
	unsettled[file] = true;
}

struct process *ops_process(struct ops *o)
{
	struct process *p = &world.process[o->process];

	if (!p->alive)
		process_start(p);
	world_act(o->process);
	return p;
}

void ops_make_room(void)
{
	if (world.daemon_up && world_used() > MEDIUM_RING / 2)
		(void)daemon_destage();
	daemon_settle();
}

void ops_arm(struct ops *o)
{
	struct actor *a = &world.actor[world.now];

	world_begin_call();
	a->kill_at = o->kill_step;
	/* Most calls are short. */
	if (o->kill_next)
		a->kill_at =
			1 + rng_below(&o->rng, rng_one_in(&o->rng, 4) ? KILL_STEPS : KILL_SHORT);
	if (o->beside_next)
		world.destage_at = world.steps + 1 + rng_below(&o->rng, KILL_STEPS);
	o->kill_step = 0;
	o->kill_next = o->beside_next = o->died = false;
}

void ops_disarm(void)
{
	world.actor[world.now].kill_at = 0;
	world.destage_at = 0;
	world.inside = false;
	if (!fibers_active())
		daemon_settle();
}

void ops_killed(struct ops *o, struct process *p, bool fenced)
{
	int file = o->file;

	/* A write without its record counts like an interrupted RULE F: it may have been read. */
	if (world_entry(file)->write_length ||
	    disk.files[file].calls != disk.files[file].safe_calls)
		fenced = true;

	ops_disarm();
	(void)model_perhaps();
	if (fenced)
		ops_unsettled(file);
	process_die(p);
	if (!fibers_active())
		o->process = (o->process + 1) % WORLD_PROCESSES;
	o->died = true;
	(void)snprintf(o->note, sizeof(o->note), "file %d, killed", file);
}

static void settle_file(struct ops *o, int file)
{
	struct process *p = ops_process(o);
	struct file_ref *r = &p->ref[file][OPEN_DSYNC];
	const struct disk_file *d = &disk.files[file];
	bool interrupted, loose = model.files[file].loose;
	int rc = 0;

	unsettled[file] = false;
	if (!r->f)
		return;
	interrupted = r->f->op != 0 || r->f->write_length != 0;
	/* An error is told once to each description: a program that tries again gets further. */
	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		rc = file_lock(&p->s, &p->who, r);
		if (rc != -EIO || !world.bad_sync)
			break;
		model_told(file);
	}
	if (rc < 0) {
		if (rc != -EIO || !world.bad_sync)
			check_fail("the lock of a dead owner is not to be had", file);
		unsettled[file] = true;
		return;
	}
	file_unlock(&p->s, r);
	if (r->f->op)
		check_fail("op stands after the lock was taken", file);
	if (d->calls != d->safe_calls && !world.bad_sync)
		check_fail("what a dead owner did is not durable for who comes next", file);
	/* Without op it had not begun, or was all done: then the disk says so. */
	if (interrupted && !world.bad_sync && memcmp(d->cache, d->safe, DISK_BYTES) != 0)
		check_fail("what was put right is not durable", file);
	if (interrupted || loose || (d->safe_size == d->size && !d->truncated))
		model_settle(file, (interrupted || loose) && !world.bad_sync);
}

void ops_settle(struct ops *o)
{
	for (int i = 0; i < DISK_FILES; i++)
		if (unsettled[i])
			settle_file(o, i);
}

void ops_judge(struct ops *o, long n)
{
	(void)snprintf(o->note, sizeof(o->note), "process %u file %d: %ld", o->process, o->file, n);
	if (n == -EIO && world.bad_sync) {
		model_told(o->file);
		return;
	}
	if (n < 0)
		check_fail("a call failed", o->file);
}

static void run_process_op(struct ops *o, enum op op)
{
	if (world_entry(o->file)->id == 0)
		return; /* not made yet */
	switch (op) {
	case OP_TRUNCATE:
	case OP_CHMOD:
	case OP_SYNC:
	case OP_BYPASS:
	case OP_HEAL:
		ops_call(o, op);
		break;
	case OP_UNLINK:
	case OP_LINK:
	case OP_RENAME:
	case OP_REPLACE:
		ops_name(o, op);
		break;
	default:
		ops_write(o, op);
		break;
	}
}

static void bad_sync(struct ops *o)
{
	disk.files[o->file].fail_next = true;
	world.bad_sync = true;
}

static void run_other_op(struct ops *o, enum op op)
{
	switch (op) {
	case OP_FILL:
		ops_fill(o);
		break;
	case OP_RECREATE:
		ops_recreate(o);
		break;
	case OP_OTHER_FILE:
		o->file = (o->file + 1) % DISK_FILES;
		if (world_entry(o->file)->id == 0)
			o->file = 0;
		break;
	case OP_OTHER_PROC:
		o->process = (o->process + 1) % WORLD_PROCESSES;
		break;
	case OP_REOPEN:
		if (world_entry(o->file)->id)
			process_reopen(ops_process(o), o->file);
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
	case OP_REFUSED:
		disk.unlink_fails = true;
		break;
	case OP_BAD_SYNC:
		bad_sync(o);
		break;
	case OP_WRITE_BACK:
		disk_write_back(o->file, &o->rng);
		break;
	case OP_EVICT:
		disk_evict(o->file);
		break;
	default:
		ops_last_end();
		break;
	}
}

/* Changes no bytes of its own, so the model has nothing to say about what it puts right first. */
static bool quiet(enum op op)
{
	return op == OP_HEAL || op == OP_SYNC || op == OP_CHMOD || op == OP_BYPASS ||
	       op_kinds[op] == KIND_D;
}

void ops_run(struct ops *o, enum op op)
{
	o->note[0] = '\0';
	o->died = false;
	if (!o->leave || !quiet(op)) {
		ops_make_room();
		ops_settle(o);
	}
	o->leave = false;
	if (op_kinds[op] == KIND_C)
		run_process_op(o, op);
	else if (op_kinds[op] == KIND_D)
		ops_daemon(o, op);
	else
		run_other_op(o, op);
}

bool ops_pair_known(enum op a, enum op b)
{
	static const enum op first[] = { OP_WRITE, OP_OVERLAP, OP_REWRITE, OP_BIG,  OP_TRUNCATE,
					 OP_CHMOD, OP_SYNC,    OP_BYPASS,  OP_HEAL, OP_RENAME };
	bool known = false;

	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		known = known || first[i] == a;
	if (!known)
		return false;
	if (b == OP_DESTAGE || b == OP_LANE || b == OP_TIME)
		return true;
	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		if (first[i] == b)
			return a != OP_RENAME || b != OP_RENAME; /* the names' numbers */
	return false;
}

struct half {
	struct ops *o;
	enum op op;
};

static void run_half(void *arg)
{
	struct half *h = arg;

	if (op_kinds[h->op] == KIND_D)
		ops_daemon(h->o, h->op);
	else
		run_process_op(h->o, h->op);
}

void ops_run_pair(struct ops *o, const struct ops_pair *pair)
{
	struct ops other = *o;
	struct half half[2] = { { o, pair->a }, { &other, pair->b } };
	bool daemon = op_kinds[pair->b] == KIND_D;

	ops_make_room();
	ops_settle(o);
	other.process = (o->process + 1) % WORLD_PROCESSES;
	if (pair->apart)
		other.file = (o->file + 1) % DISK_AT_ONCE;
	rng_seed(&other.rng, rng_next(&o->rng), 1);
	if (pair->b == OP_REWRITE)
		ops_make_image(&other);
	if (pair->a == OP_REWRITE)
		ops_make_image(o);
	(void)ops_process(&other);
	(void)ops_process(o);
	if (pair->kill == 1)
		o->kill_step = pair->kill_step;
	other.kill_step = pair->kill == 2 ? pair->kill_step : 0;
	if (!fibers_run((struct fiber_call[]){
		    { run_half, &half[0], o->process, pair->switch_at[0] },
		    { run_half, &half[1], daemon ? ACTOR_DAEMON : other.process,
		      pair->switch_at[1] } }))
		check_fail("two calls wait for each other", o->file);
	(void)snprintf(o->note + strlen(o->note), sizeof(o->note) - strlen(o->note), " | %.50s",
		       other.note);
	o->kill_step = 0;
	if (o->died)
		o->process = other.process;
	for (int i = 0; i < DISK_FILES; i++)
		if (model.files[i].loose)
			ops_unsettled(i);
	daemon_settle();
}
