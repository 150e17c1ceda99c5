/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Raw system calls: no cancellation point, no errno, no libc symbol that a shim (ours included)
 * might have taken over. Each returns what the kernel returned: >= 0, or a negative errno.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "raw system calls are written for x86-64 and arm64"
#endif

#define sys_call0(n)		 sys_call6((n), 0, 0, 0, 0, 0, 0)
#define sys_call1(n, a)		 sys_call6((n), (long)(a), 0, 0, 0, 0, 0)
#define sys_call2(n, a, b)	 sys_call6((n), (long)(a), (long)(b), 0, 0, 0, 0)
#define sys_call3(n, a, b, c)	 sys_call6((n), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sys_call4(n, a, b, c, d) sys_call6((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define sys_call5(n, a, b, c, d, e) \
	sys_call6((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* Thread id; a system call each time, so hot paths cache it per thread. */
static inline uint32_t sys_gettid(void)
{
	return (uint32_t)sys_call0(SYS_gettid);
}

/* CLOCK_REALTIME in ns (vDSO, no system call). */
static inline uint64_t now_realtime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CLOCK_REALTIME as of the last timer tick (1 to 10 ms ago), in ns (vDSO, no system call). */
static inline uint64_t now_coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CLOCK_MONOTONIC in ns (vDSO, no system call). */
static inline uint64_t now_monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
