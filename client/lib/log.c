/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opening, closing, removing; what a log is like. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "client/lib/lib.h"
#include "pool/slot.h"
#include "pool/space.h"

#define FLAGS	     (PMEMLOGD_CREATE | PMEMLOGD_EXCLUSIVE | PMEMLOGD_READ_ONLY)
#define CAPACITY_MIN 65536u

/* The daemon checks it, too; here it is an argument. */
static bool name_ok(const char *name)
{
	size_t n = strnlen(name, CTL_LOG_NAME_MAX);

	if (n == 0 || n == CTL_LOG_NAME_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = name[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '.' || c == '@' || c == '-'))
			return false;
	}
	return true;
}

struct wire_log log_message(const struct pmemlogd_log *log)
{
	struct wire_log q = { .flags = 0 };

	memcpy(q.name, log->name, sizeof(q.name));
	return q;
}

/* Maps the log's part of the control file. */
static int map_log(struct pmemlogd_log *log, const struct wire_log_reply *reply)
{
	const struct pmemlogd *c = log->c;
	uint64_t at = CTL_LOGS_OFFSET + (uint64_t)reply->slot * CTL_LOG_BYTES;
	struct stat st;
	void *p;

	if (reply->slot >= CTL_LOGS || reply->entry >= CTL_FILES || reply->id == 0)
		return -EPROTO;
	/* The number may have been closed by the program; the mapping needs it once more. */
	if (fstat(c->control_fd, &st) < 0 || st.st_dev != c->s.ctl.dev || st.st_ino != c->s.ctl.ino)
		return -EBADF;
	if ((uint64_t)st.st_size < at + CTL_LOG_BYTES)
		return -EPROTO;
	p = mmap(NULL, CTL_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		 c->control_fd, (off_t)at);
	if (p == MAP_FAILED)
		return -errno;
	(void)madvise(p, CTL_LOG_BYTES, MADV_DONTFORK);
	(void)madvise(p, CTL_LOG_BYTES, MADV_DONTDUMP);
	log->map = p;
	log_ref_at(&log->ref, p, 0);
	log->ref.f = &c->s.ctl.files[reply->entry];
	log->ref.id = reply->id;
	/* Acquire: pairs with the daemon's stores of the ids, the last of an opening. */
	if (atomic_load_acquire(&log->ref.l->id) != reply->id ||
	    atomic_load_acquire(&log->ref.f->id) != reply->id)
		return -ESTALE;
	return 0;
}

/* Somebody may have died between a record and the words that tell of it. */
static int settle(struct pmemlogd_log *log)
{
	struct call_mark mark;
	struct caller who;
	int r = lib_enter(log->c, &mark, &who);

	if (r < 0)
		return r;
	r = log_settle(&log->c->s, &who, &log->ref);
	lib_leave(&mark);
	return r;
}

static void unmap_log(struct pmemlogd_log *log)
{
	/* A child has none of it, and something else there by now. */
	if (log->map && process_check(log->c) == 0)
		(void)munmap(log->map, CTL_LOG_BYTES);
	reader_free(&log->reader);
	(void)pthread_mutex_destroy(&log->lock);
	free(log);
}

int pmemlogd_open(struct pmemlogd *c, const char *name, unsigned flags, mode_t mode,
		  uint64_t capacity, struct pmemlogd_log **ret)
{
	struct wire_log q = { .flags = flags };
	struct wire_log_reply reply;
	struct pmemlogd_log *log;
	no_cancel;
	int r;

	if (!c || !name || !ret || (flags & ~(unsigned)FLAGS) || !name_ok(name))
		return -EINVAL;
	if (flags & PMEMLOGD_CREATE) {
		if ((mode != 0600 && mode != 0400) || capacity > (uint64_t)INT64_MAX ||
		    (capacity != 0 && capacity < CAPACITY_MIN))
			return -EINVAL;
		q.mode = mode;
		q.value = capacity;
	} else if (flags & PMEMLOGD_EXCLUSIVE) {
		return -EINVAL;
	}
	r = process_check(c);
	if (r < 0)
		return r;
	(void)snprintf(q.name, sizeof(q.name), "%s", name);
	log = calloc(1, sizeof(*log));
	if (!log)
		return -ENOMEM;
	log->c = c;
	log->read_only = flags & PMEMLOGD_READ_ONLY;
	memcpy(log->name, q.name, sizeof(log->name));
	(void)pthread_mutex_init(&log->lock, NULL);

	(void)pthread_mutex_lock(&c->lock);
	r = link_log(c, WIRE_LOG_OPEN, &q, &reply, NULL, 0);
	if (r == 0)
		r = map_log(log, &reply);
	if (r == 0)
		r = settle(log);
	if (r == 0) {
		log->record_max = reply.record_max;
		log->next = c->logs;
		c->logs = log;
	}
	(void)pthread_mutex_unlock(&c->lock);
	if (r < 0) {
		unmap_log(log);
		return r;
	}
	*ret = log;
	return 0;
}

/* Best effort, and without waiting long: what is not waited for is nobody's promise. */
static void move_staged(struct pmemlogd_log *log)
{
	struct pmemlogd_stat st = { .size = sizeof(st) };

	if (log->read_only || pmemlogd_stat(log, &st) < 0 || st.appended <= st.durable)
		return;
	(void)pmemlogd_wait(log, st.appended - 1);
}

struct pmemlogd_log *pmemlogd_close(struct pmemlogd_log *log)
{
	struct pmemlogd *c;
	no_cancel;

	if (!log)
		return NULL;
	c = log->c;
	if (process_check(c) == 0) {
		move_staged(log);
		(void)pthread_mutex_lock(&c->lock);
	}
	for (struct pmemlogd_log **p = &c->logs; *p; p = &(*p)->next)
		if (*p == log) {
			*p = log->next;
			break;
		}
	if (process_check(c) == 0)
		(void)pthread_mutex_unlock(&c->lock);
	unmap_log(log);
	return NULL;
}

int pmemlogd_remove(struct pmemlogd *c, const char *name)
{
	struct wire_log q = { .flags = 0 };
	struct wire_log_reply reply;
	no_cancel;
	int r;

	if (!c || !name || !name_ok(name))
		return -EINVAL;
	r = process_check(c);
	if (r < 0)
		return r;
	(void)snprintf(q.name, sizeof(q.name), "%s", name);
	(void)pthread_mutex_lock(&c->lock);
	r = link_log(c, WIRE_LOG_REMOVE, &q, &reply, NULL, 0);
	(void)pthread_mutex_unlock(&c->lock);
	return r;
}

int pmemlogd_stat(struct pmemlogd_log *log, struct pmemlogd_stat *ret)
{
	struct pmemlogd_stat st = { .size = sizeof(st) };
	const struct ctl_log *l;
	const struct session *s;
	int r;

	if (!log || !ret || ret->size != sizeof(*ret))
		return -EINVAL;
	r = process_check(log->c);
	if (r < 0)
		return r;
	s = &log->c->s;
	l = log->ref.l;
	/* Acquire: pairs with the daemon, which clears it when the log is removed. */
	if (atomic_load_acquire(&l->id) != log->ref.id)
		return -ESTALE;
	/* Relaxed, but for the end: each is a figure of its own. In this order none of them is above the next. */
	st.first = atomic_load_relaxed(&l->first);
	st.disk = atomic_load_acquire(&l->disk);
	st.durable = log_end(&log->ref);
	st.appended = max_of(atomic_load_acquire(&l->staged), st.durable);
	st.capacity = atomic_load_relaxed(&l->capacity);
	st.record_max = log->record_max;
	st.pool_bytes = s->lane.ring_size;
	st.pool_used = control_head(&s->ctl).head - atomic_load_acquire(&s->ctl.hot->tail);
	if (s->head_copy.media != CTL_MEDIA_FSDAX)
		st.flags |= PMEMLOGD_NOT_DURABLE;
	if (atomic_load_relaxed(&l->failing))
		st.flags |= PMEMLOGD_FAILING;
	if (!slot_daemon_live(&s->ctl))
		st.flags |= PMEMLOGD_NO_DAEMON;
	*ret = st;
	return 0;
}
