/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What has to be replayed: from the bytes of a lane to a list of files, after FENCE and UNLINK. No call
 * on any file, so that the crash simulator runs exactly this code. Every read of the lane survives
 * SIGBUS (guard.h; guard_install() by the caller).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/lane.h"

struct plan_file {
	uint64_t id;
	uint64_t fence;	  /* records below this position are durable in the file */
	uint64_t records; /* live WRITE and LINES records; 0: nothing to replay */
	uint64_t bytes;	  /* their payload */
	uint64_t end;	  /* highest offset behind one of them */
	uint64_t begin;	  /* offset of the first of them; of a native log the lowest */
	bool named;	  /* a record of it that is no FENCE lies at or above the fence */
	bool unlinked;	  /* an UNLINK record was seen */
};

struct plan {
	struct plan_file *files; /* owned; each file id of the lane once, in order of appearance */
	size_t n_files;
	uint32_t *slots; /* owned; hash of ids, for plan_find */
	uint64_t tail, head;
	uint32_t tail_chain, head_chain;
	uint64_t walked;    /* records between tail and head */
	uint64_t records;   /* live ones of all files */
	uint64_t bytes;	    /* their payload */
	uint32_t largest;   /* payload of the largest live one */
	uint64_t newest_ns; /* latest time of any record; 0: none */
	uint64_t beat_ns;   /* heartbeat */
	uint64_t *each_ns; /* of the caller, may be NULL: plan_each puts each record's time there */
};

/*
 * Walks the lane from its tail to its head and fills *ret (free it with plan_free in every case).
 * Returns 0; -EBADMSG: damaged, *ret_why says how and ret->head is where the walk stopped; -ENOMEM.
 */
int plan_make(struct plan *ret, const struct lane *l, const char **ret_why);
void plan_free(struct plan *plan);

/* Index in plan->files, or -1. */
int plan_find(const struct plan *plan, uint64_t id);

/*
 * Calls each() for every live record in lane order (LINES: for each run of lines) with its payload (a private copy that has the
 * record's CRC). file: index in plan->files. A negative result of each() ends it and is returned.
 * Returns 0, -EBADMSG (the lane is no longer what plan_make saw) or -ENOMEM.
 */
int plan_each(const struct plan *plan, const struct lane *l,
	      int (*each)(void *arg, size_t file, uint64_t offset, const void *payload,
			  uint32_t length),
	      void *arg);
