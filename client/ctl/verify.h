/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What `pool verify` finds: the copies of superblock and catalog (verify_catalog.c), the lanes (verify_lanes.c). */

#include "client/ctl/document.h"
#include "client/ctl/pool_copy.h"

enum finding {
	FINDING_NOTE,	  /* said, and no fault */
	FINDING_DEGRADED, /* one of two copies: nothing is lost */
	FINDING_DAMAGE,
};

struct verify {
	struct pool_copy *pool;
	bool in_use;
	unsigned count[3]; /* by enum finding */
	struct json_object *findings, *domains;
};

/* Adds a finding. where: what it is about ("superblock", "lane-000001"). */
void verify_say(struct verify *v, enum finding f, const char *where, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Each copy of the superblock and of each catalog entry by itself, and whether the entries fit together. */
void verify_catalog(struct verify *v);

/* Each lane: its file, both headers, every page, every record, files that the catalog must know; lane files
 * that no domain names. All reads survive SIGBUS. */
void verify_lanes(struct verify *v);

/* All of it: a document {path, uuid, ..., domains, findings}; the caller puts it. *ret_good: nothing is damaged
 * or degraded. */
struct json_object *verify_pool(struct pool_copy *pool, bool *ret_good);
