/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What a power cut may leave of a line of persistent memory: shared by the simulator in one process
 * (medium.c) and the one that real processes run under (tests/support/simcut.c). */

#include <stdint.h>
#include <string.h>

#include "tests/crash/random.h"

#define IMAGE_LINE 64u
#define IMAGE_WORD 8u

enum image_kind {
	IMAGE_NONE,    /* nothing that was not drained */
	IMAGE_FLUSHED, /* all that was on its way, nothing else */
	IMAGE_ALL,     /* what the program sees: a killed process, no power cut */
	IMAGE_ONE_IN,  /* one line made it */
	IMAGE_ONE_OUT, /* one line did not */
	IMAGE_LINES,   /* each line by chance */
	IMAGE_WORDS,   /* each word by chance */
	IMAGE_TRASH,   /* lines of records that were not drained: random bytes in some words */
	IMAGE_KINDS,
};

/* Few, half or most words new: a chance out of 256 for image_mix. */
static inline uint32_t image_chance(struct rng *r)
{
	static const uint32_t chances[] = { 0x30, 0x80, 0xd0 };

	return chances[rng_below(r, 3)];
}

/* Each word of `to`, or all of the line, new with a chance out of 256; sometimes as it was when flushed.
 * flown: NULL when nothing of the line is on its way. */
static inline void image_mix(uint8_t *to, const uint8_t *work, const uint8_t *flown, bool by_word,
			     uint32_t chance, struct rng *r)
{
	uint64_t c = rng_next(r);

	for (size_t at = 0; at < IMAGE_LINE; at += IMAGE_WORD) {
		if (by_word)
			c = rng_next(r);
		if ((c & 0xff) < chance)
			memcpy(to + at, (flown && (c & 0x100) ? flown : work) + at, IMAGE_WORD);
	}
}
