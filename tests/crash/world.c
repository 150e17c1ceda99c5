/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "pool/space.h"
#include "pool/walk.h"
#include "tests/crash/check.h"
#include "tests/crash/clock.h"
#include "tests/crash/fiber.h"

#define SLOTS_USED 512u

struct world world;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* A description of its own: OFD locks belong to it, so each process's slot is held apart. */
static int reopen_control(void)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", world.ctl.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static void lock_slot(int fd, uint32_t slot)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = CTL_LOCK_SLOT(slot), .l_len = 1
	};

	if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
		die("slot");
}

void world_setup(void)
{
	const struct ctl_head head = { .ring_size = MEDIUM_RING,
				       .bypass_size = WORLD_BYPASS_SIZE,
				       .reconnect_timeout_ns = 0, /* the first look finds it dead */
				       .media = CTL_MEDIA_EMULATED,
				       .images = 1 };
	int fd = memfd_create("control", MFD_CLOEXEC);

	if (fd < 0 || control_create(&world.ctl, fd, &head, 0, 0) < 0)
		die("control file");
	pool_ops = &medium_ops;
}

static uint64_t id_of(int file)
{
	return WORLD_FILE_ID + (uint64_t)file + (uint64_t)DISK_FILES * disk.files[file].generation;
}

static void fill_entry(int file)
{
	struct ctl_file *f = &world.ctl.files[file];

	memset(f, 0, sizeof(*f));
	f->state = FILE_LANE;
	f->ino = disk_ino(file);
	f->dev_major = DISK_MAJOR;
	f->dev_minor = DISK_MINOR;
	f->id = id_of(file);
}

static void reset_control(uint64_t position)
{
	struct ctl_hot *hot = world.ctl.hot;

	memset(hot, 0, sizeof(*hot));
	memset(world.ctl.slots, 0, SLOTS_USED * sizeof(*world.ctl.slots));
	memset(world.ctl.files, 0, DISK_FILES * sizeof(*world.ctl.files));
	memset(world.ctl.images, 0, DISK_FILES * sizeof(*world.ctl.images));
	hot->tail = position;
	hot->files_end = DISK_FILES;
	hot->cell[0].head = hot->cell[1].head = position;
	world.ctl.head->incarnation = world.incarnation;
	world.ctl.head->state = CTL_OPEN;
	world.head = *world.ctl.head;
	for (int i = 0; i < DISK_FILES; i++)
		if (disk.files[i].links)
			fill_entry(i);
	world.next_slot = 1;
}

void world_act(unsigned actor)
{
	world.now = actor;
	model.who = actor;
	world.medium.thread =
		actor == ACTOR_DAEMON ? world.daemon.thread : world.process[actor].thread;
}

void world_begin_call(void)
{
	world.actor[world.now].steps = 0;
}

void world_kill(unsigned actor)
{
	world.actor[actor].kill_at = world.actor[actor].steps + 1;
}

static void destage_beside(void)
{
	unsigned who = world.now;

	world.inside = true;
	world_act(ACTOR_DAEMON);
	(void)daemon_destage();
	world_act(who);
	world.inside = false;
}

void world_step(void)
{
	struct actor *a = &world.actor[world.now];

	if (world.checking)
		return;
	world.steps++;
	a->steps++;
	if (world.check) {
		world.checking = true;
		world.check();
		world.checking = false;
	}
	if (world.inside)
		return;
	if (world.destage_at && world.steps == world.destage_at)
		destage_beside();
	fiber_step(a->steps);
	if (a->kill_at && a->steps >= a->kill_at) {
		a->kill_at = 0;
		longjmp(a->killed, 1);
	}
}

static void open_file(struct process *p, int file, enum open_kind kind, int flags)
{
	struct file_ref *r = &p->ref[file][kind];

	r->f = world_entry(file);
	r->id = id_of(file);
	r->fd = disk_open(file, flags & O_APPEND);
	r->open_head = control_head(&world.ctl).head;
	r->asked_flags = flags;
	if (r->fd < 0)
		die("no simulated descriptor left");
}

static void open_session(struct process *p, uint32_t slot, bool is_daemon)
{
	p->s.ctl = world.ctl;
	p->s.ctl.fd = reopen_control();
	lock_slot(p->s.ctl.fd, slot);
	p->s.io = &disk_io;
	p->s.head_copy = world.head;
	p->s.is_daemon = is_daemon;
	p->s.me.slot = slot;
	p->s.me.generation = (uint32_t)++world.ctl.slots[slot].generation;
	p->who = (struct caller){ .tid = 1 + slot };
	if (lane_attach(&p->s.lane, world.medium.work, MEDIUM_BYTES) < 0)
		die("lane");
}

static void open_kinds(struct process *p, int file)
{
	if (world_entry(file)->id == 0)
		return;
	open_file(p, file, OPEN_DSYNC, O_DSYNC);
	open_file(p, file, OPEN_APPEND, O_DSYNC | O_APPEND);
	open_file(p, file, OPEN_PLAIN, 0);
}

void process_start(struct process *p)
{
	open_session(p, world.next_slot++ % (SLOTS_USED - 1) + 1, false);
	p->thread = 1 + world.next_thread++ % 250;
	p->alive = true;
	world_act((unsigned)(p - world.process));
	(void)space_recount(&p->s, &p->who);
	for (int i = 0; i < DISK_FILES; i++)
		open_kinds(p, i);
}

static void close_kinds(struct process *p, int file)
{
	for (int k = 0; k < OPEN_KINDS; k++)
		if (p->ref[file][k].f)
			disk_close(p->ref[file][k].fd);
	memset(p->ref[file], 0, sizeof(p->ref[file]));
}

static void close_all(struct process *p)
{
	for (int i = 0; i < DISK_FILES; i++)
		close_kinds(p, i);
	(void)close(p->s.ctl.fd);
	p->s.ctl.fd = -1;
}

void process_die(struct process *p)
{
	close_all(p);
	p->alive = false;
}

void process_reopen(struct process *p, int file)
{
	for (int k = 0; k < OPEN_KINDS; k++) {
		int flags = p->ref[file][k].asked_flags;

		disk_close(p->ref[file][k].fd);
		open_file(p, file, (enum open_kind)k, flags);
	}
}

/* The tail as an earlier daemon left it, perhaps in the middle of writing it. */
static uint64_t find_tail(const struct lane *l, uint64_t head)
{
	struct lane_tail_found t[2];
	struct record_header h;
	struct walk w;
	int n = lane_tail_read(l, t);

	for (int i = 0; i < n; i++) {
		int r;

		walk_begin(&w, l, t[i].tail, t[i].chain, head);
		while ((r = walk_next(&w, &h)) == WALK_RECORD)
			;
		if (r == WALK_END)
			return t[i].tail;
	}
	check_fail("a daemon finds no tail from which it can go on", -1);
	return head;
}

void daemon_start(void)
{
	struct process *d = &world.daemon;
	unsigned who = world.now;

	open_session(d, CTL_SLOT_DAEMON, true);
	d->thread = 1 + world.next_thread++ % 250;
	world_act(ACTOR_DAEMON);
	for (int i = 0; i < DISK_FILES; i++)
		if (world_entry(i)->id)
			open_file(d, i, OPEN_DSYNC, 0);
	world.daemon_up = true;
	atomic_add_seq(&world.ctl.hot->daemon_seq, 1);
	/* An earlier one may have died between persisting and publishing its tail. */
	world.owed_tail = find_tail(&d->s.lane, control_head(&world.ctl).head);
	world.owed_publish = true;
	daemon_settle();
	world_act(who);
}

void daemon_stop(void)
{
	close_all(&world.daemon);
	world.daemon_up = false;
}

void daemon_die(void)
{
	world.owed_publish = false;
	daemon_stop();
}

void world_register(int file)
{
	for (int i = 0; i < WORLD_PROCESSES; i++)
		if (world.process[i].alive)
			close_kinds(&world.process[i], file);
	close_kinds(&world.daemon, file);
	fill_entry(file);
	for (int i = 0; i < WORLD_PROCESSES; i++)
		if (world.process[i].alive)
			open_kinds(&world.process[i], file);
	open_file(&world.daemon, file, OPEN_DSYNC, 0);
}

void world_reset(void (*check)(void))
{
	struct lane lane;

	for (int i = 0; i < WORLD_PROCESSES; i++)
		if (world.process[i].alive)
			(void)close(world.process[i].s.ctl.fd);
	if (world.daemon_up)
		(void)close(world.daemon.s.ctl.fd);
	memset(world.process, 0, sizeof(world.process));
	memset(&world.daemon, 0, sizeof(world.daemon));

	clock_reset();
	world.check = NULL;
	world.destage_at = world.steps = 0;
	memset(world.actor, 0, sizeof(world.actor));
	world.inside = world.owed_publish = world.bad_sync = world.checking = false;
	world.incarnation = UINT64_C(0x1111111111111111);
	medium_clear(&world.medium);
	medium_use(&world.medium, world_step);
	disk_clear(world_step, WORLD_FILE_SIZE);
	model_clear(WORLD_FILE_SIZE);
	if (lane_format(&lane, world.medium.work, MEDIUM_BYTES, 1, MEDIUM_RING, world.incarnation) <
	    0)
		die("format");
	reset_control(0);
	world.next_thread = 0;
	for (int i = 0; i < WORLD_PROCESSES; i++)
		process_start(&world.process[i]);
	daemon_start();
	daemon_beat();
	world.steps = 0;
	world.check = check;
}

void daemon_new_incarnation(void)
{
	struct lane lane = world.daemon.s.lane;
	uint64_t position = control_head(&world.ctl).head;

	world_act(ACTOR_DAEMON);
	world.incarnation = world.incarnation * UINT64_C(0x5851f42d4c957f2d) + 1;
	lane_set_incarnation(&lane, world.incarnation);
	for (int i = 0; i < WORLD_PROCESSES; i++)
		if (world.process[i].alive)
			process_die(&world.process[i]);
	daemon_stop();
	reset_control(position);
	for (int i = 0; i < WORLD_PROCESSES; i++)
		process_start(&world.process[i]);
	daemon_start();
}

int world_file_of(uint64_t id)
{
	int file = (int)((id - WORLD_FILE_ID) % DISK_FILES);

	return id >= WORLD_FILE_ID && id_of(file) == id ? file : -1;
}

struct ctl_file *world_entry(int file)
{
	return &world.ctl.files[file];
}

bool world_live(int file)
{
	return world_entry(file)->id != 0 && space_file_live(&world.daemon.s, world_entry(file));
}

uint64_t world_used(void)
{
	return control_head(&world.ctl).head - world.ctl.hot->tail;
}
