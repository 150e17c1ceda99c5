/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The single steps of a run, with what each does to the model. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/crash/world.h"

/* name, weight in random runs */
#define OP_LIST(X)       \
	X(WRITE, 8)      \
	X(OVERLAP, 8)    \
	X(APPEND, 6)     \
	X(NEXT, 4)       \
	X(PLAIN, 4)      \
	X(BIG, 3)        \
	X(FILL, 2)       \
	X(TRUNCATE, 5)   \
	X(UNLINK, 1)     \
	X(CHMOD, 2)      \
	X(SYNC, 3)       \
	X(BYPASS, 3)     \
	X(LANE, 3)       \
	X(DESTAGE, 4)    \
	X(HEAL, 2)       \
	X(OTHER_FILE, 5) \
	X(OTHER_PROC, 4) \
	X(REOPEN, 2)     \
	X(KILL, 5)       \
	X(BESIDE, 4)     \
	X(SHORT, 1)      \
	X(FOREIGN, 1)    \
	X(BAD_SYNC, 2)   \
	X(WRITE_BACK, 4) \
	X(EVICT, 2)      \
	X(TIME, 3)       \
	X(DAEMON, 2)     \
	X(LAST_END, 1)

#define OP_ENUM(name, weight) OP_##name,
enum op {
	OP_LIST(OP_ENUM) OPS
};

struct ops {
	struct rng rng;
	unsigned process; /* who is at it */
	int file;
	uint64_t last_offset[DISK_FILES];
	bool kill_next, beside_next; /* the next call is killed; the daemon works inside it */
	int unsettled;		     /* 1 + file whose RULE F was interrupted; 0: none */
	char note[128];		     /* for the trace */
};

void ops_run(struct ops *o, enum op op);
