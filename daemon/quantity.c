/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/overflow.h"

const struct quantity_unit quantity_bytes[] = {
	{ "GiB", 1024 * QUANTITY_MIB },
	{ "MiB", QUANTITY_MIB },
	{ "KiB", QUANTITY_KIB },
	{ "B", 1 },
	{ NULL, 0 },
};

const struct quantity_unit quantity_times[] = {
	{ "h", 3600 * QUANTITY_S },
	{ "min", 60 * QUANTITY_S },
	{ "s", QUANTITY_S },
	{ "ms", QUANTITY_MS },
	{ NULL, 0 },
};

/* For messages: the largest unit that leaves no rest. */
static void print_quantity(char *buf, size_t n, uint64_t value, const struct quantity_unit *u)
{
	while (u[1].name && (value == 0 || value % u->factor != 0))
		u++;
	(void)snprintf(buf, n, "%" PRIu64 "%s", value / u->factor, u->name);
}

int quantity_parse(const char *text, const struct quantity_unit *units,
		   const struct quantity_range *range, uint64_t *ret, char *why, size_t n)
{
	const char *want = units == quantity_bytes ? "B, KiB, MiB or GiB" : "ms, s, min or h";
	const struct quantity_unit *u;
	const char *p = text;
	char low[32], high[32];
	uint64_t value = 0;
	bool over = false;

	for (; *p >= '0' && *p <= '9'; p++)
		over |= mul_overflow(value, UINT64_C(10), &value) ||
			add_overflow(value, (uint64_t)(*p - '0'), &value);
	if (p == text) {
		(void)snprintf(why, n, "is no whole number with a unit (%s)", want);
		return -EINVAL;
	}
	if (*p == ' ')
		p++;
	for (u = units; u->name && strcmp(u->name, p) != 0; u++)
		;
	if (!u->name) {
		(void)snprintf(why, n, "has %s unit; %s", *p ? "a bad" : "no", want);
		return -EINVAL;
	}
	over |= mul_overflow(value, u->factor, &value);
	if (over || value < range->min || value > range->max) {
		print_quantity(low, sizeof(low), range->min, units);
		print_quantity(high, sizeof(high), range->max, units);
		(void)snprintf(why, n, "is out of range, %s to %s", low, high);
		return -EINVAL;
	}
	if (value % range->step != 0) {
		(void)snprintf(why, n, "is no multiple of %" PRIu64, range->step);
		return -EINVAL;
	}
	*ret = value;
	return 0;
}
