/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Mapping of pool files: fsdax through libpmem2 with MAP_SYNC, or emulated (a plain shared mapping).
 * The stores themselves go through pool_ops, never through libpmem2's functions.
 */

#include "pool/dir/pool.h"

/* Writes a formatted text into *e (may be NULL) and returns r, so that a refusal is one line. */
int pool_refuse(struct pool_error *e, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Maps the first `bytes` bytes of fd for reading and, unless read_only, for writing. emulated: any file
 * system. Otherwise the mapping must be durable with cache-line flushes: MAP_SYNC is demanded from the
 * kernel itself (libpmem2's answer can be forced by its environment), then libpmem2 must say granularity
 * CACHE_LINE or BYTE. name: for the text. Returns 0, -EOPNOTSUPP (memory that does not survive power
 * loss; *e says which file system and what to change), -ENXIO (the file is shorter), or a negative
 * errno. Thread-safe.
 */
int media_map(int fd, size_t bytes, bool emulated, bool read_only, const char *name,
	      uint8_t **ret_base, struct pool_error *e);

/* Unmaps what media_map returned; NULL is fine. Thread-safe. */
void media_unmap(uint8_t *base, size_t bytes);

/*
 * Gives an empty, already opened file all its blocks, written with zeros, and syncs it: a store to its
 * mapping can fail for want of space no more. Returns 0 or a negative errno (-ENOSPC).
 */
int media_fill(int fd, uint64_t bytes);
