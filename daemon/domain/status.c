/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What `pmemlogctl status` shows. Words only: no call on a file, no client's lock. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "pool/guard.h"
#include "pool/sim.h"
#include "pool/slot.h"

#define VERSIONS 4u /* sessions are counted by versions below it */

/* A record that is so much older than destage_age waits for a call that hangs: no error comes of it, and the
 * lane fills. Picked: a slow disk takes seconds, not that. */
#define STUCK_NS (10 * SECOND_NS)

/* Copies, so that nothing is built while locks are held or under a guard. */
struct file_status {
	uint64_t id, live_bytes, records, saved, bypass_ns;
	uint32_t state, reason, degraded;
	bool failing;
	char path[sizeof(((struct pool_file *)0)->path)];
};

struct domain_status {
	enum domain_state state;
	char reason[WIRE_TEXT], last_error[WIRE_TEXT];
	uint64_t destages, destage_errors, live_since;
	uint32_t lane, files_n;
	bool attached;
	uint64_t ring_size, live_bytes, wraps, full_waits, records, bytes;
	unsigned sessions, versions[VERSIONS];
	struct file_status *files;
	uint32_t *index;
	struct refused *refused; /* REFUSED_MAX */
	uint32_t refused_n;
};

static const char *state_name(enum domain_state s)
{
	switch (s) {
	case STATE_OK:
		return "ok";
	case STATE_HELD:
		return "held";
	case STATE_QUARANTINED:
		return "quarantined";
	case STATE_UNDECIDED:
		break;
	}
	return "undecided";
}

static const char *reason_name(uint32_t reason)
{
	switch (reason) {
	case BYPASS_NONE:
		return "";
	case BYPASS_LANE_FULL:
		return "lane full and no daemon for too long";
	case BYPASS_TOKEN:
		return "somebody writes it without a session";
	case BYPASS_FOREIGN:
		return "another domain or program writes it";
	case BYPASS_MAPPED:
		return "mapped shared and writable";
	case BYPASS_STREAM:
		return "stream, io_uring or inherited over exec";
	case BYPASS_HOLD:
		return "hold by command";
	default:
		return "unknown";
	}
}

static int copy_words(const struct domain *d, struct domain_status *s)
{
	const struct ctl_hot *hot = d->s.ctl.hot;
	uint64_t tail = atomic_load_acquire(&hot->tail);
	struct ctl_cell cell = control_head(&d->s.ctl);

	s->ring_size = d->s.lane.ring_size;
	s->live_bytes = cell.head > tail ? cell.head - tail : 0;
	/* Relaxed: figures for people. */
	s->wraps = atomic_load_relaxed(&hot->wraps);
	s->full_waits = atomic_load_relaxed(&hot->full_waits);
	s->records = atomic_load_relaxed(&hot->records);
	s->bytes = atomic_load_relaxed(&hot->bytes);
	for (uint32_t i = 0; i < s->files_n; i++) {
		const struct ctl_file *f = &d->s.ctl.files[s->index[i]];
		uint64_t last = atomic_load_relaxed(&f->last);
		uint64_t floor = max_of(tail, atomic_load_relaxed(&f->fence));
		uint64_t first = max_of(atomic_load_relaxed(&f->first), floor);

		s->files[i].state = atomic_load_relaxed(&f->state);
		s->files[i].reason = atomic_load_relaxed(&f->reason);
		s->files[i].degraded = atomic_load_relaxed(&f->degraded);
		s->files[i].records = atomic_load_relaxed(&f->records);
		s->files[i].saved = atomic_load_relaxed(&f->saved);
		s->files[i].bypass_ns = atomic_load_relaxed(&f->bypass_ns);
		s->files[i].live_bytes = last > first ? last - first : 0;
	}
	s->sessions = slot_count(&d->s.ctl, s->versions, VERSIONS);
	return 0;
}

static int copy_status(struct domain *d, struct domain_status *s)
{
	uint32_t end;

	*s = (struct domain_status){ .state = STATE_UNDECIDED };
	pthread_mutex_lock(&d->lock);
	end = d->files_end + CTL_LOGS;
	pthread_mutex_unlock(&d->lock);
	s->refused = calloc(REFUSED_MAX, sizeof(*s->refused));
	if (!s->refused)
		return -ENOMEM;
	if (end) {
		s->files = calloc(end, sizeof(*s->files));
		s->index = calloc(end, sizeof(*s->index));
		if (!s->files || !s->index)
			return -ENOMEM;
	}
	pthread_mutex_lock(&d->lock);
	s->state = d->state;
	memcpy(s->reason, d->reason, sizeof(s->reason));
	memcpy(s->last_error, d->last_error, sizeof(s->last_error));
	s->destages = d->destages;
	s->destage_errors = d->destage_errors;
	s->live_since = d->live_since;
	s->refused_n = d->refused_n;
	memcpy(s->refused, d->refused, sizeof(d->refused));
	/* Registered since we counted: the next status shows it. */
	for (uint32_t i = 0; i < CTL_LOGS; i++) {
		const struct domain_log *l = d->log[i];

		if (!l || s->files_n == end)
			continue;
		s->index[s->files_n] = l->index;
		s->files[s->files_n].id = l->id;
		s->files[s->files_n].failing = atomic_load_relaxed(&l->failing);
		(void)snprintf(s->files[s->files_n].path, sizeof(l->entry.path), "log:%s", l->name);
		s->files_n++;
	}
	for (uint32_t i = 0; i < d->files_end && s->files_n < end; i++) {
		const struct domain_file *df = d->file[i];

		if (!df)
			continue;
		s->index[s->files_n] = i;
		s->files[s->files_n].id = df->id;
		s->files[s->files_n].failing = atomic_load_relaxed(&df->failing);
		memcpy(s->files[s->files_n].path, df->entry.path, sizeof(df->entry.path));
		s->files[s->files_n].path[sizeof(df->entry.path) - 1] = '\0';
		s->files_n++;
	}
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_lock(&d->map_lock);
	s->attached = d->attached && GUARD(copy_words(d, s)) == 0;
	pthread_mutex_unlock(&d->map_lock);
	s->lane = d->lane;
	return 0;
}

static void add_string(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static void add_u64(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_int64((int64_t)value));
}

struct document {
	struct json_object *domains;
	uint32_t exit;
	char last_error[WIRE_TEXT];
	int error;
};

static struct json_object *file_json(const struct file_status *f, bool attached, uint32_t *exit)
{
	struct json_object *o = json_object_new_object();
	bool degraded = f->failing || f->degraded;

	add_u64(o, "id", f->id);
	add_string(o, "path", f->path);
	add_string(o, "state", f->state == FILE_BYPASS ? "bypass" : "lane");
	add_string(o, "reason", f->state == FILE_BYPASS ? reason_name(f->reason) : "");
	json_object_object_add(o, "degraded", json_object_new_boolean(degraded));
	add_u64(o, "live_bytes", f->live_bytes);
	add_u64(o, "records", f->records);
	add_u64(o, "saved_bytes", f->saved);
	if (f->state == FILE_BYPASS)
		add_u64(o, "bypass_since_ns", f->bypass_ns);
	if (degraded || (attached && f->state == FILE_BYPASS))
		*exit = 1;
	return o;
}

/* No entry, no id: written to the disk by a session that could not register it. */
static struct json_object *refused_json(const struct refused *f)
{
	struct json_object *o = json_object_new_object();
	char reason[sizeof(f->why) + 32];

	(void)snprintf(reason, sizeof(reason), "not registered: %s", f->why);
	add_u64(o, "id", 0);
	add_string(o, "path", f->path);
	add_string(o, "state", "bypass");
	add_string(o, "reason", reason);
	json_object_object_add(o, "degraded", json_object_new_boolean(false));
	add_u64(o, "live_bytes", 0);
	add_u64(o, "records", 0);
	add_u64(o, "saved_bytes", 0);
	return o;
}

static bool any_failing(const struct domain_status *s)
{
	for (uint32_t i = 0; i < s->files_n; i++)
		if (s->files[i].failing || s->files[i].degraded)
			return true;
	return false;
}

/* last_error stays when a file is well again: it says why records wait only while one still fails. */
static void stuck(struct document *doc, struct domain_status *s, uint64_t age_ms)
{
	doc->exit = 1;
	if (*s->last_error && any_failing(s))
		return;
	(void)snprintf(s->last_error, sizeof(s->last_error),
		       "the oldest record has waited for its file for %llu s: the disk hangs, or a "
		       "process does that holds a file's lock; the data is safe in the pool",
		       (unsigned long long)(age_ms / 1000));
}

static void domain_json(void *arg, struct domain *d)
{
	struct document *doc = arg;
	struct domain_status s;
	struct json_object *o, *files, *versions;
	uint64_t age = 0;

	if (copy_status(d, &s) < 0) {
		doc->error = -ENOMEM;
		goto out;
	}
	o = json_object_new_object();
	files = json_object_new_array();
	versions = json_object_new_object();
	add_string(o, "name", d->name);
	add_u64(o, "uid", d->uid);
	add_u64(o, "lane", s.lane);
	add_string(o, "state", state_name(s.state));
	add_string(o, "reason", s.reason);
	add_u64(o, "sessions", s.sessions);
	for (unsigned i = 0; i < VERSIONS; i++) {
		char key[16];

		(void)snprintf(key, sizeof(key), "%u", i);
		if (s.versions[i])
			add_u64(versions, key, s.versions[i]);
	}
	json_object_object_add(o, "sessions_by_version", versions);
	add_u64(o, "ring_size", s.ring_size);
	add_u64(o, "live_bytes", s.live_bytes);
	if (s.live_bytes && s.live_since)
		age = (now_monotonic_ns() - s.live_since) / MILLISECOND_NS;
	if (age * MILLISECOND_NS > config_get(d->set->config, destage_age_ns) + STUCK_NS)
		stuck(doc, &s, age);
	add_u64(o, "oldest_age_ms", age);
	add_u64(o, "wraps", s.wraps);
	add_u64(o, "full_waits", s.full_waits);
	add_u64(o, "records", s.records);
	add_u64(o, "bytes", s.bytes);
	add_u64(o, "destages", s.destages);
	add_u64(o, "destage_errors", s.destage_errors);
	add_string(o, "last_error", s.last_error);
	for (uint32_t i = 0; i < s.files_n; i++)
		json_object_array_add(files, file_json(&s.files[i], s.attached, &doc->exit));
	for (uint32_t i = 0; i < s.refused_n; i++) {
		json_object_array_add(files, refused_json(&s.refused[i]));
		doc->exit = 1;
	}
	json_object_object_add(o, "files", files);
	json_object_array_add(doc->domains, o);
	if (s.state != STATE_OK)
		doc->exit = 1;
	if (*s.last_error)
		memcpy(doc->last_error, s.last_error, sizeof(doc->last_error));
out:
	free(s.files);
	free(s.index);
	free(s.refused);
}

static void hex(const uint8_t *bytes, char ret[33])
{
	for (unsigned i = 0; i < 16; i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

struct json_object *domain_set_status(struct domain_set *set, const char *filter,
				      uint32_t *ret_exit)
{
	struct json_object *root = json_object_new_object(), *pool = json_object_new_object();
	struct document doc = { .domains = json_object_new_array() };
	const struct pool *p = set->pool;
	char uuid[33];
	int n;

	n = domain_filter_each(set, filter, domain_json, &doc);
	hex(p->sb.uuid, uuid);
	add_string(root, "version", PMEMLOGD_VERSION);
	add_string(pool, "path", p->path);
	add_string(pool, "uuid", uuid);
	json_object_object_add(pool, "emulated", json_object_new_boolean(p->emulated));
	json_object_object_add(pool, "durable", json_object_new_boolean(!p->emulated));
	add_string(pool, "durability",
		   p->emulated ? "NOT DURABLE: the pool is emulated, a power cut loses it" SIM_WORDS
			       : "durable: persistent memory");
	add_u64(pool, "generation", p->sb.generation);
	json_object_object_add(root, "pool", pool);
	json_object_object_add(root, "domains", doc.domains);
	add_string(root, "last_error", doc.last_error);
	if (p->emulated || n < 0 || doc.error)
		doc.exit = 1;
	json_object_object_add(root, "exit", json_object_new_int64(doc.exit));
	*ret_exit = doc.exit;
	return root;
}

struct summary {
	unsigned domains, attached, held, quarantined, undecided;
};

static void summarise(void *arg, struct domain *d)
{
	struct summary *s = arg;

	s->domains++;
	pthread_mutex_lock(&d->lock);
	s->held += d->state == STATE_HELD;
	s->quarantined += d->state == STATE_QUARANTINED;
	s->undecided += d->state == STATE_UNDECIDED;
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_lock(&d->map_lock);
	s->attached += d->attached;
	pthread_mutex_unlock(&d->map_lock);
}

void domain_set_summary(struct domain_set *set, char *buf, size_t n)
{
	struct summary s = { 0 };

	(void)domain_filter_each(set, "", summarise, &s);
	(void)snprintf(buf, n, "%s%u domains, %u with sessions, %u held, %u quarantined%s",
		       set->pool->emulated ? "NOT DURABLE (emulated pool); " : "", s.domains,
		       s.attached, s.held, s.quarantined,
		       s.undecided ? ", some not yet decided" : "");
}
