/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Shared by open.c, create.c and lanes.c. */

#include "pool/dir/pool.h"

#define POOL_FILE_NAME	   "pool"
#define POOL_FILE_NEW_NAME "pool.new"
#define POOL_LANE_PREFIX   "lane-"

/* Opens the directory and the file `pool` in it. Returns 0 or a refusal. */
int pool_open_files(const char *path, bool read_only, int *ret_dir_fd, int *ret_fd,
		    struct pool_error *e);

/* OFD write lock on the file `pool`: 0, -EBUSY (with the pid that <state_dir>/pool.pid names), or a
 * negative errno. Ends with the descriptor. */
int pool_lock(int fd, const char *path, const char *state_dir, struct pool_error *e);

/*
 * Lane files that no domain names. One that holds records: the catalog has lost its domain (a page of it
 * that was cleared of poison reads as zeros, and that looks free): refused, since that database would start
 * without them. One without a record is what a cut left of pool_lane_create: removed unless p is read only.
 * Returns 0 or a refusal.
 */
int pool_lanes_orphans(struct pool *p, struct pool_error *e);
