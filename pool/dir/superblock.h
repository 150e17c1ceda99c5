/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The superblock: reading with checks, writing. */

#include "pool/dir/pool.h"

/*
 * Reads both copies through the descriptor (poison is then EIO and not SIGBUS) and checks magic,
 * version, CRC and features. Changes nothing. Returns 0 or, with *e saying what and what to do:
 * -EBADMSG (no pool, or both copies damaged), -EPROTONOSUPPORT (version, features), or a negative errno.
 * A pool with unknown read-only features is refused unless read_only.
 */
int superblock_read(int fd, const char *path, bool read_only, struct pool_superblock *ret,
		    struct pool_error *e);

/* Writes *sb (sequence and CRC set here) to both copies in the mapping; durable on return. 0 or a
 * negative errno. Under p->lock, or before p is shared. */
int superblock_write(uint8_t *map, struct pool_superblock *sb);
