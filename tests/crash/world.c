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
#include "tests/crash/clock.h"

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
				       .media = CTL_MEDIA_EMULATED };
	int fd = memfd_create("control", MFD_CLOEXEC);

	if (fd < 0 || control_create(&world.ctl, fd, &head, 0, 0) < 0)
		die("control file");
	pool_ops = &medium_ops;
}

static void reset_control(uint64_t position)
{
	struct ctl_hot *hot = world.ctl.hot;

	memset(hot, 0, sizeof(*hot));
	memset(world.ctl.slots, 0, SLOTS_USED * sizeof(*world.ctl.slots));
	memset(world.ctl.files, 0, DISK_FILES * sizeof(*world.ctl.files));
	hot->tail = position;
	hot->cell[0].head = hot->cell[1].head = position;
	world.ctl.head->incarnation = world.incarnation;
	world.ctl.head->state = CTL_OPEN;
	world.head = *world.ctl.head;
	for (int i = 0; i < DISK_FILES; i++) {
		struct ctl_file *f = &world.ctl.files[i];

		f->id = WORLD_FILE_ID + (uint64_t)i;
		f->state = FILE_LANE;
		f->ino = disk_ino(i);
		f->dev_major = DISK_MAJOR;
		f->dev_minor = DISK_MINOR;
	}
	world.next_slot = 1;
}

void world_step(void)
{
	world.steps++;
	if (world.check)
		world.check();
	if (world.inside)
		return;
	if (world.destage_at && world.steps == world.destage_at) {
		unsigned thread = world.medium.thread;

		world.inside = true;
		(void)daemon_destage();
		world.medium.thread = thread;
		world.inside = false;
	}
	if (world.kill_at && world.steps == world.kill_at)
		longjmp(world.killed, 1);
}

static void open_file(struct process *p, int file, enum open_kind kind, int flags)
{
	struct file_ref *r = &p->ref[file][kind];

	r->f = world_entry(file);
	r->id = WORLD_FILE_ID + (uint64_t)file;
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

void process_start(struct process *p)
{
	open_session(p, world.next_slot++ % (SLOTS_USED - 1) + 1, false);
	p->thread = 1 + world.next_thread++ % 250;
	p->alive = true;
	world.medium.thread = p->thread;
	(void)space_recount(&p->s, &p->who);
	for (int i = 0; i < DISK_FILES; i++) {
		open_file(p, i, OPEN_DSYNC, O_DSYNC);
		open_file(p, i, OPEN_APPEND, O_DSYNC | O_APPEND);
		open_file(p, i, OPEN_PLAIN, 0);
	}
}

static void close_all(struct process *p)
{
	for (int i = 0; i < DISK_FILES; i++)
		for (int k = 0; k < OPEN_KINDS; k++)
			if (p->ref[i][k].f)
				disk_close(p->ref[i][k].fd);
	memset(p->ref, 0, sizeof(p->ref));
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

void daemon_start(void)
{
	struct process *d = &world.daemon;

	open_session(d, CTL_SLOT_DAEMON, true);
	for (int i = 0; i < DISK_FILES; i++)
		open_file(d, i, OPEN_DSYNC, 0);
	atomic_add_seq(&world.ctl.hot->daemon_seq, 1);
	world.daemon_up = true;
}

void daemon_stop(void)
{
	close_all(&world.daemon);
	world.daemon_up = false;
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
	world.kill_at = world.destage_at = world.steps = 0;
	world.inside = world.owed_publish = world.bad_sync = false;
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

	world.medium.thread = world.daemon.thread;
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
	uint64_t file = id - WORLD_FILE_ID;

	return file < DISK_FILES ? (int)file : -1;
}

struct ctl_file *world_entry(int file)
{
	return &world.ctl.files[file];
}

bool world_live(int file)
{
	return space_file_live(&world.daemon.s, world_entry(file));
}

uint64_t world_used(void)
{
	return control_head(&world.ctl).head - world.ctl.hot->tail;
}
