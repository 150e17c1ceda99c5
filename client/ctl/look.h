/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A lane that is looked at from outside, perhaps while others append and trim. All reads survive SIGBUS
 * (guard_install() by the caller). */

#include "pool/lane.h"

struct look {
	const struct lane *lane;
	bool in_use;	     /* somebody has the pool: what moves is no damage */
	uint64_t tail, head; /* head: where the walk from the tail ended */
	uint32_t tail_chain;
	uint64_t trimmed; /* look_each: bytes given free while they were read */
	const char *why;  /* static text: damage; NULL: none */
};

/* Finds tail and head: 0, or -EBADMSG and look->why. In use: damage is only what stays so. */
int look_head(struct look *look, const struct lane *l, bool in_use);

/* Each record from tail to head; what is trimmed meanwhile is left out, what is appended as well: so this ends.
 * 0, or -EBADMSG and look->why. */
int look_each(struct look *look, void (*each)(void *arg, const struct record_header *h), void *arg);

/* The record at a position, in the lane's window from tail on, chained to nothing: 0 or a negative errno. */
int look_at(const struct lane *l, uint64_t position, uint64_t tail, struct record_header *ret);
