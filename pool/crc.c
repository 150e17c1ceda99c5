/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/crc.h"

#include <immintrin.h>
#include <string.h>

#include "base/atomic.h"
#include "pool/cpu.h"
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

/* From here on folding 256 bytes at a time pays. Measured. */
#define FOLD_MIN 384u

/* Moves the 128-bit blocks of x on by the distance of k and adds what stands there. */
__attribute__((target("avx512f,vpclmulqdq"))) static inline __m512i fold(__m512i x, __m512i k,
									 __m512i next)
{
	__m512i low = _mm512_clmulepi64_epi128(x, k, 0x00);
	__m512i high = _mm512_clmulepi64_epi128(x, k, 0x11);

	return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* xor of three */
}

/* Distance in 8-byte words. The low half of a block stands 8 bytes before its high half. */
__attribute__((target("avx512f"))) static inline __m512i fold_by(unsigned words)
{
	return _mm512_broadcast_i32x4(_mm_set_epi64x(crc32c_shift[words], crc32c_shift[words + 1]));
}

/* Not for AddressSanitizer: its fake frames (use after return) are not aligned for 64-byte spills, and gcc 12
 * crashes here. It reads the n bytes that it was given and nothing else. */
__attribute__((no_sanitize_address, target("avx512f,vpclmulqdq,pclmul,sse4.2"))) static uint32_t
crc_fold(uint32_t crc, const uint8_t *p, size_t n)
{
	__m512i x0, x1, x2, x3, by256, by64;
	uint64_t block[8], c;

	if (n < FOLD_MIN)
		return crc_streams(crc, p, n);

	by256 = fold_by(32);
	by64 = fold_by(8);
	x0 = _mm512_xor_si512(_mm512_loadu_si512(p),
			      _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	x1 = _mm512_loadu_si512(p + 64);
	x2 = _mm512_loadu_si512(p + 128);
	x3 = _mm512_loadu_si512(p + 192);
	for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
		x0 = fold(x0, by256, _mm512_loadu_si512(p));
		x1 = fold(x1, by256, _mm512_loadu_si512(p + 64));
		x2 = fold(x2, by256, _mm512_loadu_si512(p + 128));
		x3 = fold(x3, by256, _mm512_loadu_si512(p + 192));
	}
	x1 = fold(x0, by64, x1);
	x2 = fold(x1, by64, x2);
	x3 = fold(x2, by64, x3);
	for (; n >= 64; p += 64, n -= 64)
		x3 = fold(x3, by64, _mm512_loadu_si512(p));

	/* What is left has the CRC of all before it. */
	_mm512_storeu_si512(block, x3);
	c = 0;
	for (unsigned i = 0; i < 8; i++)
		c = _mm_crc32_u64(c, block[i]);
	return crc_tail((uint32_t)c, p, n);
}

/* The ways that this processor has, slowest first; NULL behind the last. */
static crc_function *crc_nth(unsigned i)
{
	struct cpu cpu = cpu_look();
	crc_function *ways[4] = { crc_table };
	unsigned n = 1;

	if (cpu.sse42)
		ways[n++] = crc_tail;
	if (cpu.sse42 && cpu.pclmul)
		ways[n++] = crc_streams;
	if (cpu.sse42 && cpu.pclmul && cpu.vpclmul512)
		ways[n++] = crc_fold;
	return i < n ? ways[i] : NULL;
}

static uint32_t crc_pick(uint32_t crc, const uint8_t *p, size_t n)
{
	crc_function *f, *best = crc_table;

	for (unsigned i = 0; (f = crc_nth(i)); i++)
		best = f;
	atomic_store_relaxed(&crc_impl, best);
	return best(crc, p, n);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
	/* relaxed: whichever function is seen gives the same result */
	return ~atomic_load_relaxed(&crc_impl)(~crc, data, n);
}

bool crc32c_use(unsigned i)
{
	crc_function *f = crc_nth(i);

	if (f)
		atomic_store_relaxed(&crc_impl, f);
	return f;
}
