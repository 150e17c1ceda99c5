/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Shared by the files of ops_*.c. */

#include "tests/crash/ops.h"

#define GROW_MAX 12000u /* files stay below, so that big writes fit */
#define SMALL	 600u	/* bytes of most writes */

/* Begins a call of o's process: it may be killed from here on, and the daemon may work inside. */
#define OPS_CALL(o) (ops_arm(o), setjmp(world.actor[world.now].killed) == 0)
void ops_arm(struct ops *o);
void ops_disarm(void);

/* o's process, started if it is dead; it is the actor now. */
struct process *ops_process(struct ops *o);
/* It was killed in its call. fenced: what it did is put right by the next holder of the file's lock. */
void ops_killed(struct ops *o, struct process *p, bool fenced);
/* A call returned n. */
void ops_judge(struct ops *o, long n);
/* The file needs ops_settle. */
void ops_unsettled(int file);
/* Room first, as the destager makes it in time: a run has one thread and must not wait. */
void ops_make_room(void);

/* ops_write.c */
void ops_write(struct ops *o, enum op op);
void ops_fill(struct ops *o);
void ops_make_image(struct ops *o);
/* ops_call.c, ops_name.c */
void ops_call(struct ops *o, enum op op);
void ops_name(struct ops *o, enum op op);
void ops_recreate(struct ops *o);
/* ops_daemon.c */
void ops_daemon(struct ops *o, enum op op);
void ops_last_end(void);
