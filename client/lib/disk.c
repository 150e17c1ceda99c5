/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon does with a log on disk. */

#include <errno.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "client/lib/lib.h"

#define SLICE_MS 200u /* others use the connection in between; picked */

static uint32_t slice(int timeout_ms, uint64_t begin)
{
	uint64_t gone = (now_monotonic_ns() - begin) / 1000000;

	if (timeout_ms < 0)
		return SLICE_MS;
	return gone >= (uint64_t)timeout_ms
		       ? 0
		       : (uint32_t)min_of((uint64_t)timeout_ms - gone, (uint64_t)SLICE_MS);
}

int pmemlogd_sync(struct pmemlogd_log *log, uint64_t lsn, int timeout_ms)
{
	uint64_t begin = now_monotonic_ns();
	struct wire_log_reply reply;
	struct wire_log q;
	no_cancel;
	int r;

	r = pmemlogd_wait(log, lsn);
	if (r < 0)
		return r;
	q = log_message(log);
	q.lsn = lsn;
	/* Acquire: pairs with the daemon's release; the segments have it. */
	while (atomic_load_acquire(&log->ref.l->disk) <= lsn) {
		q.timeout_ms = slice(timeout_ms, begin);
		(void)pthread_mutex_lock(&log->c->lock);
		r = link_log(log->c, WIRE_LOG_SYNC, &q, &reply, NULL,
			     q.timeout_ms * UINT64_C(1000000));
		(void)pthread_mutex_unlock(&log->c->lock);
		if (r == 0 || r != -ETIMEDOUT || slice(timeout_ms, begin) == 0)
			return r;
		/* No daemon answers at once that it is not there. */
		if (log->c->socket_fd < 0)
			return r;
	}
	return 0;
}

int pmemlogd_trim(struct pmemlogd_log *log, uint64_t lsn, uint64_t *ret_first)
{
	struct wire_log_reply reply;
	struct wire_log q;
	no_cancel;
	int r;

	if (!log)
		return -EINVAL;
	if (log->read_only)
		return -EBADF;
	r = lsn ? pmemlogd_wait(log, lsn - 1) : process_check(log->c);
	if (r < 0)
		return r;
	q = log_message(log);
	q.lsn = lsn;
	(void)pthread_mutex_lock(&log->c->lock);
	r = link_log(log->c, WIRE_LOG_TRIM, &q, &reply, NULL, UINT64_C(30000000000));
	(void)pthread_mutex_unlock(&log->c->lock);
	if (r == 0 && ret_first)
		*ret_first = reply.lsn;
	return r;
}
