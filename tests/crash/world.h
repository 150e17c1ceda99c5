/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * One lane, its control file, two processes of the domain and the daemon, all in this program. The
 * processes call the product's own functions; a step hook between their stores and system calls checks
 * what a cut would leave, kills the process, or lets the daemon work.
 */

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/file.h"
#include "tests/crash/disk.h"
#include "tests/crash/medium.h"
#include "tests/crash/model.h"

#define WORLD_PROCESSES	  2
#define WORLD_BYPASS_SIZE DISK_BIG /* largest payload: a few dozen records fill the ring */
#define WORLD_FILE_SIZE	  4096u	   /* at the start */
#define WORLD_FILE_ID	  7001u	   /* of file 0; the others follow */

/* How a process has a file open. */
enum open_kind {
	OPEN_DSYNC,
	OPEN_APPEND, /* and O_DSYNC */
	OPEN_PLAIN,
	OPEN_KINDS,
};

/* Who may be in a call: a process by its number, or the daemon. */
#define ACTOR_DAEMON WORLD_PROCESSES
#define WORLD_ACTORS (WORLD_PROCESSES + 1)

struct actor {
	jmp_buf killed;
	uint64_t steps;	  /* of its call */
	uint64_t kill_at; /* the one before which it dies; 0: it lives */
};

struct process {
	struct session s;
	struct caller who;
	struct file_ref ref[DISK_FILES][OPEN_KINDS];
	unsigned thread; /* of the medium */
	bool alive;
};

struct world {
	struct medium medium;
	struct control ctl; /* mapping, shared by all; fd: the first */
	struct ctl_head head;
	struct process process[WORLD_PROCESSES];
	struct process daemon;
	bool daemon_up;
	bool bad_sync; /* a failing sync was ordered: EIO is an answer */
	uint64_t incarnation;
	uint32_t next_slot;
	unsigned next_thread; /* a dead thread's stores are drained by nobody else */

	/* the hook */
	uint64_t steps; /* since the run began */
	struct actor actor[WORLD_ACTORS];
	unsigned now;	     /* actor whose call it is */
	uint64_t destage_at; /* step of the call under way; 0: not */
	bool inside;	     /* in the daemon's work that was let in */
	bool owed_publish;   /* it trimmed and waits for the lane lock */
	uint64_t owed_tail;
	bool checking;	     /* the steps of a recovery are no steps of the run */
	void (*check)(void); /* at each step */
};

extern struct world world;

/* Once per program. */
void world_setup(void);
/* A new run: empty lane, empty files, everybody up. */
void world_reset(void (*check)(void));

/* The hook itself is world_step, which atomic_step.h declares in front of everything. */
/* From here on the steps are this actor's; a new call of its. */
void world_act(unsigned actor);
void world_begin_call(void);
/* It dies at its next step. */
void world_kill(unsigned actor);

void process_start(struct process *p);
/* Its slot and descriptors go, as by SIGKILL. */
void process_die(struct process *p);
/* Closes and opens a file again in one process. */
void process_reopen(struct process *p, int file);

/* A file was made in the place of one that is gone: everybody opens it, the daemon registers it. */
void world_register(int file);

/* File number of a file id, or -1. */
int world_file_of(uint64_t id);
struct ctl_file *world_entry(int file);
bool world_live(int file);
uint64_t world_used(void); /* bytes of the lane */

void daemon_start(void);
void daemon_stop(void);
/* By SIGKILL, in the middle of its work. */
void daemon_die(void);
/* One destage pass. False when a sync failed or the lock was not to be had. */
bool daemon_destage(void);
void daemon_beat(void);
/* Files that nothing is live of and that left the lane since it was full come back. */
void daemon_leave_bypass(void);
/* What daemon_destage left undone since a process held the lane lock. */
void daemon_settle(void);
/* The last session ended: a new incarnation, all processes anew. The lane is empty. */
void daemon_new_incarnation(void);
