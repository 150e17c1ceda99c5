/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of room and wakes: tests/models/space.pml. */
#include "pool/append.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/overflow.h"
#include "pool/append_internal.h"
#include "pool/crc.h"
#include "pool/lanelock.h"
#include "pool/ops.h"
#include "pool/space.h"

#define BOUNCE_BYTES 2048u /* picked: fits L1 and our stack limit; a multiple of 64 */

/* Where in the caller's iov the copy stands. */
struct cursor {
	const struct iovec *iov;
	int left;
	size_t offset;
};

static void gather(struct cursor *c, uint8_t *dst, size_t n)
{
	while (n > 0 && c->left > 0) {
		size_t part = min_of(n, c->iov->iov_len - c->offset);

		memcpy(dst, (const uint8_t *)c->iov->iov_base + c->offset, part);
		dst += part;
		n -= part;
		c->offset += part;
		if (c->offset == c->iov->iov_len) {
			c->iov++;
			c->left--;
			c->offset = 0;
		}
	}
}

static int check_request(const struct session *s, const struct append_request *r)
{
	uint64_t sum = 0;

	if (r->type == RECORD_PAD || r->type < RECORD_WRITE || r->type > RECORD_LINES ||
	    (r->flags & ~RECORD_INLINE) != 0 || r->offset > (uint64_t)INT64_MAX - r->length ||
	    r->length > s->lane.ring_size / 8)
		return -EINVAL;
	if (r->length != 0 && r->type != RECORD_WRITE && r->type != RECORD_LINES)
		return -EINVAL;
	for (int i = 0; i < r->iovcnt && sum < r->length; i++)
		sum += r->iov[i].iov_len;
	return sum < r->length ? -EINVAL : 0;
}

/*
 * Bytes that stay free behind the record: so that each live file finds room for its FENCE, whatever the
 * others do. A file with live records has two lines of its own; they are what FENCE and UNLINK may take.
 */
static uint64_t kept_for_others(const struct session *s, const struct ctl_file *f, uint16_t type)
{
	const struct ctl_hot *hot = s->ctl.hot;
	uint64_t all = hot->reserved_bytes + (uint64_t)SPACE_FILE_RESERVE * hot->live_files;

	/* Trimmed, perhaps since its caller looked at it: no line is its own, and what is free beside the
	 * reserve may be another's. A FENCE does not make it live again; anything else does. */
	if (f && !space_file_live(s, f))
		return type == RECORD_FENCE ? all : all + SPACE_FILE_RESERVE;
	if (type == RECORD_FENCE)
		return 0;
	/* One of its own, and never another's FENCE: the UNLINK of a call that failed stays, and such
	 * calls may come again and again. */
	if (type == RECORD_UNLINK)
		return (uint64_t)RECORD_HEADER_BYTES * hot->live_files;
	return all;
}

int append_place(const struct session *s, const struct ctl_file *f, const struct append_request *r,
		 struct ctl_cell cell, struct place *ret)
{
	const struct ctl_hot *hot = s->ctl.hot;
	/* Acquire: pairs with space_publish_tail; the room below it may be stored to. */
	uint64_t used = cell.head - atomic_load_acquire(&hot->tail);
	uint64_t ring = s->lane.ring_size;
	uint64_t need = record_bytes(r->length);
	uint64_t to_end = ring - cell.head % ring;
	uint64_t pad = need > to_end ? to_end : 0;
	uint64_t kept = kept_for_others(s, f, r->type);

	if (cell.head % LANE_ALIGN != 0 || used > ring)
		return -EPROTO;
	if (kept > ring - used || pad + need > ring - used - kept)
		return APPEND_FULL;

	ret->head = ret->drained = cell.head;
	ret->chain = cell.chain;
	ret->position = cell.head + pad;
	ret->end = ret->position + need;
	return APPEND_OK;
}

/* CRC of everything behind the CRC field. */
static uint32_t begin_crc(const struct record_header *h)
{
	return crc32c(0, &h->type, sizeof(*h) - offsetof(struct record_header, type));
}

/* Fills the ring up to its end, so that the record does not wrap. Not drained. Returns its CRC. */
static uint32_t store_pad(struct session *s, const struct place *at, uint64_t now)
{
	struct record_header h __attribute__((aligned(64))) = {
		.type = RECORD_PAD,
		.incarnation = s->lane.incarnation,
		.position = at->head,
		.length = (uint32_t)(at->position - at->head - RECORD_HEADER_BYTES),
		.chain = at->chain,
		.time_ns = now,
		.drained = at->drained,
	};

	h.crc = begin_crc(&h);
	pool_ops->copy(lane_at(&s->lane, at->head), &h, sizeof(h));
	/* Relaxed: a counter that status shows; written under the lane lock. */
	atomic_store_relaxed(&s->ctl.hot->wraps, s->ctl.hot->wraps + 1);
	return h.crc;
}

uint32_t append_store(struct session *s, const struct append_request *r, uint64_t file_id,
		      const struct place *at, uint64_t now)
{
	uint8_t bounce[BOUNCE_BYTES] __attribute__((aligned(64)));
	struct record_header h __attribute__((aligned(64))) = {
		.type = r->type,
		.flags = r->flags,
		.incarnation = s->lane.incarnation,
		.position = at->position,
		.file_id = file_id,
		.offset = r->offset,
		.length = r->length,
		.chain = at->chain,
		.time_ns = now,
		.drained = at->drained,
	};
	struct cursor from = { .iov = r->iov, .left = r->iovcnt };
	uint8_t *base = lane_at(&s->lane, at->position);
	uint8_t *to = base + RECORD_HEADER_BYTES;
	uint32_t crc, left = r->length;

	if (at->position != at->head)
		h.chain = store_pad(s, at, now);
	crc = begin_crc(&h);
	while (left > 0) {
		uint32_t n = min_of(left, BOUNCE_BYTES);
		uint32_t whole = align_up(n, LANE_ALIGN);

		/* The caller's memory is read here and only here: it may change underfoot. */
		gather(&from, bounce, n);
		memset(bounce + n, 0, whole - n);
		crc = crc32c(crc, bounce, n);
		pool_ops->copy(to, bounce, whole);
		to += whole;
		left -= n;
	}
	h.crc = crc;
	pool_ops->copy(base, &h, sizeof(h));
	return crc;
}

/* Payload, then header; durable on return. Returns the record's CRC. */
static uint32_t store_record(struct session *s, const struct append_request *r, uint64_t file_id,
			     const struct place *at, uint64_t now)
{
	uint32_t crc = append_store(s, r, file_id, at, now);

	/* One barrier for all: afterwards PAD, payload and header are durable. */
	pool_ops->drain();
	return crc;
}

void append_note(struct session *s, struct ctl_file *f, const struct append_request *r,
		 const struct place *at)
{
	struct ctl_hot *hot = s->ctl.hot;
	bool was_live = space_file_live(s, f);
	/* Relaxed, here and below: under the lane lock and the file's. Who reads an entry without them has
	 * seen the head that is published behind (publish, release). */
	uint32_t live = atomic_load_relaxed(&hot->live_files);

	if (r->type != RECORD_FENCE) {
		if (!was_live) {
			/* Not the position behind a PAD: should we die before head is published, the next
			 * record, maybe without a PAD, stands at head. */
			atomic_store_relaxed(&f->first, at->head);
			atomic_store_relaxed(&hot->live_files, live + 1);
		}
		atomic_store_relaxed(&f->last, at->end);
	}
	/* stores and no locked additions: the file lock keeps other writers away */
	atomic_store_relaxed(&f->records, f->records + 1);
	atomic_store_relaxed(&f->bytes, f->bytes + r->length);
}

/* A FENCE's, after head is published: a death in between has the record struck out at head, and an
 * entry that already believed in it would keep everybody from writing another one. */
static void note_fence(struct session *s, struct ctl_file *f, uint64_t below)
{
	struct ctl_hot *hot = s->ctl.hot;
	bool was_live = space_file_live(s, f);
	uint32_t live = atomic_load_relaxed(&hot->live_files);

	atomic_store_relaxed(&f->fence, below); /* relaxed: under the lane lock and the file's */
	if (was_live && !space_file_live(s, f) && live > 0)
		atomic_store_relaxed(&hot->live_files, live - 1);
}

/* The cell that nobody reads, then the index. */
void append_publish(struct ctl_hot *hot, const struct place *at, uint32_t crc)
{
	uint32_t next = atomic_load_relaxed(&hot->index) + 1;
	struct ctl_cell *cell = &hot->cell[next & 1];

	/* Release: pairs with the loads in control_head; a reader that sees one of these two sees
	 * that index moved since it chose this cell. */
	atomic_store_release(&cell->head, at->end);
	atomic_store_release(&cell->chain, crc);
	/* Release: the record and the entry come first. Pairs with control_head. */
	atomic_store_release(&hot->index, next);
}

/* True if the destager was asleep, wants to be woken by this record, and is ours to wake. */
static bool claims_destager(const struct session *s, uint64_t head)
{
	struct ctl_hot *hot = s->ctl.hot;
	/* We: publish, then look at asleep; the destager: store asleep, then look at head. Between
	 * our two stands the exchange of lane_unlock, a full barrier on the one processor family
	 * that this is built for; so one of the two sees the other. */
	uint32_t asleep = atomic_load_seq(&hot->asleep);

	if (asleep == 0)
		return false;
	/* 1, 3: by every record */
	if (asleep == 2 && head - atomic_load_relaxed(&hot->tail) <= s->lane.ring_size / 4)
		return false;
	/* One of those who see it: pairs with the exchange of each other waker. */
	return atomic_xchg_seq(&hot->asleep, 0) != 0;
}

void append_wake(const struct session *s, uint64_t head)
{
	if (claims_destager(s, head))
		(void)futex_wake(&s->ctl.hot->asleep, 1);
}

int append_record(struct session *s, const struct caller *who, struct ctl_file *f, uint64_t file_id,
		  const struct append_request *r, uint64_t *ret_position)
{
	struct ctl_hot *hot = s->ctl.hot;
	struct place at;
	uint64_t now;
	uint32_t crc;
	int rc = check_request(s, r);

	if (rc < 0)
		return rc;
	/* After the real call, before any wait for the lock: never later than the record is. The
	 * kernel takes ctime from the same coarse clock, and it costs a third. */
	now = now_coarse_ns();
	if (f)
		file_id = atomic_load_relaxed(&f->id);

	rc = lane_lock(s, who);
	if (rc < 0)
		return rc;
	/* Relaxed: a step of the daemon raises it under this lock, before it takes head. */
	if (r->type == RECORD_LINES && r->rule_f != atomic_load_relaxed(&hot->rule_f)) {
		lane_unlock(s);
		return APPEND_NO_BASE;
	}
	/* written after the drain; another processor may have it now */
	__builtin_prefetch(&hot->last_ns, 1);
	if (r->reserved)
		space_give_back_locked(s, r->reserved);
	rc = append_place(s, f, r, control_head(&s->ctl), &at);
	if (rc != APPEND_OK) {
		lane_unlock(s);
		return rc;
	}

	crc = store_record(s, r, file_id, &at, now);
	if (f)
		append_note(s, f, r, &at);
	/* Relaxed: last_ns is a hint to file_touch_before, the others are counters; under the lane lock. */
	atomic_store_relaxed(&hot->last_ns, now);
	atomic_store_relaxed(&hot->records, hot->records + 1);
	atomic_store_relaxed(&hot->bytes, hot->bytes + r->length);
	append_publish(hot, &at, crc);
	if (f && r->type == RECORD_FENCE)
		note_fence(s, f, r->offset);
	lane_unlock(s);

	append_wake(s, at.end);
	if (ret_position)
		*ret_position = at.position;
	return APPEND_OK;
}
