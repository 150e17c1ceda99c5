/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages about native logs: answered at once, or kept until they can be. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/destage/destage.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/guard.h"

/* Where nothing else is to be waited for: as long as an append waits for room (pool/space.c). */
#define FULL_FACTOR 10u

static void answer(struct domain *d, struct domain_log *l, struct domain_request *r, int rc)
{
	const char *why = "";

	if (l && rc != -ESTALE)
		(void)log_data_words(d, l, &r->log_reply);
	if (rc == -EFAULT)
		rc = -EBUSY;
	if (rc < 0 && l && (rc == -EBADMSG || rc == -EIO) && *l->store.why)
		why = l->store.why;
	else if (rc < 0)
		why = strerror(-rc);
	request_done(r, rc, rc < 0, "%s", why);
}

/* ---- those that may have to wait ---------------------------------------------------------------- */

/* A record that nobody has appended is not waited for. */
static int check_lsn(const struct domain *d, const struct domain_log *l, uint64_t lsn, bool at_end)
{
	uint64_t end;
	int r = logs_end(d, l, &end);

	if (r < 0)
		return r;
	return lsn < end || (at_end && lsn == end) ? 0 : -ENXIO;
}

/* -EAGAIN: not yet. */
static int try(struct domain *d, struct domain_log *l, struct domain_request *r)
{
	uint64_t lsn = r->log.lsn;
	int rc;

	switch (r->mode) {
	case WIRE_LOG_SYNC:
		rc = check_lsn(d, l, lsn, false);
		return rc < 0 ? rc : l->entry.log_disk > lsn ? 0 : -EAGAIN;
	case WIRE_LOG_TRIM:
		rc = check_lsn(d, l, lsn, true);
		if (rc < 0)
			return rc;
		if (l->entry.log_disk < lsn)
			return -EAGAIN;
		rc = logs_store(d, l);
		if (rc == 0)
			rc = log_store_trim(&l->store, lsn);
		r->log_reply.lsn = l->store.first;
		if (rc == 0)
			rc = GUARD((atomic_store_relaxed(&l->ref.l->first, l->store.first), 0));
		return rc;
	case WIRE_LOG_REMOVE:
		return logs_remove(d, l);
	case WIRE_LOG_APPEND:
		return log_data_append(d, l, r);
	case WIRE_LOG_READ:
		rc = log_data_read(d, l, r);
		return rc == 0 ? -EAGAIN : rc < 0 ? rc : 0;
	default:
		return -EINVAL;
	}
}

/* What to say when it may not wait any longer. */
static int given_up(const struct domain_request *r)
{
	switch (r->mode) {
	case WIRE_LOG_READ:
		return 0; /* nothing came: an empty answer */
	case WIRE_LOG_APPEND:
		return -ENOSPC;
	default:
		return -ETIMEDOUT;
	}
}

/* Of what concerns the disk, it is said when that keeps failing. */
static bool fails(const struct domain *d, const struct domain_request *r, uint64_t now)
{
	return d->blocked && now >= r->deadline_ns && r->mode != WIRE_LOG_READ;
}

static struct domain_log *find(const struct domain *d, const struct domain_request *r)
{
	for (uint32_t i = 0; i < CTL_LOGS; i++)
		if (d->log[i] && d->log[i]->id == r->id)
			return d->log[i];
	return NULL;
}

/* What changes the log is done all the same. */
static bool wanted(const struct domain_request *r)
{
	bool asks = r->mode == WIRE_LOG_READ || r->mode == WIRE_LOG_SYNC;

	/* Relaxed: sooner or later is all that is asked. */
	return !asks || !atomic_load_relaxed(&r->gone);
}

/* True: answered. */
static bool settle(struct domain *d, struct domain_request *r)
{
	struct domain_log *l = find(d, r);
	uint64_t now = now_monotonic_ns();
	int rc;

	/* A wait without an end would outlive its client, and be one more for each that comes and goes. */
	if (!wanted(r)) {
		request_done(r, -ECANCELED, 1, "the client is gone");
		return true;
	}
	if (!l) {
		bool good = r->mode == WIRE_LOG_REMOVE;

		request_done(r, good ? 0 : -ESTALE, !good, "%s", good ? "" : "the log was removed");
		return true;
	}
	rc = try(d, l, r);
	if (rc == -EAGAIN && fails(d, r, now)) {
		pthread_mutex_lock(&d->lock);
		(void)snprintf(r->text, sizeof(r->text), "%s", d->last_error);
		pthread_mutex_unlock(&d->lock);
		(void)log_data_words(d, l, &r->log_reply);
		request_done(r, r->mode == WIRE_LOG_APPEND ? -ENOSPC : -EBUSY, 1, NULL);
		return true;
	}
	if (rc == -EAGAIN && now < r->until_ns)
		return false;
	if (rc == -EAGAIN)
		rc = given_up(r);
	/* It is gone with its last record. */
	answer(d, r->mode == WIRE_LOG_REMOVE && rc == 0 ? NULL : l, r, rc);
	return true;
}

/* Appends of a log are done in the order in which they came: a small one does not pass a large one for which there
 * was no room. */
static bool append_waits(const struct domain *d, const struct domain_request *end, uint64_t id)
{
	for (const struct domain_request *r = d->log_waits; r && r != end; r = r->next)
		if (r->mode == WIRE_LOG_APPEND && r->id == id)
			return true;
	return false;
}

static bool in_turn(const struct domain *d, const struct domain_request *r)
{
	return r->mode != WIRE_LOG_APPEND || !append_waits(d, r, r->id);
}

void log_waits_answer(struct domain *d)
{
	struct domain_request **p = &d->log_waits;
	struct ctl_cell cell;

	/* Read before the looks: what comes after them is news. */
	if (d->log_waits && words_head(d, &cell) == 0)
		d->seen_head = cell.head;
	while (*p) {
		struct domain_request *r = *p, *next = r->next;

		if (in_turn(d, r) && settle(d, r))
			*p = next;
		else
			p = &r->next;
	}
}

void log_waits_end(struct domain *d, int status, const char *why)
{
	while (d->log_waits) {
		struct domain_request *r = d->log_waits;

		d->log_waits = r->next;
		request_done(r, status, 1, "%s", why);
	}
}

bool log_waits_any(const struct domain *d)
{
	for (const struct domain_request *r = d->log_waits; r; r = r->next)
		if (wanted(r))
			return true;
	return false;
}

bool log_waits_step(const struct domain *d)
{
	for (const struct domain_request *r = d->log_waits; r; r = r->next)
		if (r->mode != WIRE_LOG_READ)
			return true;
	return false;
}

bool log_waits_records(const struct domain *d, uint64_t *ret_until)
{
	bool any = false;

	for (const struct domain_request *r = d->log_waits; r; r = r->next) {
		any = any || r->mode == WIRE_LOG_READ;
		*ret_until = min_of(*ret_until, r->until_ns);
	}
	return any;
}

static void wait_for(struct domain *d, struct domain_request *r)
{
	struct domain_request **end = &d->log_waits;

	/* Last come, last served. */
	while (*end)
		end = &(*end)->next;
	r->next = NULL;
	*end = r;
}

/* ---- what a message asks for -------------------------------------------------------------------- */

static int open_log(struct domain *d, struct domain_request *r, struct domain_log **ret)
{
	const struct wire_log *q = &r->log;
	bool create = q->flags & WIRE_LOG_CREATE, made = false;
	int rc;

	rc = logs_get(d, q, create, ret, &made, r->text, sizeof(r->text));
	if (rc < 0)
		return rc;
	if (create && (q->flags & WIRE_LOG_EXCLUSIVE) && !made)
		return -EEXIST;
	if (!made && !(q->flags & WIRE_LOG_READ_ONLY)) {
		rc = logs_store(d, *ret);
		if (rc == 0 && !((*ret)->store.mode & 0200))
			rc = -EACCES;
	}
	return rc;
}

static void segment(struct domain *d, struct domain_log *l, struct domain_request *r)
{
	struct log_store view, *s;
	int rc = logs_view(d, l, &view, &s);

	if (rc == 0) {
		r->out_fd = r->log.lsn < s->first
				    ? -ERANGE
				    : log_store_segment(s, r->log.lsn, &r->log_reply.lsn);
		rc = min_of(r->out_fd, 0);
		logs_view_end(l, s);
	}
	answer(d, l, r, rc);
}

static uint64_t patience(const struct domain *d, const struct domain_request *r)
{
	uint64_t now = now_monotonic_ns();

	if (r->mode == WIRE_LOG_APPEND)
		return now + FULL_FACTOR * d->s.head_copy.reconnect_timeout_ns;
	if (r->mode == WIRE_LOG_TRIM || r->mode == WIRE_LOG_REMOVE ||
	    r->log.timeout_ms == UINT32_MAX)
		return UINT64_MAX;
	return now + r->log.timeout_ms * MILLISECOND_NS;
}

static void begin(struct domain *d, struct domain_request *r)
{
	r->until_ns = patience(d, r);
	r->deadline_ns = now_monotonic_ns() + FLUSH_GIVE_UP_NS;
	if (!in_turn(d, r) || !settle(d, r))
		wait_for(d, r);
}

/* It need not be one that could be opened. */
static void remove_log(struct domain *d, struct domain_request *r)
{
	struct domain_log *l = logs_find_any(d, r->log.name);
	int rc;

	if (l) {
		r->id = l->id;
		begin(d, r);
		return;
	}
	rc = logs_remove_closed(d, r->log.name);
	request_done(r, rc, rc < 0, "%s",
		     rc == -ENOENT ? "no such log"
		     : rc < 0	   ? strerror(-rc)
				   : "");
}

void request_log(struct domain *d, struct domain_request *r)
{
	struct pool_error e = { "" };
	struct domain_log *l = NULL;
	int rc = 0;

	if (d->state != STATE_OK) {
		request_done(r, -EBUSY, 1, "%s", d->reason);
		return;
	}
	if (r->mode == WIRE_LOG_REMOVE) {
		remove_log(d, r);
		return;
	}
	if (!d->attached) {
		rc = attach_new(d, &e);
		d->grace_ns = now_monotonic_ns() + HELLO_GRACE_NS;
	}
	if (rc < 0) {
		request_done(r, rc == -ENOSPC ? -ENOSPC : -EBUSY, 1, "%s", e.text);
		return;
	}
	if (r->mode == WIRE_LOG_OPEN)
		rc = open_log(d, r, &l);
	else
		rc = logs_get(d, &r->log, false, &l, NULL, r->text, sizeof(r->text));
	if (rc < 0) {
		request_done(r, rc == -EFAULT ? -EBUSY : rc, 1, NULL);
		return;
	}
	r->id = l->id;
	switch (r->mode) {
	case WIRE_LOG_OPEN:
	case WIRE_LOG_STAT:
		answer(d, l, r, 0);
		return;
	case WIRE_LOG_SEGMENT:
		segment(d, l, r);
		return;
	default:
		break;
	}
	begin(d, r);
}

/* ---- all of them -------------------------------------------------------------------------------- */

struct listing {
	struct domain *d;
	struct json_object *list;
};

static void add_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static void list_one(void *arg, const char *name)
{
	struct listing *listing = arg;
	struct domain *d = listing->d;
	struct domain_log *l = logs_find(d, name);
	struct log_name n = {
		.state_dir = d->set->pool->state_dir, .uid = d->uid, .domain = d->name, .name = name
	};
	struct wire_log_reply w = { .id = 0 };
	struct json_object *o;
	struct log_store s, *store = &s;
	int r;

	r = l ? logs_store(d, l) : log_store_open(&s, &n, LOG_STORE_UNKNOWN, false);
	if (r == -ENOENT)
		return;
	if (l)
		store = &l->store;
	o = json_object_new_object();
	if (r == 0) {
		w.first = store->first;
		w.disk = w.durable = store->disk;
	}
	if (l)
		(void)log_data_words(d, l, &w);
	json_object_object_add(o, "domain", json_object_new_string(d->name));
	add_u64(o, "uid", d->uid);
	json_object_object_add(o, "name", json_object_new_string(name));
	json_object_object_add(o, "open", json_object_new_boolean(l != NULL));
	add_u64(o, "first", w.first);
	add_u64(o, "disk", w.disk);
	add_u64(o, "durable", w.durable);
	add_u64(o, "capacity", r == 0 ? store->capacity : 0);
	add_u64(o, "mode", r == 0 ? store->mode : 0);
	add_u64(o, "segments", r == 0 ? store->n_segments : 0);
	json_object_object_add(o, "failing", json_object_new_boolean(r < 0 || w.failing));
	json_object_object_add(o, "error", json_object_new_string(r < 0 ? store->why : ""));
	json_object_array_add(listing->list, o);
	if (!l && r == 0)
		log_store_close(&s);
}

void request_log_list(struct domain *d, struct domain_request *r)
{
	struct listing listing = { .d = d, .list = json_object_new_array() };
	int rc = log_store_list(d->set->pool->state_dir, d->uid, d->name, list_one, &listing);

	r->report = listing.list;
	request_done(r, rc, rc < 0, "%s", rc < 0 ? strerror(-rc) : "");
}
