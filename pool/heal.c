/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Heal: the page cache may have lost what a failed sync left in it, the lane has not. Two passes over
 * the lane: list the file's live records, then write them newest first, each byte once, so that no
 * reader ever sees a byte older than what was there. When, and what else it takes: tests/models/fence.pml.
 */

#include "pool/heal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/sys.h"
#include "pool/file_internal.h"
#include "pool/image.h"
#include "pool/interval.h"
#include "pool/record.h"
#include "pool/walk.h"

#define BEGIN_ANEW 1  /* the daemon trimmed what was about to be read */
#define ANEW_MAX   64 /* a trim comes once in a while; only a hostile peer gets there */

struct heal {
	struct session *s;
	struct file_ref *r;
	struct scratch list; /* struct record_header, oldest first */
	size_t count;
	struct interval_set done; /* bytes that need nothing older */
	struct scratch payload;
};

/* True if the daemon has trimmed past `position` since the lane was read there. */
static bool trimmed_past(const struct heal *h, uint64_t position)
{
	/* Acquire pairs with space_publish_tail. Published before room is given away, so a record
	 * that was overwritten is below it. */
	return atomic_load_acquire(&h->s->ctl.hot->tail) > position;
}

static int list_add(struct heal *h, const struct record_header *record)
{
	struct record_header *list;

	if (scratch_grow(&h->list, (h->count + 1) * sizeof(*list)) < 0)
		return -ENOMEM;
	list = h->list.base;
	list[h->count++] = *record;
	return 0;
}

/* Drops what a FENCE says is durable. */
static void list_fence(struct heal *h, uint64_t below)
{
	struct record_header *list = h->list.base;
	size_t kept = 0;

	for (size_t i = 0; i < h->count; i++)
		if (list[i].position >= below)
			list[kept++] = list[i];
	h->count = kept;
}

static int list_from(struct heal *h, const struct lane_tail_found *from)
{
	const struct ctl_file *f = h->r->f;
	struct record_header record;
	struct walk w;
	int rc;

	h->count = 0;
	walk_begin(&w, &h->s->lane, from->tail, from->chain, control_head(&h->s->ctl).head);
	while ((rc = walk_next(&w, &record)) == WALK_RECORD) {
		if (record.type == RECORD_PAD || record.file_id != h->r->id)
			continue;
		if (record.type == RECORD_FENCE)
			list_fence(h, record.offset);
		else if (record.type == RECORD_WRITE || record.type == RECORD_LINES)
			if (list_add(h, &record) < 0)
				return -ENOMEM;
	}
	if (rc != WALK_END)
		return trimmed_past(h, from->tail) ? BEGIN_ANEW : -EBADMSG;
	list_fence(h, f->fence);
	return 0;
}

static int list_records(struct heal *h)
{
	struct lane_tail_found tail[2], again[2];
	int n = lane_tail_read(&h->s->lane, tail);
	int rc = -EBADMSG;

	/* Two candidates: the daemon is writing the line just now, or died doing so. */
	for (int i = 0; i < n; i++) {
		rc = list_from(h, &tail[i]);
		if (rc != -EBADMSG)
			return rc;
	}
	/* A line caught half written is no damage. */
	if (lane_tail_read(&h->s->lane, again) != n)
		return BEGIN_ANEW;
	for (int i = 0; i < n; i++)
		if (again[i].tail != tail[i].tail || again[i].chain != tail[i].chain)
			return BEGIN_ANEW;
	return n < 0 ? n : rc;
}

static int write_all(struct heal *h, const uint8_t *data, uint64_t n, uint64_t offset)
{
	while (n) {
		struct iovec iov = { (void *)(uintptr_t)data, n };
		ssize_t rc = h->s->io->pwritev(h->r->fd, &iov, 1, (int64_t)offset, 0);

		if (rc == -EINTR)
			continue;
		if (rc < 0)
			return (int)rc;
		if (rc == 0)
			return -EIO;
		data += rc;
		offset += (uint64_t)rc;
		n -= (uint64_t)rc;
	}
	return 0;
}

/* Writes those of the bytes that nothing newer covers. */
static int write_gaps(struct heal *h, const uint8_t *data, uint64_t offset, uint64_t n)
{
	uint64_t start = offset;
	uint64_t end;
	int rc;

	while (interval_gap(&h->done, &start, offset + n, &end)) {
		rc = write_all(h, data + (start - offset), end - start, start);
		if (rc < 0)
			return rc;
		start = end;
	}
	return interval_add(&h->done, offset, offset + n);
}

static int write_lines(struct heal *h, const struct record_header *record, const uint8_t *payload)
{
	struct lines_run run = { 0 };
	int rc;

	while ((rc = lines_next(payload, record->length, &run)) > 0) {
		rc = write_gaps(h, run.bytes, record->offset + run.offset, run.length);
		if (rc < 0)
			return rc;
	}
	return rc;
}

static int write_record(struct heal *h, const struct record_header *record)
{
	uint64_t end;
	int rc;

	if (add_overflow(record->offset, record->length, &end) || end > INT64_MAX)
		return -EBADMSG;
	if (scratch_grow(&h->payload, record->length) < 0)
		return -ENOMEM;
	/* A private copy, checked as it is: appenders may reuse the room as soon as it is trimmed. */
	rc = record_payload(&h->s->lane, record, h->payload.base);
	if (rc < 0)
		return trimmed_past(h, record->position) ? BEGIN_ANEW : rc;

	if (record->type == RECORD_WRITE)
		return write_gaps(h, h->payload.base, record->offset, record->length);
	return write_lines(h, record, h->payload.base);
}

static int write_listed(struct heal *h)
{
	const struct record_header *list = h->list.base;
	int rc = 0;

	for (size_t i = h->count; i-- > 0 && rc == 0;)
		rc = write_record(h, &list[i]);
	return rc;
}

static int heal_bytes(struct heal *h, const struct file_range *keep)
{
	int rc = BEGIN_ANEW;

	for (int i = 0; i < ANEW_MAX && rc == BEGIN_ANEW; i++) {
		/* Also the bytes written in a try before: with fewer records left, what is newest
		 * is the same, and what was trimmed is durable. */
		h->done.count = 0;
		rc = keep ? interval_add(&h->done, keep->offset, keep->offset + keep->length) : 0;
		if (rc == 0)
			rc = list_records(h);
		if (rc == 0)
			rc = write_listed(h);
	}
	return rc == BEGIN_ANEW ? -EAGAIN : rc;
}

int heal_around(struct session *s, const struct caller *who, struct file_ref *r,
		const struct file_range *keep)
{
	struct heal h = { .s = s, .r = r };
	bool append = r->asked_flags & O_APPEND;
	struct stat st;
	int rc;

	image_drop(s, r->f);
	rc = file_look(s, r, &st);
	if (rc < 0)
		return rc;
	/* Without a name it is gone after a cut, and its newest writes have no record. */
	if (st.st_nlink == 0 || !file_live(s, r->f))
		return 0;

	/* No room for it is no reason to leave the file as it is. */
	rc = file_touch_before(s, who, r);
	if (rc < 0 && rc != -ENOSPC)
		return rc;

	/* On an O_APPEND description pwrite appends. All writers of this description come through
	 * the file's lock and name their offset, so nobody misses the flag meanwhile. */
	if (append) {
		rc = s->io->set_append(r->fd, false);
		if (rc < 0)
			return rc;
	}
	rc = heal_bytes(&h, keep);
	if (append)
		(void)s->io->set_append(r->fd, true);

	scratch_free(&h.list);
	scratch_free(&h.payload);
	interval_free(&h.done);
	return rc;
}

int heal_locked(struct session *s, const struct caller *who, struct file_ref *r)
{
	return heal_around(s, who, r, NULL);
}
