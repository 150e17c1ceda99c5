/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * A pool on tmpfs, a real file system on a loop device, files and records as a database would have left
 * them. Needs root; mounts are made in a mount namespace of the test's own and vanish with it.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/recover/recover.h"
#include "pool/dir/register.h"

#define WORLD_FILES 4
#define WORLD_RING  (256u * 1024)

struct world_file {
	char path[256];
	struct pool_file entry;
	uint32_t index;
};

struct world {
	const char *fs;	 /* "ext4" or "xfs" */
	char base[128];	 /* everything below it */
	char mount[160]; /* where the file system is mounted */
	char image[160]; /* its image */
	char pool_dir[160], state_dir[160];
	struct pool *pool; /* open, or NULL */
	int index;	   /* of the domain */
	struct pool_domain domain;
	struct lane lane;
	int lane_fd; /* -1: not open */
	struct world_file files[WORLD_FILES];
	/* writer of records */
	uint64_t head;
	uint32_t chain;
	uint64_t time_ns; /* of the next records; 0: now */
};

/* Leaves with "SKIP: reason" and 77 unless loop mounts work here; enters an own mount namespace. */
void world_need_mounts(void);

/* A file system in an image below a tmpfs, mounted; pool and state directory beside it, not made yet. */
void world_begin(struct world *w, const char *fs);
void world_end(struct world *w);

/* A new pool (an older one is thrown away), open, with one domain and its lane. */
void world_pool(struct world *w);
void world_open(struct world *w);
void world_close(struct world *w);

/* Creates a file with `size` bytes of `fill`, synced, and registers it for the domain. */
void world_file(struct world *w, unsigned i, const char *name, uint8_t fill, size_t size);

/* A record as a client would have appended it; payload bytes are `fill`. */
void world_record(struct world *w, uint16_t type, uint64_t id, uint64_t offset, uint8_t fill,
		  uint32_t length);
void world_write(struct world *w, unsigned i, uint64_t offset, uint8_t fill, uint32_t length);
void world_beat(struct world *w, uint64_t time_ns, uint64_t head);

/* umount and mount; world_cut: everything unsynced is dropped first (the shutdown ioctl). */
void world_umount(struct world *w);
void world_mount(struct world *w);
void world_cut(struct world *w);

/* recover_domain with the pool open; the report in *ret_report if wanted. Waits for no clock. */
int world_recover(struct world *w, struct recover_options o, struct json_object **ret_report);

/* What the catalog says now. */
struct pool_domain world_domain(struct world *w);
unsigned world_entries(struct world *w);
bool world_lane_empty(struct world *w);

/* True if the file holds n bytes `fill` at offset. */
bool world_holds(const char *path, uint64_t offset, uint8_t fill, size_t n);
bool world_marked(const char *path);
bool world_immutable(const char *path);
void world_set_immutable(const char *path, bool on);
/* Row that the report gives for a file id, "" if none. */
const char *report_row(struct json_object *report, uint64_t id);
const char *report_text(struct json_object *report, const char *key);

/* How many descriptors this process has open. */
unsigned world_descriptors(void);

/* system() of a formatted command; fails the test unless it succeeds. */
void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* steps.c: a child that is killed before its n-th step (a copy into the pool, or a call on a file). */

/* Runs body in a child and kills it before step n (1...). Returns true if it got there, false if body ended
 * first. Fails the test when the child fails otherwise. */
bool die_at_step(unsigned n, void (*body)(void *), void *arg);
/* The same as a power cut: halves of copies and drains are steps, too, and what was not drained is mixed by
 * seed (torn.h). */
bool die_torn_at_step(unsigned n, uint64_t seed, void (*body)(void *), void *arg);
/* Inode of the directory that fsync was called on last. */
extern uint64_t steps_synced_directory;

/* Inside body: from here on steps count (after the pool was opened). */
void steps_begin(void);

/* The n-th call (1...) of that name from now on fails with this errno; 0: none. */
enum fault {
	FAULT_NONE,
	FAULT_PWRITE,
	FAULT_FDATASYNC,
	FAULT_FDATASYNC_ALL, /* each from now on */
	FAULT_OPEN_BY_HANDLE,
	FAULT_PREAD,
};
void fault_set(enum fault which, unsigned n, int error);
