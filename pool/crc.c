/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/crc.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "base/atomic.h"
#include "pool/crc_tables.h"

typedef uint32_t crc_function(uint32_t crc, const uint8_t *p, size_t n);

static uint32_t crc_pick(uint32_t crc, const uint8_t *p, size_t n);

/* Starts at the function that picks; relaxed, since every racer stores the same pointer. */
static crc_function *crc_impl = crc_pick;

static uint32_t crc_table(uint32_t crc, const uint8_t *p, size_t n)
{
	while (n--)
		crc = crc >> 8 ^ crc32c_byte[(crc ^ *p++) & 0xff];
	return crc;
}

static inline uint64_t load_word(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, 8);
	return word;
}

/* Words of one stream: the shift table reaches twice as far. */
#define STREAM_WORDS_MAX 127u
/* Below so many words the merge costs more than the latency that three streams hide. Measured. */
#define STREAM_WORDS_MIN 6u

__attribute__((target("sse4.2"))) static uint32_t crc_tail(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t c = crc;

	for (; n >= 8; n -= 8, p += 8)
		c = _mm_crc32_u64(c, load_word(p));
	crc = (uint32_t)c;
	if (n & 4) {
		uint32_t word;

		memcpy(&word, p, 4);
		crc = _mm_crc32_u32(crc, word);
		p += 4;
	}
	for (n &= 3; n; n--)
		crc = _mm_crc32_u8(crc, *p++);
	return crc;
}

/*
 * The crc32 instruction takes 3 cycles and one can start in each: three streams side by side, merged
 * by carry-less multiplication with x^(distance) (Gopal et al., "Fast CRC computation for iSCSI").
 */
__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_streams(uint32_t crc, const uint8_t *p,
								     size_t n)
{
	while (n >= 24 * STREAM_WORDS_MIN) {
		size_t words = n / 24 < STREAM_WORDS_MAX ? n / 24 : STREAM_WORDS_MAX;
		const uint8_t *q = p + 8 * words, *r = q + 8 * words;
		uint64_t a = crc, b = 0, c = 0;
		__m128i far, near;

		for (size_t i = 0; i < words; i++) {
			a = _mm_crc32_u64(a, load_word(p + 8 * i));
			b = _mm_crc32_u64(b, load_word(q + 8 * i));
			c = _mm_crc32_u64(c, load_word(r + 8 * i));
		}
		far = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)a),
					   _mm_cvtsi32_si128((int)crc32c_shift[2 * words]), 0);
		near = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(uint32_t)b),
					    _mm_cvtsi32_si128((int)crc32c_shift[words]), 0);
		crc = (uint32_t)_mm_crc32_u64(
			0, (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(far, near)));
		crc ^= (uint32_t)c;
		p += 24 * words;
		n -= 24 * words;
	}
	return crc_tail(crc, p, n);
}

static uint32_t crc_pick(uint32_t crc, const uint8_t *p, size_t n)
{
	crc_function *f = crc_table;
	unsigned a, b, c, d;

	if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2))
		f = (c & bit_PCLMUL) ? crc_streams : crc_tail;
	atomic_store_relaxed(&crc_impl, f);
	return f(crc, p, n);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
	/* relaxed: whichever function is seen gives the same result */
	return ~atomic_load_relaxed(&crc_impl)(~crc, data, n);
}
