/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Sizes and times with a unit, as the configuration has them. */

#include <stddef.h>
#include <stdint.h>

#define QUANTITY_KIB UINT64_C(1024)
#define QUANTITY_MIB (1024 * QUANTITY_KIB)
#define QUANTITY_MS  UINT64_C(1000000) /* nanoseconds */
#define QUANTITY_S   (1000 * QUANTITY_MS)

struct quantity_unit {
	const char *name; /* NULL: the end */
	uint64_t factor;
};

/* Largest first. */
extern const struct quantity_unit quantity_bytes[]; /* GiB, MiB, KiB, B */
extern const struct quantity_unit quantity_times[]; /* h, min, s, ms: in nanoseconds */

struct quantity_range {
	uint64_t min, max, step;
};

/*
 * A whole number, at most one blank, a unit. 0 and *ret, or -EINVAL with what is wrong in why (n bytes),
 * worded to follow the text itself: `"5" has no unit; ...`.
 */
int quantity_parse(const char *text, const struct quantity_unit *units,
		   const struct quantity_range *range, uint64_t *ret, char *why, size_t n);
