/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table of registered files: what comes in, what goes, and who answers for it meanwhile. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/dir/register.h"
#include "pool/guard.h"

/* How long another domain's registration of the same file is waited for: 5 s. Picked. */
#define BUSY_TRIES    250u
#define BUSY_PAUSE_NS (20 * MILLISECOND_NS)

static void pause_ns(uint64_t ns)
{
	struct timespec t = { .tv_nsec = (long)ns };

	(void)nanosleep(&t, NULL);
}

bool file_same(const struct pool_file *a, const struct pool_file *b)
{
	return memcmp(a->fs_uuid, b->fs_uuid, sizeof(a->fs_uuid)) == 0 &&
	       a->handle_type == b->handle_type && a->handle_bytes == b->handle_bytes &&
	       a->handle_bytes <= CTL_HANDLE_MAX &&
	       memcmp(a->handle, b->handle, a->handle_bytes) == 0;
}

int registry_entry_put(struct domain *d, struct domain_file *df, const struct pool_file *e)
{
	int r = 0;

	/* Without an index put would take a new one: a file in bypass has none. */
	if (df->catalog != UINT32_MAX)
		r = catalog_file_put(d->set->pool, df->catalog, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	df->entry = *e;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

void registry_add(struct domain *d, struct domain_file *df)
{
	pthread_mutex_lock(&d->lock);
	d->file[df->index] = df;
	d->files_end = max_of(d->files_end, df->index + 1);
	pthread_mutex_unlock(&d->lock);
}

void registry_forget(struct domain *d, struct domain_file *df)
{
	pthread_mutex_lock(&d->lock);
	d->file[df->index] = NULL;
	while (d->files_end && !d->file[d->files_end - 1])
		d->files_end--;
	pthread_mutex_unlock(&d->lock);
	if (df->fd >= 0)
		(void)close(df->fd);
	free(df);
}

void registry_forget_all(struct domain *d)
{
	while (d->files_end)
		registry_forget(d, d->file[d->files_end - 1]);
}

static struct domain_file *find(const struct domain *d, const struct pool_file *who)
{
	for (uint32_t i = 0; i < d->files_end; i++)
		if (d->file[i] && file_same(&d->file[i]->entry, who))
			return d->file[i];
	return NULL;
}

/*
 * Another domain that has the file; *ret_foreign: it knows already that it is not alone. None, and none
 * that is about to: the file is ours to register until unclaim(). *ret_busy: another one is about to.
 */
static struct domain *find_other(struct domain *d, const struct pool_file *who, bool *ret_foreign,
				 bool *ret_busy)
{
	struct domain *o, *found = NULL;

	*ret_foreign = *ret_busy = false;

	pthread_mutex_lock(&d->set->lock);
	for (o = d->set->first; o && !found; o = o->next) {
		struct domain_file *df;

		if (o == d)
			continue;
		pthread_mutex_lock(&o->lock);
		df = find(o, who);
		if (df) {
			found = o;
			*ret_foreign = df->foreign;
		} else if (o->claims && file_same(&o->claim, who)) {
			*ret_busy = true;
		}
		pthread_mutex_unlock(&o->lock);
	}
	/* Still under set->lock: of two domains one sees the other's claim. */
	if (!found && !*ret_busy) {
		pthread_mutex_lock(&d->lock);
		d->claim = *who;
		d->claims = true;
		pthread_mutex_unlock(&d->lock);
	}
	pthread_mutex_unlock(&d->set->lock);
	return found;
}

static void unclaim(struct domain *d)
{
	pthread_mutex_lock(&d->lock);
	d->claims = false;
	pthread_mutex_unlock(&d->lock);
}

/* ---- in --------------------------------------------------------------------------------------- */

static int free_index(const struct control *c, struct domain_file *const *file)
{
	/* An id that we do not know is a client's doing, or an earlier daemon's: not ours to take. */
	for (uint32_t i = 0; i < CTL_FILES; i++)
		if (!file[i] && atomic_load_relaxed(&c->files[i].id) == 0)
			return (int)i;
	return -ENFILE;
}

static int find_index(const struct domain *d)
{
	return GUARD(free_index(&d->s.ctl, d->file));
}

static int entry_fill(const struct domain *d, const struct domain_file *df, const struct stat *st,
		      uint32_t state, uint32_t reason)
{
	struct ctl_file *f = words_entry(d, df);

	/* All but the lock, which a client with an older id may hold for an instant. */
	memset((uint8_t *)f + sizeof(f->lock), 0, sizeof(*f) - sizeof(f->lock));
	f->state = state;
	f->reason = reason;
	f->bypass_ns = state == FILE_BYPASS ? now_realtime_ns() : 0;
	f->handle_type = df->entry.handle_type;
	f->handle_bytes = df->entry.handle_bytes;
	memcpy(f->handle, df->entry.handle, sizeof(f->handle));
	f->dev_major = major(st->st_dev);
	f->dev_minor = minor(st->st_dev);
	f->ino = st->st_ino;
	if (atomic_load_relaxed(&d->s.ctl.hot->files_end) <= df->index)
		atomic_store_relaxed(&d->s.ctl.hot->files_end, df->index + 1);
	/* Release pairs with the sessions' look: whoever sees the id sees the entry. */
	atomic_store_release(&f->id, df->id);
	return 0;
}

static int entry_publish(const struct domain *d, const struct domain_file *df,
			 const struct stat *st, uint32_t reason)
{
	return GUARD(entry_fill(d, df, st, reason ? FILE_BYPASS : FILE_LANE, reason));
}

/* The file stays as it is, written to the disk: said to the client, and kept for status. */
static void refuse(struct domain *d, struct domain_request *r, int rc, const char *why)
{
	refused_add(d, r->path, why);
	log_msg(LOG_WARNING, d->name, "%s: not registered: %s", r->path, why);
	request_done(r, rc, 1, "%s", why);
}

static void answer(struct domain *d, struct domain_file *df, struct domain_request *r)
{
	struct file_words w;

	if (words_file(d, df, &w) < 0) {
		request_done(r, -EBUSY, 1, "the control file is damaged");
		return;
	}
	r->entry = df->index;
	r->state = w.state;
	r->id = df->id;
	refused_drop(d, r->path);
	request_done(r, 0, 0, NULL);
}

/* The mark stands: is anybody writing the file without a session? Held: mark and entry go again. */
bool registry_token_claim(struct domain *d, struct domain_file *df, const struct stat *st,
			  int *ret_fd)
{
	int r = token_claim(d->set->bypass_fd, major(st->st_dev), minor(st->st_dev), st->st_ino,
			    ret_fd);

	if (r == TOKEN_FREE)
		return false;
	if (r < 0)
		log_msg(LOG_WARNING, d->name, "%s: bypass token: %s", df->entry.path, strerror(-r));
	r = register_release(d->set->pool, df->fd, df->catalog);
	if (r < 0)
		log_msg(LOG_WARNING, d->name, "%s: owner mark: %s", df->entry.path, strerror(-r));
	else
		df->catalog = UINT32_MAX;
	df->token_wait = true;
	return true;
}

bool registry_token_held(struct domain *d, struct domain_file *df, const struct stat *st)
{
	cleanup_close int fd = -1;

	return registry_token_claim(d, df, st, &fd);
}

/* Takes a file on; model: tests/models/token.pml. who: its identity. foreign: another domain has it, and is in bypass with it. */
static void take_on(struct domain *d, struct domain_request *r, const struct pool_file *who,
		    bool foreign)
{
	/* Kept until the entry is published: see token.c. */
	cleanup_close int token = -1;
	struct domain_file *df;
	struct pool_error e = { "" };
	uint32_t reason = BYPASS_NONE;
	struct ctl_cell cell;
	struct stat st;
	int index, rc;

	index = find_index(d);
	if (index < 0) {
		refuse(d, r, -ENFILE, "no free entry in the control file: too many files");
		return;
	}
	df = calloc(1, sizeof(*df));
	if (!df) {
		request_done(r, -ENOMEM, 1, "out of memory");
		return;
	}
	df->index = (uint32_t)index;
	df->fd = -1;
	if (foreign) {
		/* No mark and no entry of ours: it never has a record, the other domain's stand. */
		df->entry = *who;
		(void)snprintf(df->entry.path, sizeof(df->entry.path), "%.319s", r->path);
		df->catalog = UINT32_MAX;
		df->foreign = true;
		df->fd = fd_reopen(r->fd);
		df->id = pool_new_file_id(d->set->pool);
		rc = df->fd < 0 ? df->fd : df->id == 0 ? -EIO : 0;
		reason = BYPASS_FOREIGN;
	} else {
		rc = register_stamp(d->set->pool, r->fd, d->lane, r->path,
				    (const char *const *)config_get(d->set->config, trust_fs),
				    &df->entry, &df->catalog, &df->fd, &e);
		df->id = df->entry.id;
	}
	if (rc == 0 && fstat(df->fd, &st) < 0)
		rc = -errno;
	if (rc < 0) {
		refuse(d, r, rc, *e.text ? e.text : strerror(-rc));
		goto fail;
	}
	if (!foreign && registry_token_claim(d, df, &st, &token)) {
		reason = BYPASS_TOKEN;
	} else if (!foreign && fsync(df->fd) < 0) {
		/* A token's holder may have written after the registration's own sync and have let go
		 * of the token since: from here on an fsync has nothing to do, so that counts now. */
		rc = -errno;
		(void)register_release(d->set->pool, df->fd, df->catalog);
		refuse(d, r, rc, strerror(-rc));
		goto fail;
	}

	/* Read after the opening: what is below may have failed before our description was there. Without the
	 * lock: nobody knows the entry yet, so no write of it is under way. */
	rc = words_head(d, &cell);
	if (rc == 0) {
		df->open_head = df->durable_below = cell.head;
		rc = entry_publish(d, df, &st, reason);
	}
	if (rc < 0) {
		request_done(r, -EBUSY, 1, "the control file is damaged");
		if (df->catalog != UINT32_MAX)
			(void)register_release(d->set->pool, df->fd, df->catalog);
		goto fail;
	}
	registry_add(d, df);
	log_msg(LOG_DEBUG, d->name, "%s: registered, id %llu%s", df->entry.path,
		(unsigned long long)df->id, reason ? ", in bypass" : "");
	answer(d, df, r);
	return;
fail:
	if (df->fd >= 0)
		(void)close(df->fd);
	free(df);
}

static void ask_other(struct domain *d, struct domain *other, const struct pool_file *who,
		      struct domain_request *r)
{
	struct yield *y = calloc(1, sizeof(*y));
	bool stopped;

	if (!y) {
		request_done(r, -ENOMEM, 1, "out of memory");
		return;
	}
	y->who = *who;
	y->from = d;
	y->request = r;
	pthread_mutex_lock(&other->lock);
	stopped = other->stop;
	if (!stopped) {
		y->next = other->yields;
		other->yields = y;
	}
	pthread_mutex_unlock(&other->lock);
	if (stopped) {
		free(y);
		request_done(r, -ESHUTDOWN, 1, "the daemon stops");
		return;
	}
	domain_wake(other);
}

void request_register(struct domain *d, struct domain_request *r)
{
	struct pool_file who = { .used = 0 };
	struct domain_file *df;
	struct domain *other;
	bool foreign, busy;
	int flags, rc;

	if (d->state != STATE_OK || !d->attached) {
		request_done(r, -EBUSY, 1, "%s",
			     *d->reason ? d->reason : "no session: attach first");
		return;
	}
	flags = fcntl(r->fd, F_GETFL);
	if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_RDONLY) {
		request_done(r, -EINVAL, 1, "not open for writing");
		return;
	}
	rc = identity_of(r->fd, (const char *const *)config_get(d->set->config, trust_fs), &who);
	if (rc < 0) {
		refuse(d, r, rc,
		       rc == -EOPNOTSUPP
			       ? "its file system is not supported (see trust_fs), or has no "
				 "file handles or user attributes"
			       : strerror(-rc));
		return;
	}
	df = find(d, &who);
	if (df) {
		answer(d, df, r);
		return;
	}
	other = find_other(d, &who, &foreign, &busy);
	if (busy) {
		if (r->goal++ >= BUSY_TRIES) {
			request_done(r, -EBUSY, 1, "another domain is registering it");
			return;
		}
		pause_ns(BUSY_PAUSE_NS);
		domain_push(d, r);
		return;
	}
	/* Not before it has its records durable in the file and logs no more of them: replay would
	 * put them over what this domain writes. */
	if (other && !foreign) {
		ask_other(d, other, &who, r);
		return;
	}
	take_on(d, r, &who, other != NULL);
	unclaim(d);
}

/* ---- both to bypass ---------------------------------------------------------------------------- */

static int yield_file(struct domain *d, struct domain_file *df)
{
	struct file_ref ref = words_ref(d, df);
	int r;

	if (df->fd < 0)
		return -EIO;
	r = rewrite_renew(d, df);
	if (r < 0)
		return r;
	d->changing = df;
	r = GUARD(file_enter_bypass(&d->s, &d->who, &ref, BYPASS_FOREIGN));
	d->changing = NULL;
	words_noted(df, &ref);
	return r;
}

void registry_yield(struct domain *d, struct yield *y)
{
	struct domain_file *df = d->attached ? find(d, &y->who) : NULL;
	struct domain *from = y->from;
	struct domain_request *r = y->request;
	int rc = 0;

	free(y);
	if (df) {
		rc = yield_file(d, df);
		if (rc == -EFAULT)
			domain_fault(d, "the control file was cut short by one of its processes");
		if (rc == 0) {
			log_event(LOG_WARNING, LOG_ID_BYPASS, d->name, df->entry.path,
				  "domain %s opened it, too: both write it without the lane",
				  from->name);
			pthread_mutex_lock(&d->lock);
			df->foreign = true;
			df->token_wait = false;
			pthread_mutex_unlock(&d->lock);
		}
	}
	if (rc < 0)
		request_done(r, -EBUSY, 1, "domain %s has it and does not let go: %s", d->name,
			     strerror(-rc));
	else
		domain_push(from, r);
}

/* ---- out -------------------------------------------------------------------------------------- */

int registry_release_all(struct domain *d)
{
	int first = 0;

	for (uint32_t i = 0; i < d->files_end; i++) {
		struct domain_file *df = d->file[i];
		int r;

		if (!df || df->catalog == UINT32_MAX)
			continue;
		r = df->fd < 0 && !df->gone ? -EIO : rewrite_renew(d, df);
		if (r == 0)
			r = register_release(d->set->pool, df->gone ? -1 : df->fd, df->catalog);
		if (r < 0) {
			log_msg(LOG_ERR, d->name, "%s: cannot be released: %s", df->entry.path,
				strerror(-r));
			first = first ? first : r;
		}
	}
	if (first == 0)
		registry_forget_all(d);
	return first;
}
