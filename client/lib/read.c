/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reading: what is in the lane from there, the rest from the segments, whose descriptors the daemon hands out. */

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "client/lib/lib.h"

#define LANE_TRIES 1000u	       /* picked: each means that the daemon trimmed meanwhile */
#define TRIM_TRIES 1000u	       /* milliseconds */
#define LOOK_NS	   UINT64_C(100000000) /* a follower looks whether its log is still there */

static void close_segment(struct reader *r)
{
	if (!r->open)
		return;
	(void)close(r->segment.fd);
	segment_end(&r->segment);
	r->frame.length = 0;
	r->open = false;
}

void reader_free(struct reader *r)
{
	close_segment(r);
	log_buffer_free(&r->buffer);
}

static int open_segment(struct pmemlogd_log *log, struct reader *r, uint64_t lsn)
{
	struct wire_log q = log_message(log);
	struct wire_log_reply reply;
	int fd = -1, rc;

	close_segment(r);
	q.lsn = lsn;
	(void)pthread_mutex_lock(&log->c->lock);
	rc = link_log(log->c, WIRE_LOG_SEGMENT, &q, &reply, &fd, 0);
	(void)pthread_mutex_unlock(&log->c->lock);
	if (rc < 0)
		return rc;
	rc = segment_begin(&r->segment, fd, reply.lsn);
	if (rc < 0) {
		(void)close(fd);
		return rc;
	}
	r->open = true;
	return 0;
}

/* The frame of an LSN that is on disk: r->frame and r->segment.payload. 0 or a negative errno. */
static int find_on_disk(struct pmemlogd_log *log, struct reader *r, uint64_t lsn)
{
	int rc = 0;

	if (r->open && r->frame.length && lsn >= r->frame.lsn && lsn < r->segment.lsn)
		return 0;
	if (!r->open || lsn < r->segment.lsn)
		rc = open_segment(log, r, lsn);
	while (rc == 0) {
		struct segment_frame f;

		rc = segment_next(&r->segment, &f);
		if (rc == 1) {
			r->frame = f;
			rc = 0;
			if (lsn < r->segment.lsn)
				return 0;
		} else if (rc == 0) {
			/* This segment is over. The one that has lsn begins where we stand, or later: what
			 * lay between was trimmed, or is passed over by a jump ahead. */
			uint64_t at = r->segment.lsn;

			rc = open_segment(log, r, lsn);
			if (rc == 0 && r->segment.lsn < at)
				rc = -EBADMSG;
		}
	}
	close_segment(r);
	return rc;
}

/* 1; 0: not in the lane (any more); or a negative errno. */
static int find_in_lane(struct pmemlogd_log *log, struct reader *r, uint64_t lsn, struct found *ret)
{
	struct record_header h;
	uint32_t need = 0;
	int rc = log_lane_read(&log->c->s, &log->ref, &r->place, lsn, &r->buffer, &h, &need);

	if (rc == -ENOBUFS) {
		rc = log_buffer_room(&r->buffer, need);
		return rc; /* 0: again */
	}
	if (rc == 1)
		*ret = (struct found){ h.offset, h.time_ns, h.length, r->buffer.bytes };
	return rc;
}

int reader_find(struct pmemlogd_log *log, struct reader *r, uint64_t lsn, struct found *ret)
{
	const struct ctl_log *l = log->ref.l;
	int rc;

	for (unsigned i = 0; i < LANE_TRIES; i++) {
		uint64_t end = log_end(&log->ref);

		/* Acquire: pairs with the daemon, which clears it when the log is removed. */
		if (atomic_load_acquire(&l->id) != log->ref.id)
			return -ESTALE;
		/* Relaxed: who reads what is just being trimmed is as good as earlier. */
		if (lsn < atomic_load_relaxed(&l->first))
			return -ERANGE;
		if (lsn >= end)
			return lsn == end ? 0 : -ENXIO;
		/* Acquire: pairs with the daemon's release, which comes before the tail moves: what is not in the
		 * lane any more is found to be on disk. */
		if (lsn < atomic_load_acquire(&l->disk)) {
			rc = find_on_disk(log, r, lsn);
			if (rc < 0)
				return rc;
			*ret = (struct found){ r->frame.lsn, r->frame.time_ns, r->frame.length,
					       r->segment.payload };
			return 1;
		}
		rc = find_in_lane(log, r, lsn, ret);
		if (rc != 0)
			return rc;
	}
	return -EBADMSG;
}

ssize_t pmemlogd_read(struct pmemlogd_log *log, uint64_t lsn, void *buf, size_t n)
{
	size_t done = 0;
	no_cancel;
	int rc;

	if (!log || (!buf && n) || n > (size_t)SSIZE_MAX)
		return -EINVAL;
	rc = process_check(log->c);
	if (rc < 0)
		return rc;
	(void)pthread_mutex_lock(&log->lock);
	while (done < n) {
		struct found f;
		size_t skip, part;

		rc = reader_find(log, &log->reader, lsn + done, &f);
		if (rc <= 0)
			break;
		skip = (size_t)(lsn + done - f.lsn);
		part = min_of(f.length - skip, n - done);
		memcpy((uint8_t *)buf + done, f.payload + skip, part);
		done += part;
	}
	(void)pthread_mutex_unlock(&log->lock);
	/* What was read before an error is good. */
	return rc < 0 && done == 0 ? rc : (ssize_t)done;
}

/* ---- cursors ------------------------------------------------------------------------------------- */

struct pmemlogd_cursor {
	struct pmemlogd_log *log;
	struct reader reader;
	uint64_t lsn;
};

int pmemlogd_cursor_new(struct pmemlogd_log *log, uint64_t lsn, struct pmemlogd_cursor **ret)
{
	struct pmemlogd_cursor *c;
	struct found f;
	no_cancel;
	int rc;

	if (!log || !ret)
		return -EINVAL;
	rc = process_check(log->c);
	if (rc < 0)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->log = log;
	c->lsn = lsn == PMEMLOGD_END ? log_end(&log->ref) : lsn;
	for (unsigned i = 0; i < TRIM_TRIES; i++) {
		if (lsn == PMEMLOGD_FIRST)
			/* Relaxed: as in reader_find. */
			c->lsn = atomic_load_relaxed(&log->ref.l->first);
		rc = reader_find(log, &c->reader, c->lsn, &f);
		if (lsn != PMEMLOGD_FIRST || rc != -ERANGE)
			break;
		/* Trimmed: the daemon knows, and says so to all when its disk does. */
		(void)usleep(1000);
	}
	if (rc == 1)
		c->lsn = f.lsn;
	if (rc < 0) {
		(void)pmemlogd_cursor_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

struct pmemlogd_cursor *pmemlogd_cursor_free(struct pmemlogd_cursor *c)
{
	no_cancel;

	if (c)
		reader_free(&c->reader);
	free(c);
	return NULL;
}

uint64_t pmemlogd_cursor_lsn(const struct pmemlogd_cursor *c)
{
	return c ? c->lsn : 0;
}

/* Sleeps until the log's end is not `lsn` any more, or a while is over. */
static void sleep_at(const struct pmemlogd_log *log, uint64_t lsn, uint64_t ns)
{
	struct ctl_log *l = log->ref.l;

	/* Mine, then a look at theirs (seq_cst); the appender stores lsn, gives its lock back, then looks at
	 * `wanted`: one of the two sees the other. The kernel compares the low half again. */
	atomic_store_seq(&l->wanted, 1);
	if (atomic_load_seq(&l->lsn) == lsn)
		(void)futex_wait((uint32_t *)(void *)&l->lsn, (uint32_t)lsn, ns);
}

int pmemlogd_next(struct pmemlogd_cursor *c, struct pmemlogd_record *ret, int timeout_ms)
{
	uint64_t until = UINT64_MAX;
	struct found f;
	no_cancel;
	int rc;

	if (!c || !ret)
		return -EINVAL;
	rc = process_check(c->log->c);
	if (rc < 0)
		return rc;
	if (timeout_ms >= 0)
		until = now_monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
	for (;;) {
		uint64_t now;

		rc = reader_find(c->log, &c->reader, c->lsn, &f);
		if (rc != 0 || timeout_ms == 0)
			break;
		now = now_monotonic_ns();
		if (now >= until)
			break;
		sleep_at(c->log, c->lsn, min_of(until - now, LOOK_NS));
	}
	if (rc != 1)
		return rc;
	*ret = (struct pmemlogd_record){ f.lsn, f.time_ns, f.payload, f.length };
	c->lsn = f.lsn + f.length;
	return 1;
}
