/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/record.h"

#include <errno.h>
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
	case RECORD_WRITE:
	case RECORD_LINES:
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
