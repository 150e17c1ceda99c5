/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The single steps of a run, with what each does to the model. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/crash/world.h"

/* name, weight in random runs, kind: C a process's call, D the daemon's work, M what changes the rest */
#define OP_LIST(X)          \
	X(WRITE, 8, C)      \
	X(OVERLAP, 8, C)    \
	X(REWRITE, 6, C)    \
	X(APPEND, 6, C)     \
	X(NEXT, 4, C)       \
	X(PLAIN, 4, C)      \
	X(BIG, 3, C)        \
	X(WRAP, 3, C)       \
	X(TRUNCATE, 5, C)   \
	X(UNLINK, 1, C)     \
	X(LINK, 1, C)       \
	X(RENAME, 2, C)     \
	X(REPLACE, 1, C)    \
	X(CHMOD, 2, C)      \
	X(SYNC, 3, C)       \
	X(BYPASS, 3, C)     \
	X(HEAL, 2, C)       \
	X(DESTAGE, 4, D)    \
	X(LANE, 3, D)       \
	X(TIME, 3, D)       \
	X(DAEMON, 2, D)     \
	X(FILL, 2, M)       \
	X(RECREATE, 2, M)   \
	X(OTHER_FILE, 5, M) \
	X(OTHER_PROC, 4, M) \
	X(REOPEN, 2, M)     \
	X(KILL, 5, M)       \
	X(BESIDE, 4, M)     \
	X(SHORT, 1, M)      \
	X(FOREIGN, 1, M)    \
	X(REFUSED, 1, M)    \
	X(BAD_SYNC, 2, M)   \
	X(WRITE_BACK, 4, M) \
	X(EVICT, 2, M)      \
	X(LAST_END, 1, M)

#define OP_ENUM(name, weight, kind) OP_##name,
enum op {
	OP_LIST(OP_ENUM) OPS
};

enum op_kind {
	KIND_C,
	KIND_D,
	KIND_M,
};

extern const char *const op_names[OPS];
extern const uint8_t op_weights[OPS];
extern const enum op_kind op_kinds[OPS];

#define OPS_BLOCK_AT 1024u
#define OPS_BLOCK    2048u /* bytes that are rewritten again and again */

struct ops {
	struct rng rng;
	unsigned process; /* who is at it */
	int file;
	uint64_t last_offset[DISK_FILES];
	bool kill_next, beside_next; /* the next call is killed; the daemon works inside it */
	uint64_t kill_step;	     /* the next call is killed before this step of its; 0: not */
	unsigned wrap_lines;	     /* WRAP: lines left at the ring's end; 0: by chance */
	unsigned wrap_record;	     /* and lines of the record that comes then; 0: by chance */
	bool rewrite;		     /* what is written is mostly there already, in one piece */
	uint8_t (*block)[OPS_BLOCK]; /* of each file, as it was written last */
	bool died;		     /* the last call was killed */
	bool leave;	/* what a dead owner left is put right inside the next quiet call */
	char note[128]; /* for the trace */
};

/* A new run. */
void ops_begin(struct ops *o, uint64_t seed);
void ops_run(struct ops *o, enum op op);

/* What an interrupted RULE F left is put right by whoever takes the lock next. Done before each op. */
void ops_settle(struct ops *o);

/*
 * Two calls at once; o's process makes a, the other one (or the daemon) b. Switched before step at[0] of a's
 * and at[1] of b's; kill: 1 + which of them is killed at kill_step of its own, 0: none. apart: on two files.
 */
struct ops_pair {
	enum op a, b;
	uint64_t switch_at[2];
	unsigned kill;
	uint64_t kill_step;
	bool apart;
};
void ops_run_pair(struct ops *o, const struct ops_pair *pair);
/* True if the two may be tried together: the model can say what must come of it. */
bool ops_pair_known(enum op a, enum op b);
