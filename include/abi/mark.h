/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Owner mark: the extended attribute by which a file says that commits to it may lie in a pool. The
 * daemon stamps and removes it (pool/dir/mark.c); the preload library only looks whether it is there and
 * is this very file's: a copy carries its original's.
 */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/control.h"

#define MARK_NAME  "user.pmemlogd.owner"
#define MARK_MAGIC "PMOWNER1"

/* Value of the attribute. Little-endian. Anything else under that name counts as foreign. */
struct mark {
	uint8_t magic[8];
	uint32_t crc; /* CRC32C of the value with this field zero */
	uint32_t lane;
	uint8_t pool_uuid[16];
	uint8_t machine_id[16];
	int64_t btime_ns;
	uint32_t handle_type;
	uint32_t handle_bytes;
	uint8_t handle[CTL_HANDLE_MAX]; /* zero behind handle_bytes */
};

static_assert(offsetof(struct mark, handle_type) == 56, "mark");
static_assert(sizeof(struct mark) == 128, "mark");
