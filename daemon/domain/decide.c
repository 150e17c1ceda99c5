/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a domain is when nobody serves it yet: sessions to go on with, records to recover, or nothing. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "daemon/recover/recover.h"
#include "pool/dir/register.h"
#include "pool/guard.h"
#include "pool/slot.h"
#include "pool/space.h"
#include "pool/walk.h"

/* The control file that an earlier daemon left, if any. */
struct found {
	struct control ctl; /* ctl.fd -1: there is none */
	struct ctl_head head;
	bool mapped;
	bool matches; /* this boot's and this incarnation's */
	bool live;    /* a session holds a slot */
};

static int map_found(struct found *f)
{
	int fd = f->ctl.fd;
	int r = control_map(&f->ctl, fd, &f->head);

	if (r < 0) {
		f->ctl = (struct control){ .fd = fd };
		return r;
	}
	return 0;
}

static void find_control(struct domain *d, const struct pool_domain *pd, struct found *ret)
{
	char name[CONTROL_NAME_BYTES];
	struct stat st;
	int fd;

	*ret = (struct found){ .ctl.fd = -1 };
	control_name(d->lane, name);
	fd = openat(d->set->control_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		(void)close(fd);
		return;
	}
	ret->ctl.fd = fd;
	ret->mapped = GUARD(map_found(ret)) == 0;
	/* Locks lie beyond the end of the file: they are there even when it was cut short. */
	ret->live = slot_any_live(&ret->ctl);
	ret->matches = ret->mapped && ret->head.lane == pd->lane && ret->head.uid == pd->uid &&
		       ret->head.incarnation == pd->incarnation &&
		       ret->head.ring_size == pd->ring_size &&
		       memcmp(ret->head.boot_id, d->set->boot_id, 16) == 0 &&
		       memcmp(pd->boot_id, d->set->boot_id, 16) == 0;
}

static void found_close(struct found *f)
{
	if (f->mapped)
		control_unmap(&f->ctl, true);
	else if (f->ctl.fd >= 0)
		(void)close(f->ctl.fd);
	f->ctl.fd = -1;
	f->mapped = false;
}

static int close_state(struct control *c)
{
	/* Release pairs with slot_take: whoever takes a byte from now on lets go of it. */
	atomic_store_release(&c->head->state, CTL_CLOSED);
	return 0;
}

/* No session may begin from now on. False: one is there. */
static bool shut(struct found *f)
{
	bool shut = false;

	if (!f->mapped)
		return !f->live;
	if (session_lock_exclusive(&f->ctl, 1000) < 0)
		return false;
	if (!slot_any_live(&f->ctl))
		shut = GUARD(close_state(&f->ctl)) == 0;
	session_unlock(&f->ctl);
	return shut;
}

/* ---- resume ----------------------------------------------------------------------------------- */

static int entry_index(const struct control *c, uint64_t id)
{
	for (uint32_t i = 0; i < CTL_FILES; i++)
		if (atomic_load_acquire(&c->files[i].id) == id)
			return (int)i;
	return -ENOENT;
}

/* The tail: where its two copies differ, the lower from which the walk reaches the head. */
static int find_tail(const struct lane *l, uint64_t head, uint64_t *ret)
{
	struct lane_tail_found t[2];
	struct record_header h;
	struct walk w;
	int n, r;

	n = lane_tail_read(l, t);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		*ret = t[i].tail;
		if (n == 1)
			return 0;
		walk_begin(&w, l, t[i].tail, t[i].chain, head);
		do {
			r = walk_next(&w, &h);
		} while (r == WALK_RECORD);
		if (r == WALK_END)
			return 0;
	}
	return -EBADMSG;
}

static int look_unlinked(const struct ctl_file *f)
{
	return atomic_load_acquire(&f->unlinked) != 0;
}

/* The session has said that it takes the last name away: a stale handle is no surprise. */
static bool unlinked(const struct domain *d, int index)
{
	return GUARD(look_unlinked(&d->s.ctl.files[index])) == 1;
}

/* One file of the catalog: a description of our own again, to which no record is newer yet: what is live at
 * the first step will be healed. */
static int resume_file(struct domain *d, uint32_t catalog, const struct pool_file *e)
{
	struct domain_file *df;
	int fd = -1, index, r;

	index = GUARD(entry_index(&d->s.ctl, e->id));
	if (index == -EFAULT)
		return index;
	r = identity_open(e, O_RDWR, &fd);
	if (index < 0) {
		/* Registered halfway, or dropped halfway: no record of it can be live. */
		if (r == IDENTITY_OK)
			r = register_release(d->set->pool, fd, catalog);
		else
			r = catalog_file_drop(d->set->pool, catalog);
		if (r < 0)
			log_msg(LOG_WARNING, d->name, "%s: %s", e->path, strerror(-r));
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}

	if (r != IDENTITY_OK)
		log_msg(LOG_WARNING, d->name, "%s: cannot be opened: %s", e->path,
			identity_words(r));
	df = calloc(1, sizeof(*df));
	if (!df) {
		if (fd >= 0)
			(void)close(fd);
		return -ENOMEM;
	}
	df->fd = r == IDENTITY_OK ? fd : -1;
	df->found = r;
	df->gone = r == IDENTITY_STALE && (e->flags & POOL_FILE_UNLINKED || unlinked(d, index));
	df->id = e->id;
	df->index = (uint32_t)index;
	df->catalog = catalog;
	df->entry = *e;
	/* Also where it could not be opened: nobody takes its lock before registry_tick has opened it. */
	df->open_head = OPEN_HEAD_NONE;
	registry_add(d, df);
	return 0;
}

static int resume_files(struct domain *d)
{
	struct pool_file e;
	uint32_t from = 0;
	int index, r;

	while ((index = catalog_file_next(d->set->pool, d->lane, from, &e)) >= 0) {
		from = (uint32_t)index + 1;
		r = e.flags & POOL_FILE_LOG ? logs_resume(d, (uint32_t)index, &e)
					    : resume_file(d, (uint32_t)index, &e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int forget_entry(struct domain *d, struct ctl_file *f)
{
	struct file_ref ref = { .f = f, .id = atomic_load_acquire(&f->id), .fd = -1 };
	uint32_t reason = atomic_load_relaxed(&f->reason);

	if (ref.id == 0 || (reason != BYPASS_TOKEN && reason != BYPASS_FOREIGN))
		return 0;
	/* A peer that does not let go keeps what it has. */
	if (file_lock(&d->s, &d->who, &ref) < 0)
		return 0;
	/* Release: nothing that we did with the entry comes after a session finds it free. */
	if (atomic_load_relaxed(&f->state) == FILE_BYPASS && !space_file_live(&d->s, f))
		atomic_store_release(&f->id, 0);
	file_unlock(&d->s, &ref);
	return 0;
}

/*
 * Files that an earlier daemon had in bypass and not in the catalog (a token was held, another domain has
 * the file): nothing that we may believe says which files they are, so nobody would show them, take them
 * out of bypass, or keep another domain from logging records of them. Without their entry their
 * processes find them unregistered at the next call, and bring us descriptors again.
 */
static int forget_unknown(struct domain *d)
{
	for (uint32_t i = 0; i < CTL_FILES; i++)
		if (!d->file[i] && GUARD(forget_entry(d, &d->s.ctl.files[i])) < 0)
			return -EFAULT;
	return 0;
}

static int resume_words(struct domain *d)
{
	struct ctl_hot *hot = d->s.ctl.hot;

	atomic_add_seq(&hot->daemon_seq, 1);
	atomic_store_relaxed(&hot->daemon_ns, now_monotonic_ns());
	/* An earlier daemon may have died asleep; we are awake. */
	atomic_store_seq(&hot->asleep, 0);
	return 0;
}

static bool resume(struct domain *d, const struct pool_domain *pd, struct found *f)
{
	struct session s = { .io = &domain_io, .is_daemon = true };
	struct pool_error e = { "" };
	struct ctl_cell cell;
	uint64_t tail = 0;
	int fd = -1, r;

	r = pool_lane_open(d->set->pool, pd, &s.lane, &fd, &e);
	if (r < 0) {
		domain_state_set(d, STATE_HELD, "%s, and sessions live", e.text);
		return false;
	}
	s.ctl = f->ctl;
	s.head_copy = f->head;
	if (s.lane.incarnation != f->head.incarnation)
		r = -EBADMSG;
	if (r == 0)
		r = GUARD(slot_take_daemon(&s.ctl, &s.me));
	if (r == 0)
		r = GUARD(find_tail(&s.lane, control_head(&s.ctl).head, &tail));
	if (r < 0) {
		pool_lane_close(&s.lane, fd);
		domain_state_set(d, STATE_HELD, "sessions live, and lane %u cannot be served: %s",
				 pd->lane, r == -EBUSY ? "another daemon serves it" : strerror(-r));
		return false;
	}
	f->ctl.fd = -1; /* ours now */
	f->mapped = false;
	d->s = s;
	d->lane_fd = fd;
	d->tail = tail;

	r = GUARD(resume_words(d));
	if (r == 0)
		r = words_head(d, &cell);
	attach_publish(d);
	/* An earlier daemon may have died between persisting and publishing its tail. */
	d->publish = true;
	if (r == 0)
		r = resume_files(d);
	if (r == 0)
		r = forget_unknown(d);
	if (r < 0) {
		domain_fault(d, "sessions live, and their control file is damaged");
		return false;
	}
	d->grace_ns = 0;
	domain_state_set(d, STATE_OK, NULL);
	log_msg(LOG_NOTICE, d->name, "sessions live: going on with lane %u", d->lane);
	return true;
}

/* ---- no session ------------------------------------------------------------------------------- */

static bool files_left(struct domain *d)
{
	struct pool_file e;

	return catalog_file_next(d->set->pool, d->lane, 0, &e) >= 0;
}

void control_remove(struct domain *d)
{
	char name[CONTROL_NAME_BYTES];

	control_name(d->lane, name);
	if (unlinkat(d->set->control_fd, name, 0) < 0 && errno != ENOENT)
		log_msg(LOG_WARNING, d->name, "control file %s: %s", name, strerror(errno));
}

int domain_recover(struct domain *d, bool dry_run, bool apply, struct json_object **ret_report)
{
	const struct recover_options o = {
		.clock_wait_ns = config_get(d->set->config, clock_wait_ns),
		.dry_run = dry_run,
		.apply = apply,
	};
	struct pool_domain pd = { .reason = "" };
	int r;

	r = recover_domain(d->set->pool, d->catalog, &o, ret_report);
	if (dry_run)
		return r;
	if (r != RECOVER_CLEAN)
		(void)catalog_domain_get(d->set->pool, d->catalog, &pd);
	d->held_ns = now_monotonic_ns() + HELD_RETRY_NS;
	switch (r) {
	case RECOVER_CLEAN:
		control_remove(d);
		log_event(LOG_NOTICE, LOG_ID_RECOVERED, d->name, NULL,
			  "recovered: nothing is left over");
		domain_state_set(d, STATE_OK, NULL);
		break;
	case RECOVER_HELD:
		domain_state_set(d, STATE_HELD, "%s", pd.reason);
		break;
	case RECOVER_QUARANTINED:
		domain_state_set(d, STATE_QUARANTINED, "%s", pd.reason);
		break;
	default:
		domain_state_set(d, STATE_HELD, "recovery: %s; tried again", strerror(-r));
	}
	return r;
}

void domain_decide(struct domain *d)
{
	struct pool_domain pd;
	struct found f;
	int index;

	index = catalog_domain_find(d->set->pool, d->uid, d->name);
	if (index < 0 || catalog_domain_get(d->set->pool, (uint32_t)index, &pd) < 0) {
		d->catalog = UINT32_MAX;
		domain_state_set(d, STATE_OK, NULL); /* it never had a lane */
		return;
	}
	d->catalog = (uint32_t)index;
	d->lane = pd.lane;
	d->held_ns = now_monotonic_ns() + HELD_RETRY_NS;
	if (pd.verdict == VERDICT_QUARANTINED) {
		const struct recover_options o = { .apply = false };

		/* Changes nothing but the attributes, which a crash behind the verdict left off. */
		(void)recover_domain(d->set->pool, d->catalog, &o, NULL);
		domain_state_set(d, STATE_QUARANTINED, "%s", pd.reason);
		return;
	}

	find_control(d, &pd, &f);
	if (f.matches && f.live && f.head.state != CTL_CLOSED) {
		(void)resume(d, &pd, &f);
		found_close(&f);
		return;
	}
	if (f.live || !shut(&f)) {
		found_close(&f);
		domain_state_set(
			d, STATE_HELD,
			"processes of it live on a control file that is damaged or another "
			"lane's: stop them");
		return;
	}
	found_close(&f);

	if (!pool_lane_holds(d->set->pool, &pd)) {
		/* A verdict still there: an earlier end was cut short just before it took that away, and
		 * what --apply had overruled for it must not count in the next life. */
		if (!files_left(d) && pd.verdict == VERDICT_NONE && pd.flags == 0) {
			control_remove(d);
			domain_state_set(d, STATE_OK, NULL);
			return;
		}
	} else if (!f.matches && memcmp(pd.boot_id, d->set->boot_id, 16) == 0) {
		/* Its processes may live and have more than the lane says. */
		domain_state_set(d, STATE_HELD,
				 "records of this boot, but no control file of theirs: stop the "
				 "database, then: pmemlogctl recover --apply %s",
				 d->name);
		return;
	}
	(void)domain_recover(d, false, false, NULL);
}
