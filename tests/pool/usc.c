/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The memory device's count of unsafe shutdowns, where the machine has no such device: LD_PRELOAD with
 * USC_FILE=PATH. libpmem2's call answers the number in that file; without a number there, that it is not to be
 * had, as on a device without one.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct pmem2_source;
int pmem2_source_device_usc(const struct pmem2_source *source, uint64_t *usc);

int pmem2_source_device_usc(const struct pmem2_source *source, uint64_t *usc)
{
	const char *path = getenv("USC_FILE");
	FILE *f = path ? fopen(path, "re") : NULL;
	unsigned long long count;
	int n = f ? fscanf(f, "%llu", &count) : 0;

	(void)source;
	if (f)
		(void)fclose(f);
	if (n != 1)
		return -EOPNOTSUPP;
	*usc = count;
	return 0;
}
