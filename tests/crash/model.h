/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What the files must hold after a cut. Acknowledged bytes are certain. Uncertain, each byte the one or
 * the other: the call under way; calls whose process was killed, or which returned an error; writes in
 * bypass that nobody asked to sync yet.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tests/crash/disk.h"

#define MODEL_ALTS  31 /* bits of a byte's mask */
#define MODEL_SIZES 8
#define MODEL_CALLS 3 /* two processes and the daemon: at most two are under way at once */

enum alt_kind {
	ALT_KILLED,   /* want is old, alt is new */
	ALT_UNSYNCED, /* want is new, alt is old; certain at the next good fsync */
	ALT_LOST,     /* the same, never certain: a sync failed and the program was told */
};

struct model_alt {
	enum alt_kind kind;
	int file;
	uint64_t offset, length;
	uint8_t data[DISK_BYTES];
};

struct model_file {
	uint8_t want[DISK_BYTES]; /* zero from `size` on */
	uint64_t size;
	uint32_t mask[DISK_BYTES]; /* bit i: alts[i] is as good for this byte */
	struct model_sizes {
		uint64_t low, high; /* both inclusive */
	} sizes[MODEL_SIZES];	    /* as good as size */
	unsigned nsizes;
	bool gone;     /* unlinked, or perhaps: need not exist */
	bool loose;    /* two calls on it, one killed: nothing is said until that was put right */
	unsigned name; /* certain */
	unsigned other_low, other_high; /* names between are as good; 0: none */
};

enum call_state {
	CALL_NONE,
	CALL_RUNS,
	CALL_DONE,   /* beside one that runs still: which of them came last is not known */
	CALL_KILLED, /* the same */
};

/* The call under way: what it would change. */
struct model_call {
	int file; /* -1: none, or one that changes no bytes */
	enum call_state state;
	bool beside; /* another one on the same file was under way meanwhile */
	uint64_t offset, length;
	uint8_t data[DISK_BYTES];
	uint64_t new_size; /* if it is done */
	bool unlinks;
	int renames; /* -1, or a file that gets a new name: the disk's next one */
	unsigned new_name;
	uint64_t head; /* of the lane when it began: a record from here on is this call's */
};

struct model {
	struct model_file files[DISK_FILES];
	struct model_alt alts[MODEL_ALTS];
	unsigned nalts;
	struct model_call calls[MODEL_CALLS];
	unsigned who; /* whose call the functions below mean */
};

extern struct model model;

void model_clear(uint64_t size);

/* The call under way is a write or truncate of `file`; model_begin_none: one without effect. */
void model_begin_write(int file, uint64_t offset, const void *data, uint64_t n, uint64_t head);
void model_begin_truncate(int file, uint64_t size, uint64_t head);
void model_begin_unlink(int file, uint64_t head);
/* over: the file that loses its name to it, or -1. */
void model_begin_rename(int file, int over, uint64_t head);
void model_begin_none(void);

/* A name that the file may have instead of its certain one. */
void model_other_name(int file, unsigned name);
/* A new file in the place of one that is gone. */
void model_create(int file, uint64_t size);

/* It returned: n bytes of the write, or all of the others, are certain. */
void model_done(uint64_t n);
/* A write in bypass returned and was not asked to be synced. */
void model_done_unsynced(uint64_t n);
/* It failed or its process was killed: perhaps. False when there is no room to remember it. */
bool model_perhaps(void);
/* A real fsync of the file succeeded. */
void model_synced(int file);
/* An error was reported: no later fsync brings the un-synced writes back. */
void model_told(int file);
/* True if these bytes are what a killed call was about to write. */
bool model_was_killed(int file, uint64_t offset, uint64_t n, const void *data);
/* What an interrupted call did was put right: the page cache tells how long the file is, and, where
 * `bytes` is set, what it holds. */
void model_settle(int file, bool bytes);

/* The only call under way, or NULL: none, or two. */
const struct model_call *model_only_call(void);

/* NULL if the file may look like this after recovery, else static text. */
const char *model_check(int file, const struct disk_cut *found);
/* NULL if readers may see this now. */
const char *model_check_cache(int file);
