/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RULE L: a write goes to the page cache, then to the lane, under the file's lock. Models:
 * tests/models/space.pml (room), fence.pml (an owner's death, settle_by_fence).
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

#include "base/sys.h"
#include "pool/file_internal.h"
#include "pool/image.h"

#define WAIT_FOR_ROOM INT64_MIN /* no errno: let go of the lock, wait, start over */

/* One write, as it was asked for. */
struct write_call {
	struct session *s;
	const struct caller *who;
	struct file_ref *r;
	const struct iovec *iov;
	int iovcnt;
	int64_t offset; /* bytes, or FILE_OFFSET_CURRENT */
	int rwf_flags;
	uint64_t total; /* bytes in iov */
	bool stalled;	/* waited in vain: no room and no daemon */
	struct stat before;
};

static ssize_t write_from(const struct write_call *w, const struct iovec *iov, int iovcnt,
			  int64_t offset, int rwf_flags)
{
	ssize_t n;

	do {
		n = w->s->io->pwritev(w->r->fd, iov, iovcnt, offset, rwf_flags);
	} while (n == -EINTR);
	return n;
}

static ssize_t real_write(const struct write_call *w, int64_t offset, int rwf_flags)
{
	return write_from(w, w->iov, w->iovcnt, offset, rwf_flags);
}

/* Sync that the program asked for by open flags which its real descriptor does not carry. */
static int asked_sync(const struct write_call *w)
{
	int asked = w->r->asked_flags;

	if ((asked & O_SYNC) == O_SYNC)
		return RWF_SYNC;
	return asked & (O_DSYNC | O_DIRECT) ? RWF_DSYNC : 0;
}

/* No record: the file is in bypass, or has no name any more. */
static ssize_t write_plain(const struct write_call *w)
{
	struct ctl_file *f = w->r->f;
	int flags = w->rwf_flags | asked_sync(w);
	bool synced = flags & (RWF_DSYNC | RWF_SYNC);
	ssize_t n;

	image_drop(w->s, f);
	/* Before: a sync that began before the call does not cover it. After: neither does one that
	 * began while it ran. */
	if (!synced)
		atomic_add_seq(&f->needs_sync, 1);
	n = real_write(w, w->offset, flags);
	if (!synced)
		atomic_add_seq(&f->needs_sync, 1);
	else if (n == -EIO) /* seq_cst, like every raise: see heal_and_sync */
		atomic_add_seq(&f->degraded, 1);
	return n;
}

static long fenced_write(void *arg)
{
	const struct write_call *w = arg;

	return real_write(w, w->offset, w->rwf_flags);
}

/* Where the bytes will go: the offset asked for, the description's position, or the file's end. */
static int64_t place_of(const struct write_call *w)
{
	/* On an O_APPEND description the kernel appends whatever offset pwrite names. */
	if (w->r->asked_flags & O_APPEND)
		return w->before.st_size;
	if (w->offset != FILE_OFFSET_CURRENT)
		return w->offset;
	return w->s->io->lseek(w->r->fd, 0, SEEK_CUR);
}

static void move_position(const struct write_call *w, int64_t end)
{
	if (w->offset == FILE_OFFSET_CURRENT)
		(void)w->s->io->lseek(w->r->fd, end, SEEK_SET);
}

/* The bytes are in the page cache and have no record: make them durable by a sync instead. They are
 * newer than every record, so a heal on the way must not write over them. */
static ssize_t settle_by_fence(const struct write_call *w, uint64_t offset, uint64_t length,
			       ssize_t n)
{
	const struct file_range mine = { offset, length };
	struct ctl_file *f = w->r->f;
	int rc;

	/* Relaxed: as in file_fenced_locked. */
	atomic_add_relaxed(&w->s->ctl.hot->rule_f, 1);
	if (file_live(w->s, f))
		rc = file_fence(w->s, w->who, w->r, false, &mine);
	else
		rc = file_real_sync(w->s, w->r, false);
	return rc < 0 ? rc : n;
}

/* Somebody appended beside us: where our bytes went is not known, and records would lie. */
static ssize_t foreign_appender(const struct write_call *w, const struct stat *after, ssize_t n)
{
	const struct file_range grown = { (uint64_t)w->before.st_size, UINT64_MAX / 2 };
	int rc;

	move_position(w, after->st_size);
	/* Not live: entering bypass alone would sync nothing, and these bytes have no record. */
	rc = file_live(w->s, w->r->f) ? 0 : file_real_sync(w->s, w->r, false);
	if (rc == 0)
		rc = file_bypass_locked(w->s, w->who, w->r, BYPASS_FOREIGN, &grown);
	return rc < 0 ? rc : n;
}

/* The record of a rewrite: what differs from the image. whole: the record that says all. */
static int append_lines(const struct write_call *w, const struct image_write *image,
			const struct append_request *whole)
{
	struct append_request lines = *whole;
	struct ctl_file *f = w->r->f;
	int rc;

	lines.type = RECORD_LINES;
	lines.iov = image->payload;
	lines.iovcnt = image->payload_count;
	lines.length = image->payload_bytes;
	lines.rule_f = image->rule_f;
	rc = append_record(w->s, w->who, f, 0, &lines, NULL);
	/* a store and no locked addition: the file lock keeps other writers away */
	if (rc == APPEND_OK)
		atomic_store_relaxed(&f->saved, f->saved + whole->length - lines.length);
	return rc;
}

/* image: where the bytes come from, and what of them is new; NULL: from the caller's memory, all. */
static ssize_t write_at(const struct write_call *w, int64_t place, uint64_t reserved,
			const struct image_write *image)
{
	struct append_request record = {
		.type = RECORD_WRITE,
		.flags = RECORD_INLINE,
		.iov = w->iov,
		.iovcnt = w->iovcnt,
		.reserved = reserved,
	};
	ssize_t n;
	int rc;

	if (image) {
		record.iov = image->iov;
		record.iovcnt = image->iovcnt;
	}
	n = write_from(w, record.iov, record.iovcnt, place, 0);
	if (n <= 0) {
		(void)space_release(w->s, w->who, reserved);
		return n;
	}

	if (w->r->asked_flags & O_APPEND) {
		struct stat after;

		rc = file_look(w->s, w->r, &after);
		if (rc < 0 || after.st_size != place + n) {
			(void)space_release(w->s, w->who, reserved);
			return rc < 0 ? rc : foreign_appender(w, &after, n);
		}
	}
	move_position(w, place + n);

	record.offset = (uint64_t)place;
	record.length = (uint32_t)n; /* at most the payload limit */
	if ((uint64_t)n < w->total)
		image = NULL;
	rc = image && image->lines ? append_lines(w, image, &record) : APPEND_NO_BASE;
	if (rc == APPEND_NO_BASE)
		rc = append_record(w->s, w->who, w->r->f, 0, &record, NULL);
	if (rc == APPEND_OK) {
		if (image)
			image_keep(w->r->f, image);
		return n;
	}
	/* A reservation that did not hold, or no lane lock: a sync does what the record would have. */
	return settle_by_fence(w, (uint64_t)place, (uint64_t)n, n);
}

/* The real call, then its record. `reserved` bytes of the lane are noted for it. */
static ssize_t write_recorded(const struct write_call *w, uint64_t reserved)
{
	struct ctl_file *f = w->r->f;
	int64_t place = place_of(w);
	struct image_write image;
	bool kept;
	ssize_t n;

	if (place < 0) {
		(void)space_release(w->s, w->who, reserved);
		return (ssize_t)place;
	}
	/* It has a name: an unlink that was announced failed, or its caller died before it. */
	if (atomic_load_relaxed(&f->unlinked))
		atomic_store_release(&f->unlinked, 0);
	kept = image_begin(w->s, f, w->iov, w->iovcnt, (uint64_t)place, w->total,
			   (uint64_t)w->before.st_size, &image);
	/* For who takes the lock from our dead hands. The length second, and gone first: it says that
	 * the rest is valid. */
	atomic_store_relaxed(&f->write_offset, (uint64_t)place);
	atomic_store_release(&f->write_length, (uint32_t)w->total); /* at most the payload limit */
	n = write_at(w, place, reserved, kept ? &image : NULL);
	/* not the offset: image_keep's */
	atomic_store_release(&f->write_length, 0);
	return n;
}

static ssize_t write_to_lane(struct write_call *w)
{
	uint64_t reserved = space_for((uint32_t)w->total);
	int rc;

	rc = space_reserve(w->s, w->who, reserved);
	if (rc == SPACE_FULL) {
		if (!w->stalled)
			return WAIT_FOR_ROOM;
		rc = file_bypass_locked(w->s, w->who, w->r, BYPASS_LANE_FULL, NULL);
		return rc < 0 ? rc : write_plain(w);
	}
	if (rc < 0)
		return rc;

	rc = file_touch_before(w->s, w->who, w->r);
	if (rc == -ENOSPC)
		rc = file_fence(w->s, w->who, w->r, false, NULL);
	if (rc < 0) {
		(void)space_release(w->s, w->who, reserved);
		return rc;
	}
	return write_recorded(w, reserved);
}

static ssize_t write_locked(struct write_call *w)
{
	const struct ctl_head *head = &w->s->head_copy;
	int rc;

	rc = file_look(w->s, w->r, &w->before);
	if (rc < 0)
		return rc;
	/* Acquire: pairs with the stores of state under this lock (file_bypass_locked, file_leave_bypass_locked). */
	if (atomic_load_acquire(&w->r->f->state) == FILE_BYPASS || w->before.st_nlink == 0)
		return write_plain(w);
	if (w->total > record_payload_max(head->ring_size, head->bypass_size) ||
	    (w->rwf_flags & ~(RWF_DSYNC | RWF_SYNC)))
		return file_fenced_locked(w->s, w->who, w->r, fenced_write, w);
	return write_to_lane(w);
}

ssize_t file_write(struct session *s, const struct caller *who, struct file_ref *r,
		   const struct iovec *iov, int iovcnt, int64_t offset, int rwf_flags)
{
	struct write_call w = {
		.s = s,
		.who = who,
		.r = r,
		.iov = iov,
		.iovcnt = iovcnt,
		.offset = offset,
		.rwf_flags = rwf_flags,
	};

	if (offset < 0 && offset != FILE_OFFSET_CURRENT)
		return -EINVAL;
	/* What the kernel refuses is let through as it stands: it names the error. */
	for (int i = 0; i < iovcnt && i < IOV_MAX; i++)
		if (add_overflow(w.total, iov[i].iov_len, &w.total))
			w.total = UINT64_MAX / 2;

	for (;;) {
		/* Before the reservation: a trim that comes between is not slept over. */
		uint32_t seq = atomic_load_acquire(&s->ctl.hot->trim_seq);
		ssize_t n = file_lock(s, who, r);

		if (n < 0)
			return n;
		n = write_locked(&w);
		file_unlock(s, r);
		if (n != WAIT_FOR_ROOM)
			return n;
		w.stalled = space_wait(s, seq) == SPACE_STALLED;
	}
}
