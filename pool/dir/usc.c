/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/usc.h"

#include <libpmem2.h>
#include <stddef.h>

static uint64_t usc_libpmem2(int fd)
{
	struct pmem2_source *source = NULL;
	uint64_t count = USC_UNKNOWN;

	if (pmem2_source_from_fd(&source, fd) != 0)
		return USC_UNKNOWN;
	if (pmem2_source_device_usc(source, &count) != 0)
		count = USC_UNKNOWN;
	pmem2_source_delete(&source);
	return count;
}

static usc_source *usc_current = usc_libpmem2;

uint64_t usc_read(int fd)
{
	return usc_current(fd);
}

void usc_set_source(usc_source *source)
{
	usc_current = source ? source : usc_libpmem2;
}
