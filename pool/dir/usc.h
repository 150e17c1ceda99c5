/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The device's count of unsafe shutdowns: power losses after which flushed stores may be missing. */

#include <stdint.h>

#define USC_UNKNOWN UINT64_MAX

/*
 * The count of the device under fd, or USC_UNKNOWN where it is not to be had (no NVDIMM, libpmem2 built
 * without libndctl, a virtual device). With an unknown count on either side nothing is concluded: a
 * power-path failure is then noticed only as damage that the record chain shows.
 */
uint64_t usc_read(int fd);

/* Replaces the source, for tests; NULL: libpmem2 again. Not thread-safe. */
typedef uint64_t usc_source(int fd);
void usc_set_source(usc_source *source);
