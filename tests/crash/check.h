/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* At one instant: what may a cut leave, and does recovery make the right files of it? */

#include <stdbool.h>
#include <stdint.h>

struct check_stats {
	uint64_t states, failures;
	uint64_t failures_by_image[8];
	uint64_t records; /* replayed in all */
	uint64_t nested;  /* cuts during recovery */
};
extern struct check_stats check_stats;

/* A run begins. only_at: check that step alone (0: all). */
void check_begin(uint64_t seed, uint64_t only_at, uint64_t max_reports);
enum check_depth {
	CHECK_ALL, /* every kind of image */
	CHECK_FEW, /* two of them */
	CHECK_NOT,
};
/* How closely each step is looked at from here on; CHECK_ALL after check_begin. */
void check_depth(enum check_depth depth);
/* This very moment. */
void check_now(void);
/* What readers see now. */
void check_cache(void);

/* From here on look at one step in a few only: many calls of the same kind follow. */
void check_sparse(bool on);
/* The step hook. */
void check_step(void);
/* What the run itself found wrong, outside of a cut. */
void check_fail(const char *what, int file);
