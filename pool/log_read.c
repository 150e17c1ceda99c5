/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/log_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "pool/record.h"

int log_buffer_room(struct log_buffer *b, uint32_t n)
{
	uint8_t *more;

	if (n <= b->room)
		return 0;
	more = realloc(b->bytes, n);
	if (!more)
		return -ENOMEM;
	b->bytes = more;
	b->room = n;
	return 0;
}

void log_buffer_free(struct log_buffer *b)
{
	free(b->bytes);
	*b = (struct log_buffer){ .bytes = NULL };
}

static uint64_t tail_now(const struct session *s)
{
	/* The copy comes before this look: had the room been used again, the tail that allowed it would be
	 * seen. Pairs with the release in space_publish_tail and the acquire in append_place. */
	atomic_fence_acquire();
	return atomic_load_acquire(&s->ctl.hot->tail);
}

/* A header below head, as far as it takes to get to the next one. 1; 0: trimmed meanwhile. */
static int look(const struct session *s, uint64_t position, struct record_header *ret)
{
	uint64_t ring = s->lane.ring_size;

	memcpy(ret, lane_at(&s->lane, position), sizeof(*ret));
	if (tail_now(s) > position)
		return 0;
	if (ret->position != position || ret->incarnation != s->lane.incarnation ||
	    ret->length > ring - RECORD_HEADER_BYTES ||
	    record_bytes(ret->length) > ring - position % ring)
		return -EBADMSG;
	return 1;
}

static bool is_mine(const struct log_ref *r, const struct record_header *h)
{
	return h->type == RECORD_WRITE && h->file_id == r->id;
}

/* From `position` on. As log_lane_read. */
static int walk(const struct session *s, const struct log_ref *r, struct log_place *place,
		uint64_t position, uint64_t lsn, struct record_header *ret)
{
	uint64_t head = control_head(&s->ctl).head;

	while (position < head) {
		int rc = look(s, position, ret);

		if (rc <= 0)
			return rc;
		if (is_mine(r, ret)) {
			*place = (struct log_place){ position, ret->offset, true };
			if (ret->offset > lsn)
				return 0; /* below the first that is here */
			if (lsn - ret->offset < ret->length)
				return 1;
		}
		position += record_bytes(ret->length);
	}
	return 0;
}

int log_lane_read(const struct session *s, const struct log_ref *r, struct log_place *place,
		  uint64_t lsn, struct log_buffer *b, struct record_header *ret, uint32_t *ret_need)
{
	uint64_t from = tail_now(s);
	int rc;

	if (place->known && place->position >= from && place->lsn <= lsn)
		from = place->position;
	rc = walk(s, r, place, from, lsn, ret);
	if (rc <= 0)
		return rc;
	if (ret->length > b->room) {
		*ret_need = ret->length;
		return -ENOBUFS;
	}
	rc = record_payload(&s->lane, ret, b->bytes);
	if (tail_now(s) > ret->position)
		return 0;
	return rc < 0 ? rc : 1;
}
