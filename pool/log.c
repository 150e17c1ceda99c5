/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/log.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "pool/append_internal.h"
#include "pool/lanelock.h"
#include "pool/ops.h"

void log_ref_at(struct log_ref *ret, uint8_t *logs, uint32_t slot)
{
	uint8_t *at = logs + (uint64_t)slot * CTL_LOG_BYTES;

	*ret = (struct log_ref){ .l = (void *)at, .stage = at + 4096 };
}

uint64_t log_end(const struct log_ref *r)
{
	/* Acquire: pairs with the release in commit. */
	return atomic_load_acquire(&r->l->lsn);
}

/* ---- under the lane lock ------------------------------------------------------------------------ */

/*
 * A publisher may have died between head and lsn. The first record of its batch is in the ring where it said
 * if and only if the batch was published: otherwise the header at head was struck out, and whatever came
 * to stand there since is another record's.
 */
static void settle_locked(struct session *s, const struct log_ref *r)
{
	struct ctl_log *l = r->l;
	uint64_t position = l->next_at - 1, head;
	struct record_header h;

	if (l->next_at == 0)
		return;
	head = control_head(&s->ctl).head;
	if (position % LANE_ALIGN == 0 && position < head &&
	    position >= atomic_load_acquire(&s->ctl.hot->tail) && l->lsn != l->next_lsn) {
		memcpy(&h, lane_at(&s->lane, position), sizeof(h));
		if (h.position == position && h.incarnation == s->lane.incarnation &&
		    h.file_id == r->id && h.type == RECORD_WRITE && h.offset == l->lsn) {
			/* Release, both: as in commit. */
			atomic_store_release(&l->out, l->next_out);
			atomic_store_release(&l->lsn, l->next_lsn);
		}
	}
	atomic_store_relaxed(&l->next_at, 0);
}

/* Records that are stored and neither drained nor published. */
struct batch {
	struct session *s;
	const struct log_ref *r;
	uint64_t now;
	struct place last;
	uint64_t first_at; /* position of the first one */
	uint32_t n, crc;
	uint64_t lsn, out;
};

static void begin(struct batch *b, struct session *s, const struct log_ref *r)
{
	*b = (struct batch){ .s = s, .r = r, .lsn = r->l->lsn, .out = r->l->out };
	/* As in append_record: the coarse clock, which the kernel takes ctime from. */
	b->now = now_coarse_ns();
}

/* Stores one record behind the batch. enum append_outcome, or -EPROTO. */
static int add(struct batch *b, const struct iovec *iov, int iovcnt, uint32_t length)
{
	const struct append_request q = {
		.type = RECORD_WRITE,
		.offset = b->lsn,
		.iov = iov,
		.iovcnt = iovcnt,
		.length = length,
	};
	struct session *s = b->s;
	struct ctl_cell from = control_head(&s->ctl);
	uint64_t drained = from.head;
	struct place at;
	int rc;

	if (b->n)
		from = (struct ctl_cell){ .head = b->last.end, .chain = b->crc };
	rc = append_place(s, b->r->f, &q, from, &at);
	if (rc != APPEND_OK)
		return rc;
	at.drained = drained;
	b->crc = append_store(s, &q, b->r->id, &at, b->now);
	append_note(s, b->r->f, &q, &at);
	if (b->n++ == 0)
		b->first_at = at.position;
	b->last = at;
	b->lsn += length;
	return APPEND_OK;
}

/* All records of the batch become durable, then seen. */
static void commit(struct batch *b)
{
	struct ctl_hot *hot = b->s->ctl.hot;
	struct ctl_log *l = b->r->l;

	if (b->n == 0)
		return;
	/* For settle_locked, should we die behind the head: these two before next_at, and that before
	 * the head. One processor family, whose stores stay in order; the compiler's are relaxed
	 * atomics behind a release. */
	atomic_store_relaxed(&l->next_lsn, b->lsn);
	atomic_store_relaxed(&l->next_out, b->out);
	atomic_store_release(&l->next_at, b->first_at + 1);
	/* One barrier for all: afterwards every PAD, payload and header of the batch is durable. */
	pool_ops->drain();
	atomic_store_relaxed(&hot->last_ns, b->now);
	atomic_store_relaxed(&hot->records, hot->records + b->n);
	atomic_store_relaxed(&hot->bytes, hot->bytes + (b->lsn - l->lsn));
	append_publish(hot, &b->last, b->crc);
	/* Release: the frames have been read; pairs with log_stage, which writes over them. */
	atomic_store_release(&l->out, b->out);
	/* Release: pairs with log_end; the records are below head. */
	atomic_store_release(&l->lsn, b->lsn);
	atomic_store_release(&l->next_at, 0);
}

/* The frame at `out`, as one or two pieces. Its length in bytes, or -EBADMSG. */
static int64_t frame_at(const struct log_ref *r, uint64_t out, uint64_t in, struct iovec iov[2],
			int *ret_n)
{
	uint32_t place = (uint32_t)(out % CTL_LOG_STAGE), left;
	struct ctl_log_frame h;

	if (out % 8 != 0 || in - out > CTL_LOG_STAGE || in - out < sizeof(h))
		return -EBADMSG;
	memcpy(&h, r->stage + place, sizeof(h));
	if (h.length == 0 || h.check != ~h.length || stage_frame_bytes(h.length) > in - out)
		return -EBADMSG;
	place = (uint32_t)((out + sizeof(h)) % CTL_LOG_STAGE);
	left = min_of(h.length, CTL_LOG_STAGE - place);
	iov[0] = (struct iovec){ r->stage + place, left };
	iov[1] = (struct iovec){ r->stage, h.length - left };
	*ret_n = left < h.length ? 2 : 1;
	return h.length;
}

/* Adds what is in the stage. enum append_outcome, -EBADMSG, -EPROTO. */
static int add_staged(struct batch *b)
{
	/* Acquire: pairs with the producer's release; the frames below are whole. */
	uint64_t in = atomic_load_acquire(&b->r->l->in);

	while (b->out != in) {
		struct iovec iov[2];
		int n, rc;
		int64_t length = frame_at(b->r, b->out, in, iov, &n);

		if (length < 0)
			return (int)length;
		rc = add(b, iov, n, (uint32_t)length);
		if (rc != APPEND_OK)
			return rc;
		b->out += stage_frame_bytes((uint32_t)length);
	}
	return APPEND_OK;
}

static int outcome(int rc)
{
	return rc == APPEND_FULL ? LOG_FULL : rc;
}

/* After the lane lock is given back (a full barrier): who sleeps on lsn has stored `wanted` before it
 * looked at lsn, and we look at `wanted` after we have stored lsn. */
static void wake(struct session *s, const struct log_ref *r, const struct batch *b)
{
	struct ctl_log *l = r->l;

	if (b->n == 0)
		return;
	append_wake(s, b->last.end);
	if (atomic_load_seq(&l->wanted) != 0 && atomic_xchg_seq(&l->wanted, 0) != 0)
		(void)futex_wake((uint32_t *)(void *)&l->lsn, INT_MAX);
}

int log_settle(struct session *s, const struct caller *who, const struct log_ref *r)
{
	int rc;

	/* Relaxed: a live publisher's is settled by himself; a dead one's stands still. */
	if (atomic_load_relaxed(&r->l->next_at) == 0)
		return 0;
	rc = lane_lock(s, who);
	if (rc < 0)
		return rc;
	settle_locked(s, r);
	lane_unlock(s);
	return 0;
}

/* ---- under the entry's lock --------------------------------------------------------------------- */

/* A producer died: `staged` may be ahead of its frame. What counts are the frames. */
static int recount_staged(struct session *s, const struct caller *who, const struct log_ref *r)
{
	struct ctl_log *l = r->l;
	uint64_t in, out, lsn;
	int rc = lane_lock(s, who);

	if (rc < 0)
		return rc;
	settle_locked(s, r);
	in = atomic_load_acquire(&l->in);
	out = l->out;
	lsn = l->lsn;
	while (out != in) {
		struct iovec iov[2];
		int n;
		int64_t length = frame_at(r, out, in, iov, &n);

		if (length < 0) {
			rc = (int)length;
			break;
		}
		lsn += (uint64_t)length;
		out += stage_frame_bytes((uint32_t)length);
	}
	if (rc == 0)
		atomic_store_relaxed(&l->staged, lsn);
	lane_unlock(s);
	return rc;
}

static int entry_lock(struct session *s, const struct caller *who, const struct log_ref *r)
{
	struct ctl_lock *lock = &r->f->lock;
	int died =
		lock_acquire(&s->ctl, lock, &s->me, who->tid, session_lock_ns(s), who->stale_self);
	int rc = 0;

	if (died < 0)
		return died;
	/* Acquire: pairs with the daemon's stores; another log, or none, has the entry now. */
	if (atomic_load_acquire(&r->f->id) != r->id || atomic_load_acquire(&r->l->id) != r->id)
		rc = -ESTALE;
	else if (died == LOCK_OWNER_DIED)
		rc = recount_staged(s, who, r);
	if (rc == 0)
		return 0;
	if (died == LOCK_OWNER_DIED && rc != -ESTALE)
		lock_release_died(lock);
	else
		lock_release(lock);
	return rc;
}

static int check(const struct session *s, const struct log_ref *r, const struct iovec *iov,
		 int iovcnt, uint32_t length)
{
	const struct ctl_log *l = r->l;
	uint64_t capacity = atomic_load_relaxed(&l->capacity);
	uint64_t used = l->staged - atomic_load_relaxed(&l->first);
	uint64_t sum = 0;

	for (int i = 0; i < iovcnt && sum < length; i++)
		sum += iov[i].iov_len;
	if (length == 0 || sum < length)
		return -EINVAL;
	if (length > record_payload_max(s->lane.ring_size, s->head_copy.bypass_size))
		return -EMSGSIZE;
	if (l->staged > (uint64_t)INT64_MAX - length)
		return -EOVERFLOW;
	return capacity && (used > capacity || length > capacity - used) ? -ENOSPC : 0;
}

int log_append(struct session *s, const struct caller *who, const struct log_ref *r,
	       const struct iovec *iov, int iovcnt, uint32_t length, uint64_t *ret_lsn)
{
	struct batch b = { .n = 0 };
	int rc = entry_lock(s, who, r);

	if (rc < 0)
		return rc;
	rc = check(s, r, iov, iovcnt, length);
	if (rc == 0)
		rc = lane_lock(s, who);
	if (rc < 0) {
		lock_release(&r->f->lock);
		return rc;
	}
	settle_locked(s, r);
	begin(&b, s, r);
	rc = add_staged(&b);
	if (rc == APPEND_OK && b.lsn != r->l->staged)
		rc = -EBADMSG; /* the two counts of the stage disagree: a hostile peer */
	*ret_lsn = b.lsn;
	if (rc == APPEND_OK)
		rc = add(&b, iov, iovcnt, length);
	commit(&b);
	lane_unlock(s);
	/* Relaxed: under the entry's lock; after a death in between it is recomputed. */
	if (rc == APPEND_OK)
		atomic_store_relaxed(&r->l->staged, b.lsn);
	lock_release(&r->f->lock);
	wake(s, r, &b);
	return outcome(rc);
}

/* Copies n bytes to the place `at` of the stage, around its end. */
static void put(const struct log_ref *r, uint64_t at, const void *from, size_t n)
{
	size_t place = at % CTL_LOG_STAGE;
	size_t part = min_of(n, CTL_LOG_STAGE - place);

	memcpy(r->stage + place, from, part);
	memcpy(r->stage, (const uint8_t *)from + part, n - part);
}

int log_stage(struct session *s, const struct caller *who, const struct log_ref *r,
	      const struct iovec *iov, int iovcnt, uint32_t length, uint64_t *ret_lsn)
{
	const struct ctl_log_frame h = { .length = length, .check = ~length };
	struct ctl_log *l = r->l;
	uint64_t at, left = length;
	int rc;

	if (stage_frame_bytes(length) > CTL_LOG_STAGE / 2)
		return LOG_STAGE_FULL;
	rc = entry_lock(s, who, r);
	if (rc < 0)
		return rc;
	rc = check(s, r, iov, iovcnt, length);
	at = l->in;
	/* Acquire: pairs with commit; who moved a frame has read it. */
	if (rc == 0 &&
	    at - atomic_load_acquire(&l->out) > CTL_LOG_STAGE - stage_frame_bytes(length))
		rc = LOG_STAGE_FULL;
	if (rc != 0) {
		lock_release(&r->f->lock);
		return rc;
	}
	put(r, at, &h, sizeof(h));
	at += sizeof(h);
	for (int i = 0; i < iovcnt && left > 0; i++) {
		size_t part = min_of(left, iov[i].iov_len);

		put(r, at, iov[i].iov_base, part);
		at += part;
		left -= part;
	}
	*ret_lsn = l->staged;
	atomic_store_relaxed(&l->staged, l->staged + length);
	/* Release: the frame is whole. Pairs with add_staged. */
	atomic_store_release(&l->in, l->in + stage_frame_bytes(length));
	lock_release(&r->f->lock);
	return LOG_OK;
}

int log_move(struct session *s, const struct caller *who, const struct log_ref *r, uint64_t lsn)
{
	struct batch b = { .n = 0 };
	int rc;

	if (log_end(r) > lsn)
		return LOG_OK;
	/* Acquire: pairs with the daemon's store; see entry_lock. */
	if (atomic_load_acquire(&r->l->id) != r->id)
		return -ESTALE;
	rc = lane_lock(s, who);
	if (rc < 0)
		return rc;
	/* Once more: from here on who removes the log waits for us. A record that comes behind his mark would name a
	 * log that nobody knows. Acquire: as above. */
	if (atomic_load_acquire(&r->l->id) != r->id) {
		lane_unlock(s);
		return -ESTALE;
	}
	settle_locked(s, r);
	begin(&b, s, r);
	rc = b.lsn > lsn ? APPEND_OK : add_staged(&b);
	commit(&b);
	lane_unlock(s);
	wake(s, r, &b);
	if (log_end(r) > lsn)
		return LOG_OK;
	return rc == APPEND_OK ? -ENXIO : outcome(rc);
}
