/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * One file that is rewritten through the store path, and two views of it: what was acknowledged, and what the
 * last sync made durable. What recovery would make of the second is held against the first.
 */

#include <stdbool.h>

#include "env.h"
#include "pool/file.h"

#define RING	 (1u << 20)
#define FILE_MAX 65536u
#define BLOCK	 4096u
#define SECTOR	 512u

struct rewriting {
	struct env e;
	struct file_ref r;
	char name[64];
	uint8_t disk[FILE_MAX];	 /* as after a power cut */
	uint8_t model[FILE_MAX]; /* as acknowledged */
	uint64_t disk_size, model_size;
	/* one-time faults of the next pwritev */
	int fail;	  /* negative errno */
	size_t shorten;	  /* bytes to write instead of all */
	uint8_t *disturb; /* changed before the real call: the caller races with itself */
	bool written_back; /* the bytes reach the disk before their record is appended, and the power fails */
	struct ctl_cell step;
	bool step_begins; /* the daemon begins a step between the two */
};

extern struct rewriting t;

/* Around each test: a lane of 1 MiB, a file of FILE_MAX / 2 zeros, no faults. */
int set_up(void **state);
int tear_down(void **state);

/* What a sync does. */
void to_disk(void);
/* The disk with its live records is what was acknowledged; returns how many of those are LINES. */
unsigned check(void);

/* The store path's own write; what it returns. The model is not told. */
ssize_t put(const uint8_t *bytes, uint64_t offset, size_t n);
void acknowledged(const uint8_t *bytes, uint64_t offset, size_t n);
/* Both, whole. */
void write_block(uint8_t *bytes, uint64_t offset, size_t n);
/* A step of the daemon: mark, sync, trim. */
void destage(void);
void cut(uint64_t size);
/* As the version before images writes and truncates: its record, and what it leaves in the entry. */
void older_write(const uint8_t *bytes, uint64_t offset, size_t n);
void older_truncate(uint64_t size);
