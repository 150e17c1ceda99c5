/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/record.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "pool/crc.h"

#define CRC_FIRST 4u /* the CRC field itself is not covered */

static uint32_t header_crc(const struct record_header *h)
{
	return crc32c(0, (const uint8_t *)h + CRC_FIRST, sizeof(*h) - CRC_FIRST);
}

/* Type, flags, lengths: whether a header that stands `room` bytes before the ring's end makes sense. */
static int check_bounds(const struct record_header *h, uint64_t ring_size, uint64_t room)
{
	if (h->flags & ~RECORD_INLINE || h->drained > h->position)
		return -EBADMSG;

	switch (h->type) {
	case RECORD_PAD:
		/* reaches exactly to the ring's end */
		return h->length == room - RECORD_HEADER_BYTES && h->file_id == 0 ? 0 : -EBADMSG;
	case RECORD_FENCE:
		return h->length == 0 && h->offset <= h->position ? 0 : -EBADMSG;
	case RECORD_TOUCH:
	case RECORD_UNLINK:
		return h->length == 0 ? 0 : -EBADMSG;
	case RECORD_LINES:
		/* a block of whole lines, a map, at most all of them */
		if (h->offset % LINES_LINE != 0 || h->length < LINES_MAP_BYTES ||
		    (h->length - LINES_MAP_BYTES) % LINES_LINE != 0 ||
		    h->length > LINES_MAP_BYTES + LINES_MAX * LINES_LINE)
			return -EBADMSG;
		if (h->offset > (uint64_t)INT64_MAX - LINES_MAX * LINES_LINE)
			return -EBADMSG;
		__attribute__((fallthrough));
	case RECORD_WRITE:
		if (h->length > ring_size / 8 || record_bytes(h->length) > room)
			return -EBADMSG;
		return h->offset <= (uint64_t)INT64_MAX - h->length ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

int record_check(const struct lane *l, uint64_t position, uint64_t tail, struct record_header *ret)
{
	const uint8_t *p = lane_at(l, position);
	uint64_t room = l->ring_size - position % l->ring_size;
	struct record_header h;
	uint32_t crc;

	if (position % LANE_ALIGN != 0 || position < tail || position - tail >= l->ring_size)
		return -EBADMSG;

	memcpy(&h, p, sizeof(h));
	__asm__ volatile("" ::: "memory"); /* what is checked is the copy, not a second read */

	if (h.position != position || h.incarnation != l->incarnation)
		return -EBADMSG;
	if (check_bounds(&h, l->ring_size, room) < 0)
		return -EBADMSG;
	/* its end lies in the window too: [position, position + ring) reaches over the tail's place */
	if (position - tail + record_bytes(h.length) > l->ring_size)
		return -EBADMSG;

	crc = header_crc(&h);
	if (h.type != RECORD_PAD)
		crc = crc32c(crc, p + RECORD_HEADER_BYTES, h.length);
	if (crc != h.crc)
		return -EBADMSG;
	*ret = h;
	return 0;
}

int record_payload(const struct lane *l, const struct record_header *record, void *dst)
{
	if (record->type == RECORD_PAD)
		return -EBADMSG;
	memcpy(dst, lane_at(l, record->position) + RECORD_HEADER_BYTES, record->length);
	__asm__ volatile("" ::: "memory"); /* the CRC is the copy's */
	return crc32c(header_crc(record), dst, record->length) == record->crc ? 0 : -EBADMSG;
}

static bool has_line(const uint8_t *map, uint32_t line)
{
	return line < LINES_MAX && map[line / 8] & (1u << (line % 8));
}

int lines_next(const void *payload, uint32_t length, struct lines_run *run)
{
	const uint8_t *map = payload;
	uint32_t lines, n = 0;

	if (length < LINES_MAP_BYTES || (length - LINES_MAP_BYTES) % LINES_LINE != 0)
		return -EBADMSG;
	lines = (length - LINES_MAP_BYTES) / LINES_LINE;
	while (run->line < LINES_MAX && !has_line(map, run->line))
		run->line++;
	while (has_line(map, run->line + n))
		n++;
	if (n == 0)
		return run->taken == lines ? 0 : -EBADMSG;
	if (n > lines - run->taken)
		return -EBADMSG;
	run->offset = run->line * LINES_LINE;
	run->length = n * LINES_LINE;
	run->bytes = map + LINES_MAP_BYTES + (size_t)run->taken * LINES_LINE;
	run->line += n;
	run->taken += n;
	return 1;
}
