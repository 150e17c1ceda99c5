/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The pool directory: creation, opening, its lanes. Daemon and pmemlogctl only (libpmem2). */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/pool.h"
#include "pool/lane.h"

struct pool {
	char *path; /* absolute */
	char *state_dir;
	int dir_fd, lock_fd; /* lock: OFD lock on the file `pool`, held while open for writing */
	uint8_t *map;	     /* POOL_BYTES */
	bool emulated;
	bool read_only;
	struct pool_superblock sb; /* checked copy; under lock once open */
	char warning[256];	   /* what was noticed at opening and is no refusal; "": nothing */

	/* Inside pool/dir only. */
	pthread_mutex_t lock;	/* writers and readers of superblock and catalog */
	uint64_t next_id;	/* next file id; below sb.next_file_id, under lock */
	uint32_t damaged_files; /* file entries with both copies damaged at opening; never reused */
	uint8_t domain_state[POOL_DOMAINS]; /* enum entry_state in catalog.c; under lock */
	uint8_t file_state[POOL_FILES];
};

/* What went wrong in words, with what to do: filled on every failure below. */
struct pool_error {
	char text[512];
};

/*
 * Makes a pool in an existing (or new) directory. Refuses a directory that holds a pool or foreign
 * files unless force; refuses memory that does not survive power loss unless emulate (then the pool is
 * marked so). All blocks are allocated and written, file and directory synced. The generation is
 * written to <state_dir>/pool.state and synced. Returns 0 or a negative errno.
 */
int pool_create(const char *path, const char *state_dir, bool emulate, bool force,
		struct pool_error *ret_error);

/*
 * Opens for writing (raises the generation in pool, then state file, synced) or read only (no lock, no
 * change). Refused without changing a byte: wrong magic or version, unknown incompatible features, bad
 * superblock, a damaged domain entry, a lane with records that no domain names, another machine id, another uuid than the state file's, a
 * generation that is neither the state file's nor one ahead of it (an older copy of the pool), no state
 * file while a lane holds records, a second daemon (-EBUSY, with the pid), an emulated pool without
 * emulate. A risen unsafe-shutdown count quarantines the domains whose lanes hold records.
 */
int pool_open(struct pool **ret, const char *path, const char *state_dir, bool emulate,
	      bool read_only, struct pool_error *ret_error);
struct pool *pool_close(struct pool *p);

/* Maps a lane file for reading and writing (fsdax: MAP_SYNC demanded) and checks its identity.
 * ret_fd stays open for passing on. -EBADMSG: damaged header. */
int pool_lane_open(struct pool *p, const struct pool_domain *d, struct lane *ret, int *ret_fd,
		   struct pool_error *ret_error);
void pool_lane_close(struct lane *l, int fd);

/*
 * A new lane file for a domain: number never used before by a file that still exists, owned by uid,
 * 0600, allocated whole, written, prefaulted, out of core dumps (MADV_DONTDUMP), synced with its
 * directory; then the domain's catalog entry. The old lane file of the same domain, if any, is
 * deleted; -EBUSY while it holds records or cannot be read (recover first). ring_size is rounded down to
 * whole pages. Fills d->lane, d->ring_size. Returns 0 or a negative errno.
 */
int pool_lane_create(struct pool *p, struct pool_domain *d, uint64_t ring_size, struct lane *ret,
		     int *ret_fd, struct pool_error *ret_error);

/* False only where the lane is known to hold nothing: no live record, and it can be read, and it is the one
 * that its domain wrote last. */
bool pool_lane_holds(struct pool *p, const struct pool_domain *d);

/*
 * Is this lane the one that its domain wrote last? False: an older copy, or another pool's, was put in its
 * place; that it is empty says nothing then. True also where the entry does not know (an earlier version's).
 */
bool pool_lane_is(const struct pool_domain *d, const struct lane *l);

/*
 * Gives a lane without live records a new, random incarnation that its entry knows; the caller has no
 * session in it. pool_lane_renewed: the entry is to know that one alone; the caller puts it, with what else
 * changes by it. 0 or a negative errno (-EFAULT: the lane cannot be written).
 * Persist order: the entry with both incarnations; the lane's header. A cut leaves a lane with one of them.
 */
int pool_lane_renew(struct pool *p, uint32_t index, struct pool_domain *d, struct lane *l);
void pool_lane_renewed(struct pool_domain *d, const struct lane *l);

/*
 * recover --discard of a lane whose memory or header is damaged: its file is deleted, whatever it holds, and
 * the domain gets a new one of the same ring size under another number; *d becomes its catalog entry.
 * 0 or a negative errno.
 */
int pool_lane_replace(struct pool *p, uint32_t index, struct pool_domain *d,
		      struct pool_error *ret_error);

/* Absolute path of a lane's file into buf. */
void pool_lane_path(const struct pool *p, uint32_t lane, char *buf, size_t n);

/* A file id never given out before in this pool; raises next_file_id in durable steps. 0 on failure. */
uint64_t pool_new_file_id(struct pool *p);
