/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Two files with a page cache and a disk, both arrays, behind struct session_io: what a failed write-back
 * does to them is exact, and another caller comes in at each of our calls. As in tests/models/fence.pml; of
 * blocks that stay unwritten as ext4 has them.
 */

#include "env.h"
#include "pool/file.h"

#define PAGED_FILES 2u
#define PAGED_OPENS 2u /* descriptions of each */
#define PAGED_BYTES 8192u

struct paged_file {
	uint8_t page[PAGED_BYTES], disk[PAGED_BYTES];
	bool dirty;
	bool unwritten;		   /* zeros after a cut, whatever was written */
	bool stuck;		   /* and the page does not know: its next write-backs go nowhere */
	unsigned errors, reported; /* of write-back so far, and those that somebody was told of */
};

struct paged {
	struct env e;
	struct paged_file file[PAGED_FILES];
	unsigned heard[PAGED_FILES][PAGED_OPENS];
	unsigned syncs, drops; /* real ones, of all files */
	/* Once, and gone before it is called: after the bytes of a write are in the page cache; before a sync
	 * looks at anything; before a record is appended. */
	void (*after_write)(void);
	void (*before_sync)(void);
	void (*before_append)(void);
};

extern struct paged paged;

int paged_set_up(void **state); /* a lane of PAGED_RING bytes, both files registered */
int paged_tear_down(void **state);
#define PAGED_RING 65536u

/* A description of file i, opened now. */
struct file_ref paged_open(unsigned i, unsigned n);
/* Write-back fails: the pages are clean and were not written. new_blocks: and their blocks stay unwritten. */
void paged_fails(unsigned i, bool new_blocks);
/* Somebody without the library syncs and is told. */
void paged_told(unsigned i);
/* The kernel drops what it calls clean. */
void paged_forgets(unsigned i);
/* n bytes `byte` at an offset, as a session does it. */
ssize_t paged_write(struct file_ref *r, uint64_t offset, uint32_t n, uint8_t byte);
/* What a power cut leaves of that byte, without the lane. */
uint8_t paged_disk(unsigned i, uint64_t offset);
/* Appends until only `left` bytes of the ring are neither used nor kept for live files. */
void paged_fill(struct ctl_file *f, uint64_t left);
