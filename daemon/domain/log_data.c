/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of native logs that go by message: appended and read in the daemon. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "pool/guard.h"

#define QUICK_NS UINT64_C(20000) /* picked: an append holds the locks for less */

/* ---- appending --------------------------------------------------------------------------------- */

static int append_guarded(struct session *s, const struct caller *who, const struct log_ref *ref,
			  const struct iovec *iov, uint32_t length, uint64_t *ret_lsn)
{
	return GUARD(log_append(s, who, ref, iov, 1, length, ret_lsn));
}

int log_data_append(struct domain *d, struct domain_log *l, struct domain_request *r)
{
	const struct iovec iov = { r->data, r->data_length };
	int rc = append_guarded(&d->s, &d->who, &l->ref, &iov, r->data_length, &r->log_reply.lsn);

	return rc > 0 || rc == -ETIMEDOUT ? -EAGAIN : rc;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static void close_reader(struct domain_log *l)
{
	if (!l->reading)
		return;
	(void)close(l->reader.fd);
	segment_end(&l->reader);
	l->frame.length = 0;
	l->reading = false;
}

static int open_reader(struct domain_log *l, const struct log_store *s, uint64_t lsn)
{
	uint64_t first;
	int fd, r;

	close_reader(l);
	fd = log_store_segment(s, lsn, &first);
	if (fd < 0)
		return fd;
	r = segment_begin(&l->reader, fd, first);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	l->reading = true;
	return 0;
}

/* The frame that lsn, which is on disk, lies in: l->frame and l->reader.payload. 0 or a negative errno. */
static int read_segment(struct domain_log *l, const struct log_store *s, uint64_t lsn)
{
	int r = 0;

	if (l->reading && l->frame.length && lsn >= l->frame.lsn && lsn < l->reader.lsn)
		return 0;
	if (!l->reading || lsn < l->reader.lsn)
		r = open_reader(l, s, lsn);
	while (r == 0) {
		struct segment_frame f;

		r = segment_next(&l->reader, &f);
		if (r == 1) {
			l->frame = f;
			r = 0;
			if (lsn < l->reader.lsn)
				return 0;
		} else if (r == 0) {
			/* The segment is over; the next one begins where lsn is. */
			r = l->reader.lsn == lsn ? open_reader(l, s, lsn) : -EBADMSG;
			if (r == 0 && l->reader.lsn != lsn)
				r = -EBADMSG;
		}
	}
	close_reader(l);
	return r;
}

struct found {
	uint64_t lsn, time_ns;
	uint32_t length;
	const uint8_t *payload;
};

static int lane_guarded(const struct domain *d, struct domain_log *l, uint64_t lsn,
			struct record_header *h, uint32_t *need)
{
	return GUARD(log_lane_read(&d->s, &l->ref, &l->place, lsn, &l->buffer, h, need));
}

static int read_lane(struct domain *d, struct domain_log *l, uint64_t lsn, struct found *ret)
{
	struct record_header h;
	uint32_t need = 0;
	int r = lane_guarded(d, l, lsn, &h, &need);

	if (r == -ENOBUFS) {
		r = log_buffer_room(&l->buffer, need);
		if (r == 0)
			r = lane_guarded(d, l, lsn, &h, &need);
	}
	if (r != 1)
		return r < 0 && r != -ENOBUFS ? r : -EBADMSG;
	*ret = (struct found){ h.offset, h.time_ns, h.length, l->buffer.bytes };
	return 1;
}

/* The record that lsn lies in: 1; 0: lsn is the end; or a negative errno. */
static int find(struct domain *d, struct domain_log *l, uint64_t lsn, struct found *ret)
{
	struct log_store view, *s;
	uint64_t end;
	int r = logs_end(d, l, &end);

	if (r < 0)
		return r;
	if (lsn >= end)
		return lsn == end ? 0 : -ENXIO;
	/* Nobody but this thread trims: what is not on disk is in the lane. Also while the disk fails. */
	if (lsn >= l->entry.log_disk)
		return read_lane(d, l, lsn, ret);
	r = logs_view(d, l, &view, &s);
	if (r < 0)
		return r;
	r = lsn < s->first ? -ERANGE : read_segment(l, s, lsn);
	logs_view_end(l, s);
	if (r < 0)
		return r;
	*ret = (struct found){ l->frame.lsn, l->frame.time_ns, l->frame.length, l->reader.payload };
	return 1;
}

/* One record as a frame. False: no room. */
static bool put_record(struct domain_request *r, const struct domain_log *l, const struct found *f,
		       uint32_t room)
{
	struct segment_frame frame = {
		.length = f->length,
		.lsn = f->lsn,
		.time_ns = f->time_ns,
	};
	uint64_t bytes = segment_frame_bytes(f->length);
	uint8_t *at = (uint8_t *)r->data + r->data_length;

	if (bytes > room - r->data_length)
		return false;
	memcpy(&frame.log, l->log, sizeof(frame.log));
	segment_seal(&frame, f->payload);
	memcpy(at, &frame, sizeof(frame));
	memcpy(at + sizeof(frame), f->payload, f->length);
	memset(at + sizeof(frame) + f->length, 0, bytes - sizeof(frame) - f->length);
	r->data_length += (uint32_t)bytes;
	return true;
}

int log_data_read(struct domain *d, struct domain_log *l, struct domain_request *r)
{
	bool records = r->log.flags & WIRE_LOG_RECORDS;
	uint32_t room = (uint32_t)min_of(r->log.value, (uint64_t)WIRE_LOG_PAYLOAD);
	uint64_t lsn = r->log.lsn;
	struct found f;
	int rc;

	if (!r->data)
		r->data = malloc(WIRE_LOG_PAYLOAD);
	if (!r->data)
		return -ENOMEM;
	r->data_length = 0;
	r->log_data.lsn = lsn;
	while ((rc = find(d, l, lsn, &f)) == 1) {
		uint32_t skip = (uint32_t)(lsn - f.lsn), n;

		if (records) {
			if (r->data_length == 0)
				r->log_data.lsn = f.lsn;
			if (!put_record(r, l, &f, room)) {
				/* Too long to be given out whole: its bounds, at least. */
				rc = r->data_length ? 1 : -EMSGSIZE;
				if (rc < 0)
					lsn = f.lsn + f.length;
				break;
			}
			lsn = f.lsn + f.length;
			continue;
		}
		n = min_of(f.length - skip, room - r->data_length);
		memcpy((uint8_t *)r->data + r->data_length, f.payload + skip, n);
		r->data_length += n;
		lsn += n;
		if (r->data_length == room)
			break;
	}
	r->log_data.next = lsn;
	r->log_data.length = r->data_length;
	/* What was found before an error is good; the error comes again with the next request. */
	return r->data_length ? 1 : rc;
}

/* ---- at once, in the event loop ---------------------------------------------------------------- */

void domain_log_user(struct domain_set *set, uint32_t uid, const char *name, int change)
{
	struct domain *d = domain_find(set, uid, name);

	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->log_users += change;
	if (change < 0)
		d->look = true;
	pthread_mutex_unlock(&d->lock);
	if (change < 0)
		domain_wake(d);
}

static void reply_words(const struct domain *d, const struct domain_log *l,
			struct wire_log_reply *ret)
{
	ret->id = l->id;
	ret->entry = l->index;
	ret->slot = l->slot;
	ret->record_max = record_payload_max(d->s.lane.ring_size, d->s.head_copy.bypass_size);
	ret->first = atomic_load_relaxed(&l->ref.l->first);
	ret->disk = atomic_load_acquire(&l->ref.l->disk);
	ret->durable = log_end(&l->ref);
	ret->failing = atomic_load_relaxed(&l->ref.l->failing);
	ret->capacity = atomic_load_relaxed(&l->ref.l->capacity);
}

int log_data_words(const struct domain *d, const struct domain_log *l, struct wire_log_reply *ret)
{
	return GUARD((reply_words(d, l, ret), 0));
}

/* Under map_lock, so that nothing of it is unmapped. */
static int append_now(const struct domain *d, struct domain_request *r)
{
	static _Thread_local uint32_t tid;
	const struct iovec iov = { r->data, r->data_length };
	struct session s = d->s;
	int rc;

	if (!d->quick || !d->logs)
		return -EAGAIN;
	if (tid == 0)
		tid = sys_gettid();
	/* A client that is stopped in an append holds up its own domain, not the loop. */
	s.lock_ns = QUICK_NS;
	for (uint32_t i = 0; i < CTL_LOGS; i++) {
		const struct domain_log *l = d->log[i];
		const struct caller who = { .tid = tid };

		if (!l || l->removing || strcmp(l->name, r->log.name) != 0)
			continue;
		rc = append_guarded(&s, &who, &l->ref, &iov, r->data_length, &r->log_reply.lsn);
		if (rc == 0)
			(void)log_data_words(d, l, &r->log_reply);
		return rc;
	}
	return -EAGAIN;
}

bool domain_log_append(struct domain_set *set, uint32_t uid, const char *name,
		       struct domain_request *r)
{
	struct domain *d = domain_find(set, uid, name);
	int rc;

	if (!d)
		return false;
	pthread_mutex_lock(&d->map_lock);
	rc = append_now(d, r);
	pthread_mutex_unlock(&d->map_lock);
	/* Whatever it is, the worker meets it too, and says it. */
	return rc == LOG_OK;
}
