/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What processor and operating system have, by CPUID and XGETBV. */

#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>

struct cpu {
	bool avx, avx512;		/* the operating system saves their registers */
	bool sse42, pclmul, vpclmul512; /* vpclmul512: with avx512 */
	bool clflushopt, clwb;
};

/* State components that the operating system saves (XCR0), or 0 without XSAVE. */
static inline uint64_t cpu_saved_state(unsigned leaf1_ecx)
{
	uint32_t low, high;

	if (!(leaf1_ecx & bit_OSXSAVE))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

/* Serialises; never on a hot path. */
static inline struct cpu cpu_look(void)
{
	const uint64_t avx_state = 0x6, avx512_state = 0xe6;
	unsigned a, b, c1 = 0, d, b7 = 0, c7 = 0;
	struct cpu cpu = { 0 };
	uint64_t saved;

	if (!__get_cpuid(1, &a, &b, &c1, &d))
		return cpu;
	if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d))
		b7 = c7 = 0;
	saved = cpu_saved_state(c1);
	cpu.sse42 = c1 & bit_SSE4_2;
	cpu.pclmul = c1 & bit_PCLMUL;
	cpu.avx = (c1 & bit_AVX) && (saved & avx_state) == avx_state;
	cpu.avx512 = (b7 & bit_AVX512F) && (saved & avx512_state) == avx512_state;
	cpu.vpclmul512 = cpu.avx512 && (c7 & bit_VPCLMULQDQ);
	cpu.clflushopt = b7 & bit_CLFLUSHOPT;
	cpu.clwb = b7 & bit_CLWB;
	return cpu;
}
