/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Stores to a mapped pool as a power cut sees them, for children that steps.c kills: what was not drained is
 * there, is not there, or in part, by seed. A pool on a real file system behaves as on fsdax: drained bytes are
 * durable, without the file's or its directory's journal.
 */

#include <stdint.h>

/* pool_ops becomes such a table until the process ends (pool_ops_select changes nothing any more); step is
 * called before each half of a copy and before each drain. */
void torn_begin(uint64_t seed, void (*step)(void));

/* The cut: whatever was not drained is mixed. */
void torn_cut(void);
