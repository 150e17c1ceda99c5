/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * A pool as bytes, for looking at: `pool` is read once into private memory, lanes are mapped read-only.
 * Nothing is locked, changed or refused: it may be in use, damaged, another machine's, or a copy on an
 * ordinary disk. One thread; guard_install() by the caller.
 */

#include "pool/dir/catalog.h"

struct pool_copy {
	struct pool pool;      /* for catalog_*: its map is private memory */
	struct pool_error why; /* the superblock's fault; "": it is good */
	uint64_t file_bytes;   /* length of `pool`; POOL_BYTES in a whole one */
	uint64_t unreadable;   /* bytes of it that gave an error; they read as 0xff */
	bool domains_damaged;  /* an entry of a domain is damaged in both copies */
};

/* path: the folder. On 0 *ret is to be closed; else a negative errno and *e in words. */
int pool_copy_open(struct pool_copy **ret, const char *path, struct pool_error *e);
struct pool_copy *pool_copy_close(struct pool_copy *c);

/*
 * Maps lane-NUMBER. Its ring size is what its own header says (checked against the file's length).
 * 0 and *ret, to be given to pool_copy_unmap; -EBADMSG: neither header is whole; or a negative errno.
 * After an error *e says it in words.
 */
int pool_copy_map(const struct pool_copy *c, uint32_t number, struct lane *ret,
		  struct pool_error *e);
void pool_copy_unmap(struct lane *l);

/* Somebody (a daemon) has the pool: what is read moves meanwhile. */
bool pool_copy_in_use(const struct pool_copy *c);

/* The same with a lane of any state: its bytes and how many, whatever is in them. */
int pool_copy_map_raw(const struct pool_copy *c, uint32_t number, uint8_t **ret, size_t *ret_bytes,
		      struct pool_error *e);
