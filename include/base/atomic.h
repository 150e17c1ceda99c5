/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Named memory orders. The only file that names __ATOMIC_*: every use elsewhere says what it pairs
 * with, or why relaxed is enough. The words lie in memory shared between processes, so they are
 * plain integers with __atomic builtins and not _Atomic (whose layout is the compiler's business).
 */

/* Relaxed: for counters and for words whose order is given by something else. */
#define atomic_load_relaxed(p)	   __atomic_load_n((p), __ATOMIC_RELAXED)
#define atomic_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define atomic_add_relaxed(p, v)   __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)

/* Acquire / release: what was written before the release is seen after the acquire. */
#define atomic_load_acquire(p)	   __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define atomic_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* Sequentially consistent: for "store mine, then look at yours" on both sides (sleep and wake). */
#define atomic_load_seq(p)     __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define atomic_store_seq(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define atomic_xchg_seq(p, v)  __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define atomic_add_seq(p, v)   __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define atomic_sub_seq(p, v)   __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST)
#ifdef __SANITIZE_THREAD__
/* It knows no fences. No instruction here in any case; that the compiler keeps the order is what counts. */
#define atomic_fence_acquire() __asm__ volatile("" ::: "memory")
#else
#define atomic_fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#endif

/* True if *p was *expected and is now v (seq_cst); else *expected is what was seen. */
#define atomic_cas_seq(p, expected, v) \
	__atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#else
#define cpu_relax() __asm__ volatile("" ::: "memory")
#endif
