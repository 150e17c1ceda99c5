/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Compiled in front of pool/lock.c here (-include): each access to a word that processes share and each futex
 * call is a step, before which the test may let somebody else go on; no time passes.
 */

#include "base/atomic.h"
#include "base/futex.h"

/* what: the access and its word, as they stand in the source. */
void step(const char *what);
int step_futex_wait(uint32_t *word, uint32_t expected);
int step_futex_wake(uint32_t *word, int n);

#undef atomic_load_seq
#undef atomic_store_seq
#undef atomic_xchg_seq
#undef atomic_add_seq
#undef atomic_sub_seq
#undef atomic_cas_seq

#define STEPPED(what, call) (step(what), (call))

#define atomic_load_seq(p)     STEPPED("load " #p, __atomic_load_n((p), __ATOMIC_SEQ_CST))
#define atomic_store_seq(p, v) STEPPED("store " #p, __atomic_store_n((p), (v), __ATOMIC_SEQ_CST))
#define atomic_xchg_seq(p, v)  STEPPED("xchg " #p, __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST))
#define atomic_add_seq(p, v)   STEPPED("add " #p, __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST))
#define atomic_sub_seq(p, v)   STEPPED("sub " #p, __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST))
#define atomic_cas_seq(p, expected, v)                                                            \
	STEPPED("cas " #p, __atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_SEQ_CST, \
						       __ATOMIC_SEQ_CST))

#define futex_wait(word, expected, ns) ((void)(ns), step_futex_wait((word), (expected)))
#define futex_wake(word, n)	       step_futex_wake((word), (n))
#define now_monotonic_ns()	       UINT64_C(1)
