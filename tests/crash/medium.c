/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/medium.h"

#include <stdlib.h>
#include <string.h>

#define WORD 8u

const char *const image_names[IMAGE_KINDS] = { "none",	  "flushed", "all",   "one in",
					       "one out", "lines",   "words", "trash" };

static struct medium *now;
static void (*step)(void);

void medium_use(struct medium *m, void (*after_store)(void))
{
	now = m;
	step = after_store;
}

void medium_clear(struct medium *m)
{
	memset(m, 0, sizeof(*m));
}

static void list_line(struct medium *m, unsigned line)
{
	if (m->listed[line])
		return;
	m->listed[line] = 1;
	m->list[m->count++] = (uint16_t)line;
}

static void start_line(struct medium *m, unsigned line)
{
	memcpy(m->flown + line * LANE_ALIGN, m->work + line * LANE_ALIGN, LANE_ALIGN);
	m->pending[line] = (uint8_t)(m->thread + 1);
	list_line(m, line);
}

static void sim_copy(void *dst, const void *src, size_t n)
{
	struct medium *m = now;
	size_t at = (size_t)((uint8_t *)dst - m->work);
	const uint8_t *from = src;

	/* What the interface promises to the stores of the real table. */
	if (at % LANE_ALIGN != 0 || n % WORD != 0 || at + n > MEDIUM_BYTES)
		abort();
	while (n > 0) {
		size_t part = n < LANE_ALIGN ? n : LANE_ALIGN;

		memcpy(m->work + at, from, part);
		start_line(m, (unsigned)(at / LANE_ALIGN));
		at += part;
		from += part;
		n -= part;
		m->version++;
		step();
	}
}

static void sim_flush(const void *p, size_t n)
{
	struct medium *m = now;
	size_t at = (size_t)((const uint8_t *)p - m->work);

	for (size_t line = at / LANE_ALIGN; line * LANE_ALIGN < at + n; line++)
		start_line(m, (unsigned)line);
	m->version++;
	step();
}

static void sim_drain(void)
{
	struct medium *m = now;
	unsigned kept = 0;

	for (unsigned i = 0; i < m->count; i++) {
		unsigned line = m->list[i];
		size_t at = (size_t)line * LANE_ALIGN;

		if (m->pending[line] == m->thread + 1) {
			memcpy(m->safe + at, m->flown + at, LANE_ALIGN);
			memcpy(m->image + at, m->flown + at, LANE_ALIGN);
			m->pending[line] = 0;
		}
		if (m->pending[line] || memcmp(m->work + at, m->safe + at, LANE_ALIGN) != 0)
			m->list[kept++] = (uint16_t)line;
		else
			m->listed[line] = 0;
	}
	m->count = kept;
	m->version++;
	step();
}

const struct pool_ops medium_ops = { sim_copy, sim_flush, sim_drain };

/* Each word, or all of a line, new with a chance out of 256; sometimes as it was when flushed. */
static void mix_line(struct medium *m, unsigned line, bool by_word, uint32_t chance, struct rng *r)
{
	uint64_t c = rng_next(r);

	for (size_t w = 0; w < LANE_ALIGN; w += WORD) {
		size_t at = (size_t)line * LANE_ALIGN + w;
		const uint8_t *from = m->work;

		if (by_word)
			c = rng_next(r);
		if (m->pending[line] && (c & 0x100))
			from = m->flown;
		if ((c & 0xff) < chance)
			memcpy(m->image + at, from + at, WORD);
	}
}

/* The interface promises old or new words; a record must not depend on it. The header's lines do. */
static void trash_line(struct medium *m, unsigned line, struct rng *r)
{
	size_t at = (size_t)line * LANE_ALIGN;
	unsigned words = (unsigned)rng_next(r);

	memcpy(m->image + at, m->work + at, LANE_ALIGN);
	for (size_t w = 0; at >= LANE_HEADER_BYTES && w < LANE_ALIGN; w += WORD, words >>= 1) {
		uint64_t random = rng_next(r);

		if (words & 1)
			memcpy(m->image + at + w, &random, WORD);
	}
}

void medium_image(struct medium *m, enum image_kind kind, unsigned which, struct rng *r)
{
	static const uint32_t chances[] = { 0x30, 0x80, 0xd0 }; /* few, half, most */
	uint32_t chance = chances[rng_below(r, 3)];

	for (unsigned i = 0; i < m->count; i++) {
		unsigned line = m->list[i];
		size_t at = (size_t)line * LANE_ALIGN;
		const uint8_t *from = NULL;

		switch (kind) {
		case IMAGE_FLUSHED:
			from = m->pending[line] ? m->flown : NULL;
			break;
		case IMAGE_ALL:
			from = m->work;
			break;
		case IMAGE_ONE_IN:
			from = i == which ? m->work : NULL;
			break;
		case IMAGE_ONE_OUT:
			from = i != which ? m->work : NULL;
			break;
		case IMAGE_LINES:
		case IMAGE_WORDS:
			mix_line(m, line, kind == IMAGE_WORDS, chance, r);
			break;
		case IMAGE_TRASH:
			/* some whole, so that the others stand beside a record that is nearly there */
			if (rng_one_in(r, 2))
				trash_line(m, line, r);
			else
				from = m->work;
			break;
		case IMAGE_NONE:
		case IMAGE_KINDS:
			break;
		}
		if (from)
			memcpy(m->image + at, from + at, LANE_ALIGN);
	}
}

void medium_restore(struct medium *m)
{
	for (unsigned i = 0; i < m->count; i++) {
		size_t at = (size_t)m->list[i] * LANE_ALIGN;

		memcpy(m->image + at, m->safe + at, LANE_ALIGN);
	}
}
