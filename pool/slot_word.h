/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Parts of a lock word: slot << 48 | generation << 24 | thread id (abi/control.h). */

#include <stdint.h>

#include "pool/slot.h"

#define WORD_GENERATION_MASK UINT64_C(0xffffff)
#define WORD_TID_MASK	     UINT64_C(0xffffff)

/* Left by lock_release_died: a slot that does not exist counts as dead for everybody. */
#define WORD_DIED (UINT64_C(0xffff) << 48 | UINT64_C(1) << 24 | 1u)

static inline uint64_t word_of(const struct holder *h, uint32_t tid)
{
	return (uint64_t)h->slot << 48 | (h->generation & WORD_GENERATION_MASK) << 24 |
	       (tid & WORD_TID_MASK);
}

static inline uint32_t word_slot(uint64_t word)
{
	return (uint32_t)(word >> 48);
}

static inline uint32_t word_generation(uint64_t word)
{
	return (uint32_t)(word >> 24 & WORD_GENERATION_MASK);
}

static inline uint32_t word_tid(uint64_t word)
{
	return (uint32_t)(word & WORD_TID_MASK);
}
