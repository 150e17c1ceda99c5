/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/medium.h"

#include <stdlib.h>
#include <string.h>

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
	if (at % LANE_ALIGN != 0 || n % IMAGE_WORD != 0 || at + n > MEDIUM_BYTES)
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

/* The interface promises old or new words; a record must not depend on it. The header's lines do. */
static void trash_line(struct medium *m, unsigned line, struct rng *r)
{
	size_t at = (size_t)line * LANE_ALIGN;
	unsigned words = (unsigned)rng_next(r);

	memcpy(m->image + at, m->work + at, LANE_ALIGN);
	for (size_t w = 0; at >= LANE_HEADER_BYTES && w < LANE_ALIGN;
	     w += IMAGE_WORD, words >>= 1) {
		uint64_t random = rng_next(r);

		if (words & 1)
			memcpy(m->image + at + w, &random, IMAGE_WORD);
	}
}

void medium_image(struct medium *m, enum image_kind kind, unsigned which, struct rng *r)
{
	uint32_t chance = image_chance(r);

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
			image_mix(m->image + at, m->work + at,
				  m->pending[line] ? m->flown + at : NULL, kind == IMAGE_WORDS,
				  chance, r);
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
