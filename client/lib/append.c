/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Appending and waiting: nothing here may be cancelled once it has begun. */

#include <errno.h>

#include "base/atomic.h"
#include "client/lib/lib.h"
#include "pool/space.h"

/* Sum of the buffers: 1 to record_max, or a negative errno. */
static int64_t length_of(const struct pmemlogd_log *log, const struct iovec *iov, int iovcnt)
{
	uint64_t sum = 0;

	if (!log || !iov || iovcnt < 1 || iovcnt > PMEMLOGD_IOV_MAX)
		return -EINVAL;
	if (log->read_only)
		return -EBADF;
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len && !iov[i].iov_base)
			return -EINVAL;
		/* Each checked by itself, so that the sum cannot wrap. */
		if (iov[i].iov_len > log->record_max)
			return -EMSGSIZE;
		sum += iov[i].iov_len;
	}
	if (sum == 0)
		return -EINVAL;
	return sum > log->record_max ? -EMSGSIZE : (int64_t)sum;
}

/* Once: enum log_outcome or a negative errno. */
static int try_append(struct pmemlogd_log *log, const struct caller *who, const struct iovec *iov,
		      int iovcnt, uint32_t length, bool wait, uint64_t *lsn)
{
	struct session *s = &log->c->s;
	int r;

	if (!wait) {
		r = log_stage(s, who, &log->ref, iov, iovcnt, length, lsn);
		/* Then it is its turn to move what is there, and itself behind it. */
		if (r != LOG_STAGE_FULL)
			return r;
	}
	return log_append(s, who, &log->ref, iov, iovcnt, length, lsn);
}

static int append(struct pmemlogd_log *log, const struct iovec *iov, int iovcnt, bool wait,
		  uint64_t *ret_lsn)
{
	int64_t length = length_of(log, iov, iovcnt);
	struct call_mark mark;
	struct caller who;
	uint64_t lsn = 0;
	int r;

	if (length < 0)
		return (int)length;
	pthread_testcancel();
	r = lib_enter(log->c, &mark, &who);
	if (r < 0)
		return r;
	for (;;) {
		struct session *s = &log->c->s;
		/* Before the try: a trim between the two is not missed. Acquire: pairs with its raise. */
		uint32_t seq = atomic_load_acquire(&s->ctl.hot->trim_seq);

		r = try_append(log, &who, iov, iovcnt, (uint32_t)length, wait, &lsn);
		if (r != LOG_FULL)
			break;
		if (space_wait(s, seq) != SPACE_OK) {
			r = -ENOSPC;
			break;
		}
	}
	lib_leave(&mark);
	if (r == 0 && ret_lsn)
		*ret_lsn = lsn;
	return r;
}

/* sendmsg's and our iovec is not const, and only read. */
static struct iovec piece(const void *buf, size_t n)
{
	return (struct iovec){ (void *)(uintptr_t)buf, n };
}

int pmemlogd_append(struct pmemlogd_log *log, const void *buf, size_t n, uint64_t *ret_lsn)
{
	const struct iovec iov = piece(buf, n);

	return append(log, &iov, 1, true, ret_lsn);
}

int pmemlogd_appendv(struct pmemlogd_log *log, const struct iovec *iov, int iovcnt,
		     uint64_t *ret_lsn)
{
	return append(log, iov, iovcnt, true, ret_lsn);
}

int pmemlogd_append_nowait(struct pmemlogd_log *log, const void *buf, size_t n, uint64_t *ret_lsn)
{
	const struct iovec iov = piece(buf, n);

	return append(log, &iov, 1, false, ret_lsn);
}

int pmemlogd_appendv_nowait(struct pmemlogd_log *log, const struct iovec *iov, int iovcnt,
			    uint64_t *ret_lsn)
{
	return append(log, iov, iovcnt, false, ret_lsn);
}

int pmemlogd_wait(struct pmemlogd_log *log, uint64_t lsn)
{
	struct call_mark mark;
	struct caller who;
	int r;

	if (!log)
		return -EINVAL;
	pthread_testcancel();
	r = lib_enter(log->c, &mark, &who);
	if (r < 0)
		return r;
	for (;;) {
		struct session *s = &log->c->s;
		/* As in append. */
		uint32_t seq = atomic_load_acquire(&s->ctl.hot->trim_seq);

		r = log_move(s, &who, &log->ref, lsn);
		if (r != LOG_FULL)
			break;
		if (space_wait(s, seq) != SPACE_OK) {
			r = -ENOSPC;
			break;
		}
	}
	lib_leave(&mark);
	return r;
}
