/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pmemlogd-crash-logs [--states N] [--seed N [--trace]] [--enough N]
 *
 * Histories of one native log: two processes append, stage and move, the daemon puts records on disk and trims; each
 * is killed before any of its steps, or stops there for another. At every step, every state that a power cut can leave
 * is recovered, and recovered again from where a second cut left that: no gap, no double, nothing out of order, and
 * nothing missing that was acknowledged or that a follower has seen.
 *
 * The pool code and recovery's plan are the product's; the segments are a list. Last line: `states N failures N`.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "pool/append.h"
#include "pool/lock.h"
#include "pool/log.h"
#include "pool/space.h"
#include "pool/walk.h"
#include "tests/crash/clock.h"
#include "tests/crash/fiber.h"
#include "tests/crash/logs.h"
#include "tests/crash/world.h"

#define OTHER	    7002u /* a file whose records lie between */
#define INCARNATION UINT64_C(0x1111111111111111)
#define SLOTS_USED  512u
#define OPS_MAX	    24u
#define KILL_STEPS  160u
#define PAYLOAD	    3000u

struct someone {
	struct session s;
	struct caller who;
	unsigned thread; /* of the medium */
	uint64_t steps, kill_at;
	jmp_buf killed;
	uint64_t staged; /* LSN of what it staged last, and does not wait for yet; +1 */
};

struct medium logs_medium;
static struct control ctl;
static struct ctl_head head;
static uint8_t *logs; /* what lies behind the control file */
struct log_ref logs_ref;
static struct someone all[WORLD_ACTORS];
static unsigned now, threads, next_slot;
static bool checking, trace;

static struct rng chance;

/* ---- the hook, and who is there ------------------------------------------------------------------ */

void world_act(unsigned actor)
{
	now = actor;
	logs_medium.thread = all[actor].thread;
}

void world_kill(unsigned actor)
{
	all[actor].kill_at = all[actor].steps + 1;
}

void world_step(void)
{
	struct someone *a = &all[now];

	if (checking)
		return;
	logs_stats.steps++;
	a->steps++;
	checking = true;
	logs_look();
	checking = false;
	fiber_step(a->steps);
	if (a->kill_at && a->steps >= a->kill_at) {
		a->kill_at = 0;
		longjmp(a->killed, 1);
	}
}

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* A description of its own: OFD locks belong to it, so each one's slot is held apart. */
static void begin(unsigned actor)
{
	uint32_t slot = actor == ACTOR_DAEMON ? CTL_SLOT_DAEMON : next_slot++;
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = CTL_LOCK_SLOT(slot), .l_len = 1
	};
	struct someone *a = &all[actor];
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", ctl.fd);
	memset(a, 0, sizeof(*a));
	a->s.ctl = ctl;
	a->s.ctl.fd = open(path, O_RDWR | O_CLOEXEC);
	if (a->s.ctl.fd < 0 || fcntl(a->s.ctl.fd, F_OFD_SETLK, &lock) < 0)
		die("slot");
	a->s.head_copy = head;
	a->s.is_daemon = actor == ACTOR_DAEMON;
	a->s.me.slot = slot;
	a->s.me.generation = (uint32_t)++ctl.slots[slot].generation;
	a->who.tid = 1 + slot;
	a->thread = 1 + threads++ % 250;
	if (lane_attach(&a->s.lane, logs_medium.work, MEDIUM_BYTES) < 0)
		die("lane");
}

static void end(unsigned actor)
{
	(void)close(all[actor].s.ctl.fd);
}

/* ---- the daemon ---------------------------------------------------------------------------------- */

/* The tail, of two copies that may differ, from which the walk reaches the head; and its chain. */
static uint64_t find_tail(const struct lane *l, uint64_t to, uint32_t *ret_chain)
{
	struct lane_tail_found t[2];
	int n = lane_tail_read(l, t);

	for (int i = 0; i < n; i++) {
		struct record_header h;
		struct walk w;
		int r;

		walk_begin(&w, l, t[i].tail, t[i].chain, to);
		while ((r = walk_next(&w, &h)) == WALK_RECORD)
			;
		*ret_chain = t[i].chain;
		if (r == WALK_END)
			return t[i].tail;
	}
	logs_fail("a daemon finds no tail from which it can go on", "no cut");
	return to;
}

static void destage(void)
{
	static struct stream s;
	struct someone *d = &all[ACTOR_DAEMON];
	struct record_header h;
	struct ctl_cell to;
	const char *why = NULL;
	uint64_t tail;
	uint32_t chain;
	struct walk w;

	if (space_mark(&d->s, &d->who, &to) < 0 || log_settle(&d->s, &d->who, &logs_ref) < 0)
		return;
	s = logs_on_disk;
	tail = find_tail(&d->s.lane, to.head, &chain);
	walk_begin(&w, &d->s.lane, tail, chain, to.head);
	while (!why && walk_next(&w, &h) == WALK_RECORD)
		if (h.type == RECORD_WRITE && h.file_id == LOGS_ID)
			why = logs_put(&s, h.offset,
				       lane_at(&d->s.lane, h.position) + RECORD_HEADER_BYTES,
				       h.length);
	if (why)
		logs_fail(why, "destage");
	world_step();
	/* In the segments, synced, and in the catalog. */
	logs_on_disk = s;
	world_step();
	lane_tail_write(&d->s.lane, to.head, to.chain);
	(void)space_publish_tail(&d->s, &d->who, to.head);
}

/* An earlier one may have died between persisting and publishing its tail. */
static void publish_again(void)
{
	struct someone *d = &all[ACTOR_DAEMON];
	uint32_t chain;

	world_act(ACTOR_DAEMON);
	(void)space_publish_tail(&d->s, &d->who,
				 find_tail(&d->s.lane, control_head(&ctl).head, &chain));
}

/* ---- processes ----------------------------------------------------------------------------------- */

enum op {
	OP_APPEND,
	OP_STAGE,
	OP_MOVE,
	OP_OTHER,
	OP_SETTLE,
	OP_DESTAGE,
	OPS
};
static const char *const op_names[OPS] = {
	"append", "stage", "move", "other", "settle", "destage"
};

struct call {
	enum op op;
	unsigned actor;
	uint32_t length;
};

static uint32_t new_record(uint32_t length)
{
	logs_known[logs_n] = (struct known){ .length = length, .above = logs_given };
	return logs_n++;
}

static void told(uint32_t number, uint64_t lsn, bool acked)
{
	logs_known[number].lsn = lsn;
	logs_known[number].returned = true;
	logs_known[number].acked = acked;
	logs_given = max_of(logs_given, lsn + logs_known[number].length);
}

static void check_result(int r, const char *what)
{
	if (r < 0)
		logs_fail(what, "no cut");
}

static void append(struct someone *a, uint32_t length, bool stage)
{
	uint8_t bytes[PAYLOAD];
	uint32_t number = new_record(length);
	struct iovec iov[2] = { { bytes, 5 }, { bytes + 5, length - 5 } };
	uint64_t lsn = 0;
	int r;

	memcpy(bytes, &number, sizeof(number));
	memcpy(bytes + 4, &length, sizeof(length));
	for (uint32_t i = 8; i < length; i++)
		bytes[i] = logs_byte(number, i);
	r = (stage ? log_stage : log_append)(&a->s, &a->who, &logs_ref, iov, 2, length, &lsn);
	check_result(r, "an append failed");
	if (r == LOG_OK)
		told(number, lsn, !stage);
	if (r == LOG_OK && stage)
		a->staged = lsn + 1;
}

static void move(struct someone *a)
{
	uint64_t lsn = a->staged - 1;
	int r;

	if (a->staged == 0)
		return;
	r = log_move(&a->s, &a->who, &logs_ref, lsn);
	check_result(r, "a wait failed");
	if (r != LOG_OK)
		return;
	a->staged = 0;
	/* It and all before it. */
	for (uint32_t i = 0; i < logs_n; i++)
		logs_known[i].acked =
			logs_known[i].acked || (logs_known[i].returned && logs_known[i].lsn <= lsn);
}

/* A record of a file between those of the log. One process alone writes it. */
static void other(struct someone *a, uint32_t length)
{
	static uint8_t bytes[PAYLOAD];
	const struct iovec iov = { bytes, length };
	const struct append_request q = { .type = RECORD_WRITE,
					  .flags = RECORD_INLINE,
					  .iov = &iov,
					  .iovcnt = 1,
					  .length = length };

	check_result(append_record(&a->s, &a->who, &ctl.files[1], 0, &q, NULL), "a write failed");
}

static void run_call(void *arg)
{
	const struct call *c = arg;
	struct someone *a = &all[c->actor];

	if (setjmp(a->killed) != 0) {
		end(c->actor);
		begin(c->actor);
		world_act(c->actor);
		return;
	}
	if (c->op == OP_DESTAGE)
		destage();
	else if (c->op == OP_APPEND || c->op == OP_STAGE)
		append(a, c->length, c->op == OP_STAGE);
	else if (c->op == OP_MOVE)
		move(a);
	else if (c->op == OP_OTHER)
		other(a, c->length);
	else
		check_result(log_settle(&a->s, &a->who, &logs_ref), "settling failed");
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static struct call any_call(unsigned actor)
{
	static const enum op often[] = { OP_APPEND, OP_APPEND, OP_STAGE,  OP_STAGE, OP_STAGE,
					 OP_MOVE,   OP_OTHER,  OP_SETTLE, OP_APPEND };
	struct call c = { often[rng_below(&chance, ARRAY_SIZE(often))], actor, 0 };

	if (c.op == OP_OTHER && actor != 0)
		c.op = OP_STAGE;
	c.length = 8 + (rng_one_in(&chance, 5) ? rng_below(&chance, PAYLOAD - 8)
					       : rng_below(&chance, 200));
	return c;
}

static void arm(unsigned actor, bool kill)
{
	all[actor].steps = 0;
	all[actor].kill_at = kill ? 1 + rng_below(&chance, KILL_STEPS) : 0;
}

static void one(struct call c, bool kill)
{
	world_act(c.actor);
	arm(c.actor, kill);
	if (trace)
		printf("%" PRIu64 ": %u %s %u%s\n", logs_stats.steps, c.actor, op_names[c.op],
		       c.length, kill ? ", killed" : "");
	run_call(&c);
	all[c.actor].kill_at = 0;
}

/* Two at once: any two processes, or one and the daemon. */
static void two(struct call a, struct call b, unsigned kill)
{
	struct fiber_call calls[2] = {
		{ run_call, &a, a.actor, 1 + rng_below(&chance, KILL_STEPS) },
		{ run_call, &b, b.actor, 1 + rng_below(&chance, KILL_STEPS) },
	};

	if (trace)
		printf("%" PRIu64 ": %u %s | %u %s, killed %u\n", logs_stats.steps, a.actor,
		       op_names[a.op], b.actor, op_names[b.op], kill);
	arm(a.actor, kill == 1);
	arm(b.actor, kill == 2);
	if (!fibers_run(calls))
		logs_fail("two calls wait for each other", "no cut");
	all[a.actor].kill_at = all[b.actor].kill_at = 0;
}

static void reset(void)
{
	struct ctl_hot *hot = ctl.hot;
	struct lane lane;

	for (unsigned i = 0; i < WORLD_ACTORS; i++)
		if (all[i].s.ctl.fd > 0)
			end(i);
	checking = true;
	clock_reset();
	medium_clear(&logs_medium);
	if (lane_format(&lane, logs_medium.work, MEDIUM_BYTES, 1, MEDIUM_RING, INCARNATION) < 0)
		die("format");
	memset(hot, 0, sizeof(*hot));
	memset(ctl.slots, 0, SLOTS_USED * sizeof(*ctl.slots));
	memset(ctl.files, 0, 2 * sizeof(*ctl.files));
	memset(logs, 0, CTL_LOG_BYTES);
	hot->files_end = 2;
	ctl.head->incarnation = INCARNATION;
	ctl.head->state = CTL_OPEN;
	head = *ctl.head;
	ctl.files[0].id = logs_ref.id = logs_ref.l->id = LOGS_ID;
	ctl.files[0].state = ctl.files[1].state = FILE_LANE;
	ctl.files[1].id = OTHER;
	next_slot = 1;
	threads = logs_n = 0;
	logs_given = logs_stats.steps = 0;
	memset(&logs_on_disk, 0, sizeof(logs_on_disk));
	for (unsigned i = 0; i < WORLD_ACTORS; i++)
		begin(i);
	checking = false;
}

static void run(uint64_t number)
{
	const struct call step = { OP_DESTAGE, ACTOR_DAEMON, 0 };
	uint32_t ops;

	logs_stats.seed = number;
	rng_seed(&chance, number, 1);
	rng_seed(&logs_looks, number, 2);
	reset();
	ops = 4 + rng_below(&chance, OPS_MAX - 4);
	for (uint32_t i = 0; i < ops && logs_n < LOGS_RECORDS - 8; i++) {
		unsigned actor = rng_below(&chance, WORLD_PROCESSES);
		bool kill = rng_one_in(&chance, 4);

		if (control_head(&ctl).head - ctl.hot->tail > MEDIUM_RING / 2 ||
		    rng_one_in(&chance, 6))
			one(step, rng_one_in(&chance, 3));
		publish_again();
		if (rng_one_in(&chance, 3))
			two(any_call(actor), rng_one_in(&chance, 3) ? step : any_call(1 - actor),
			    kill ? 1 + rng_below(&chance, 2) : 0);
		else
			one(any_call(actor), kill);
	}
	/* Whoever is left puts right what the dead have left. */
	one((struct call){ OP_APPEND, 1, 100 }, false);
	one(step, false);
	if (logs_on_disk.end != logs_ref.l->lsn || logs_given > logs_on_disk.end ||
	    logs_judge(&logs_on_disk))
		logs_fail("at the end the disk does not have what was acknowledged", "no cut");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "states", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "enough", required_argument, NULL, 'e' },
		{ "trace", no_argument, NULL, 'v' },
		{ 0 },
	};
	const struct ctl_head first = { .ring_size = MEDIUM_RING,
					.bypass_size = PAYLOAD,
					.reconnect_timeout_ns = 0,
					.media = CTL_MEDIA_EMULATED };
	uint64_t wanted = 100000, enough = 50, only = UINT64_MAX;
	int fd = memfd_create("control", MFD_CLOEXEC), c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return 64;
		if (c == 'v')
			trace = true;
		else
			*(c == 'n'   ? &wanted
			  : c == 's' ? &only
				     : &enough) = strtoull(optarg, NULL, 0);
	}
	if (fd < 0 || control_create(&ctl, fd, &first, 0, 0) < 0)
		die("control file");
	logs = mmap(NULL, CTL_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (logs == MAP_FAILED)
		die("memory");
	log_ref_at(&logs_ref, logs, 0);
	logs_ref.f = &ctl.files[0];
	pool_ops = &medium_ops;
	medium_use(&logs_medium, world_step);
	if (only != UINT64_MAX)
		run(only);
	for (uint64_t i = 0;
	     only == UINT64_MAX && logs_stats.states < wanted && logs_stats.failures < enough; i++)
		run(i);
	printf("records replayed %" PRIu64 ", runs to seed %" PRIu64 "\n", logs_stats.replayed,
	       logs_stats.seed);
	printf("states %" PRIu64 " failures %" PRIu64 "\n", logs_stats.states, logs_stats.failures);
	return logs_stats.failures != 0;
}
