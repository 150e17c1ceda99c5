/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Catalog of domains and files. Thread-safe (one mutex inside); who reads an entry, changes it and puts
 * it back serialises with others who do (the daemon: entries belong to their domain's worker). Entries
 * are handed out as checked private copies; put makes them durable before it returns.
 */

#include "pool/dir/pool.h"

/* Entry at an index: 0 and *ret, -ENOENT (free), -EBADMSG (both copies damaged), -EINVAL (index). */
int catalog_domain_get(struct pool *p, uint32_t index, struct pool_domain *ret);
int catalog_file_get(struct pool *p, uint32_t index, struct pool_file *ret);

/* Writes an entry durably; index UINT32_MAX: takes a free one. Returns the index or a negative errno
 * (-ENOSPC). used, crc and sequence are set here. A put with used kept 0 by catalog_*_drop frees it. */
int catalog_domain_put(struct pool *p, uint32_t index, const struct pool_domain *d);
int catalog_file_put(struct pool *p, uint32_t index, const struct pool_file *f);
int catalog_domain_drop(struct pool *p, uint32_t index);
int catalog_file_drop(struct pool *p, uint32_t index);

/* Index of the domain (uid, name), or -ENOENT. */
int catalog_domain_find(struct pool *p, uint32_t uid, const char *name);

/* Next used file entry of a lane at or above index `from`: its index and *ret, or -ENOENT. */
int catalog_file_next(struct pool *p, uint32_t lane, uint32_t from, struct pool_file *ret);

/*
 * Reads every entry once, at opening: which are used, free, damaged. Returns 0, or -EBADMSG when a
 * domain's entry is damaged (it may be anybody's); damaged file entries are counted in p->damaged_files.
 */
int catalog_load(struct pool *p);
