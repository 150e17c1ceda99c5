/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Compiled in front of the product's sources here (-include): each access to a word that processes share is a
 * step, so that owners die, and calls are switched, between any two of them. (A relaxed load is none: what it
 * sees is under a lock, or a hint, and to die before it is to die before the store that follows.)
 */

#include "base/atomic.h"

void world_step(void);

#undef atomic_store_relaxed
#undef atomic_add_relaxed
#undef atomic_load_acquire
#undef atomic_store_release
#undef atomic_load_seq
#undef atomic_store_seq
#undef atomic_xchg_seq
#undef atomic_add_seq
#undef atomic_sub_seq
#undef atomic_cas_seq

/* One processor's order: the orders themselves are not what this shows. */
#define STEPPED(call) (world_step(), (call))

#define atomic_store_relaxed(p, v) STEPPED(__atomic_store_n((p), (v), __ATOMIC_RELAXED))
#define atomic_add_relaxed(p, v)   STEPPED(__atomic_fetch_add((p), (v), __ATOMIC_RELAXED))
#define atomic_load_acquire(p)	   STEPPED(__atomic_load_n((p), __ATOMIC_ACQUIRE))
#define atomic_store_release(p, v) STEPPED(__atomic_store_n((p), (v), __ATOMIC_RELEASE))
#define atomic_load_seq(p)	   STEPPED(__atomic_load_n((p), __ATOMIC_SEQ_CST))
#define atomic_store_seq(p, v)	   STEPPED(__atomic_store_n((p), (v), __ATOMIC_SEQ_CST))
#define atomic_xchg_seq(p, v)	   STEPPED(__atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST))
#define atomic_add_seq(p, v)	   STEPPED(__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST))
#define atomic_sub_seq(p, v)	   STEPPED(__atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST))
#define atomic_cas_seq(p, expected, v)                                                 \
	STEPPED(__atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_SEQ_CST, \
					    __ATOMIC_SEQ_CST))
