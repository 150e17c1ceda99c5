/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Test builds only (meson -Dsim=true): a durable medium of its own behind each pool file. In any other
 * build this is empty.
 *
 * All processes map a pool file as ever and see each other's stores at once. Beside it, in the folder
 * that PMEMLOGD_SIM names, lies its shadow, mapped by all of them, too: what is certainly durable, and for
 * each line its content when it was last copied or flushed, and by which thread. A drain makes exactly
 * its own thread's lines durable; while a file `hold` lies in the folder, drains wait. tests/support/simcut.c makes of the three what a power cut could leave.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef POOL_SIM

#include "pool/ops.h"

#define SIM_WORDS " (TEST BUILD with a simulated medium)"

#define SIM_MAGIC      "PMSIM001"
#define SIM_HEAD_BYTES 4096u
#define SIM_LINE       64u

/* First page of a shadow; then the durable bytes, the flown ones, and a thread id per line (0: nothing of
 * the line is on its way). */
struct sim_head {
	char magic[8];
	uint64_t bytes; /* of the pool file */
};

static inline size_t sim_shadow_bytes(uint64_t bytes)
{
	return (size_t)(SIM_HEAD_BYTES + 2 * bytes + bytes / SIM_LINE * sizeof(uint32_t));
}

extern const struct pool_ops sim_ops;

/*
 * To be called with each writable mapping of a pool file before the first store to it. Makes the shadow
 * when there is none: what the file holds then counts as durable. Raw system calls only. 0 or a negative
 * errno; -ENOKEY: PMEMLOGD_SIM is not set.
 */
int sim_map(uint8_t *base, size_t bytes, int fd);
/* Before the mapping goes; one that sim_map does not know is fine. */
void sim_unmap(const uint8_t *base);

/* Identity on losefs, which has no UUID to ask the kernel for: its own answer. False: not losefs. */
bool sim_fs_uuid(int fd, uint8_t ret_uuid[16]);
/* The type in mountinfo is that of losefs, which is looked at although FUSE is not. */
static inline bool sim_looks_at(const char *type)
{
	return strcmp(type, "fuse.losefs") == 0;
}

#else

#define SIM_WORDS ""

static inline int sim_map(uint8_t *base, size_t bytes, int fd)
{
	(void)base;
	(void)bytes;
	(void)fd;
	return 0;
}
static inline void sim_unmap(const uint8_t *base)
{
	(void)base;
}
static inline bool sim_fs_uuid(int fd, uint8_t ret_uuid[16])
{
	(void)fd;
	(void)ret_uuid;
	return false;
}
static inline bool sim_looks_at(const char *type)
{
	(void)type;
	return false;
}

#endif
