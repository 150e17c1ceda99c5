/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Recovery of one image, on files in memory: the product's own plan and judgement. */

#include "daemon/recover/plan.h"
#include "pool/lane.h"
#include "tests/crash/disk.h"

struct replay {
	struct lane lane;
	struct plan plan;
};

/* Walks and judges. NULL, or static text: the domain would be quarantined. replay_free in any case. */
const char *replay_plan(struct replay *ret, void *image, const struct disk_cut cut[DISK_FILES]);
void replay_free(struct replay *r);

/* Applies what the plan says, in lane order. NULL or static text. */
const char *replay_apply(const struct replay *r, struct disk_cut cut[DISK_FILES]);

/* Both, freed. */
const char *replay_all(void *image, struct disk_cut cut[DISK_FILES]);

/* The first WRITE record of a file at or above `from`: true and *ret. */
bool replay_find(const struct replay *r, int file, uint64_t from, struct record_header *ret);
