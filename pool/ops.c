/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/ops.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "pool/cpu.h"
#include "pool/sim.h"

/* What x86-64 always has stays the default, so the table works before anybody has picked one. */
enum store_kind {
	STORE_SSE2,
	STORE_AVX,
	STORE_AVX512,
	STORE_KINDS
};
enum flush_kind {
	FLUSH_CLFLUSH,
	FLUSH_CLFLUSHOPT,
	FLUSH_CLWB,
	FLUSH_KINDS
};

#define LINE 64u

/* The last n < 64 bytes of a copy, in 8-byte words. */
static inline void copy_words(uint8_t *d, const uint8_t *s, size_t n)
{
	for (; n >= 8; n -= 8, d += 8, s += 8) {
		long long word;

		memcpy(&word, s, 8);
		_mm_stream_si64((long long *)(void *)d, word);
	}
}

static void copy_sse2(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= LINE; n -= LINE, d += LINE, s += LINE) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)s);
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(s + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(s + 32));
		__m128i e = _mm_loadu_si128((const __m128i *)(const void *)(s + 48));

		_mm_stream_si128((__m128i *)(void *)d, a);
		_mm_stream_si128((__m128i *)(void *)(d + 16), b);
		_mm_stream_si128((__m128i *)(void *)(d + 32), c);
		_mm_stream_si128((__m128i *)(void *)(d + 48), e);
	}
	copy_words(d, s, n);
}

__attribute__((target("avx"))) static void copy_avx(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= LINE; n -= LINE, d += LINE, s += LINE) {
		__m256i a = _mm256_loadu_si256((const __m256i *)(const void *)s);
		__m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(s + 32));

		_mm256_stream_si256((__m256i *)(void *)d, a);
		_mm256_stream_si256((__m256i *)(void *)(d + 32), b);
	}
	copy_words(d, s, n);
}

__attribute__((target("avx512f"))) static void copy_avx512(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n >= LINE; n -= LINE, d += LINE, s += LINE)
		_mm512_stream_si512((__m512i *)(void *)d, _mm512_loadu_si512((const void *)s));
	copy_words(d, s, n);
}

/* First line of a range; the range ends before p + n. */
static inline uintptr_t first_line(const void *p)
{
	return (uintptr_t)p & ~(uintptr_t)(LINE - 1);
}

static void flush_clflush(const void *p, size_t n)
{
	for (uintptr_t a = first_line(p); a < (uintptr_t)p + n; a += LINE)
		_mm_clflush((const void *)a);
}

__attribute__((target("clflushopt"))) static void flush_clflushopt(const void *p, size_t n)
{
	for (uintptr_t a = first_line(p); a < (uintptr_t)p + n; a += LINE)
		_mm_clflushopt((void *)a);
}

__attribute__((target("clwb"))) static void flush_clwb(const void *p, size_t n)
{
	for (uintptr_t a = first_line(p); a < (uintptr_t)p + n; a += LINE)
		_mm_clwb((void *)a);
}

/* Non-temporal stores and CLWB are ordered by SFENCE alone; what it orders is durable (ADR). */
static void drain_sfence(void)
{
	_mm_sfence();
}

static const struct pool_ops tables[STORE_KINDS][FLUSH_KINDS] = {
	[STORE_SSE2] = { { copy_sse2, flush_clflush, drain_sfence },
			 { copy_sse2, flush_clflushopt, drain_sfence },
			 { copy_sse2, flush_clwb, drain_sfence } },
	[STORE_AVX] = { { copy_avx, flush_clflush, drain_sfence },
			{ copy_avx, flush_clflushopt, drain_sfence },
			{ copy_avx, flush_clwb, drain_sfence } },
	[STORE_AVX512] = { { copy_avx512, flush_clflush, drain_sfence },
			   { copy_avx512, flush_clflushopt, drain_sfence },
			   { copy_avx512, flush_clwb, drain_sfence } },
};
static const char *const names[STORE_KINDS][FLUSH_KINDS] = {
	[STORE_SSE2] = { "sse2+clflush", "sse2+clflushopt", "sse2+clwb" },
	[STORE_AVX] = { "avx+clflush", "avx+clflushopt", "avx+clwb" },
	[STORE_AVX512] = { "avx512+clflush", "avx512+clflushopt", "avx512+clwb" },
};

const struct pool_ops *pool_ops = &tables[STORE_SSE2][FLUSH_CLFLUSH];

/* The best that processor and operating system have. */
static void detect(enum store_kind *ret_store, enum flush_kind *ret_flush)
{
	struct cpu cpu = cpu_look();

	*ret_store = cpu.avx512 ? STORE_AVX512 : cpu.avx ? STORE_AVX : STORE_SSE2;
	*ret_flush = cpu.clwb ? FLUSH_CLWB : cpu.clflushopt ? FLUSH_CLFLUSHOPT : FLUSH_CLFLUSH;
}

void pool_ops_select(void)
{
	enum store_kind store;
	enum flush_kind flush;

#ifdef POOL_SIM
	pool_ops = &sim_ops;
	return;
#endif
	detect(&store, &flush);
	pool_ops = &tables[store][flush];
}

const struct pool_ops *pool_ops_nth(unsigned i)
{
	enum store_kind store;
	enum flush_kind flush;
	unsigned per_store;

	detect(&store, &flush);
	per_store = (unsigned)flush + 1;
	if (i >= ((unsigned)store + 1) * per_store)
		return NULL;
	return &tables[i / per_store][i % per_store];
}

const char *pool_ops_name(void)
{
#ifdef POOL_SIM
	if (pool_ops == &sim_ops)
		return "simulated";
#endif
	for (unsigned s = 0; s < STORE_KINDS; s++)
		for (unsigned f = 0; f < FLUSH_KINDS; f++)
			if (pool_ops == &tables[s][f])
				return names[s][f];
	return "other";
}
