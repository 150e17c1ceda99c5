/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Native logs that are open: what comes in, what goes. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/guard.h"

struct log_name logs_name(const struct domain *d, const char *name)
{
	return (struct log_name){
		.state_dir = d->set->pool->state_dir,
		.uid = d->uid,
		.domain = d->name,
		.name = name,
	};
}

struct domain_log *logs_find_any(const struct domain *d, const char *name)
{
	for (uint32_t i = 0; i < CTL_LOGS; i++)
		if (d->log[i] && strcmp(d->log[i]->name, name) == 0)
			return d->log[i];
	return NULL;
}

struct domain_log *logs_find(const struct domain *d, const char *name)
{
	struct domain_log *l = logs_find_any(d, name);

	return l && !l->removing ? l : NULL;
}

/* ---- words ------------------------------------------------------------------------------------- */

/* The part of the control file behind what files have: made when the first log is opened, mapped once. */
static int map_logs(struct domain *d)
{
	struct stat st;
	void *p;

	if (d->logs)
		return 0;
	if (fstat(d->s.ctl.fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < CTL_WITH_LOGS_BYTES &&
	    ftruncate(d->s.ctl.fd, (off_t)CTL_WITH_LOGS_BYTES) < 0)
		return -errno;
	p = mmap(NULL, (size_t)CTL_LOGS * CTL_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		 d->s.ctl.fd, (off_t)CTL_LOGS_OFFSET);
	if (p == MAP_FAILED)
		return -errno;
	(void)madvise(p, (size_t)CTL_LOGS * CTL_LOG_BYTES, MADV_DONTDUMP);
	pthread_mutex_lock(&d->map_lock);
	d->logs = p;
	pthread_mutex_unlock(&d->map_lock);
	return 0;
}

static void place(struct domain *d, struct domain_log *l)
{
	log_ref_at(&l->ref, d->logs, l->slot);
	l->ref.f = &d->s.ctl.files[l->index];
	l->ref.id = l->id;
}

static int end_read(const struct domain_log *l, uint64_t *ret)
{
	/* Acquire: pairs with the release behind a publication. */
	if (atomic_load_acquire(&l->ref.l->id) != l->id)
		return -ESTALE;
	*ret = log_end(&l->ref);
	return 0;
}

int logs_end(const struct domain *d, const struct domain_log *l, uint64_t *ret)
{
	(void)d;
	return GUARD(end_read(l, ret));
}

static int fill(const struct domain *d, const struct domain_log *l)
{
	struct ctl_log *c = l->ref.l;
	struct ctl_file *f = l->ref.f;

	memset(c, 0, sizeof(*c));
	c->entry = l->index;
	c->lsn = c->staged = c->first = c->disk = l->store.disk;
	c->first = l->store.first;
	c->capacity = l->store.capacity;
	c->read_only = !(l->store.mode & 0200);
	/* All but the lock, as for a file. */
	memset((uint8_t *)f + sizeof(f->lock), 0, sizeof(*f) - sizeof(f->lock));
	f->state = FILE_LANE;
	f->handle_type = CTL_LOG_HANDLE;
	f->handle_bytes = (uint32_t)strlen(l->name);
	memcpy(f->handle, l->name, f->handle_bytes);
	f->ino = l->slot;
	if (atomic_load_relaxed(&d->s.ctl.hot->files_end) <= l->index)
		atomic_store_relaxed(&d->s.ctl.hot->files_end, l->index + 1);
	/* Release, both: whoever sees the id sees the log. */
	atomic_store_release(&c->id, l->id);
	atomic_store_release(&f->id, l->id);
	return 0;
}

static int free_entry(const struct domain *d)
{
	for (uint32_t i = 0; i < CTL_FILES; i++)
		if (!d->file[i] && atomic_load_relaxed(&d->s.ctl.files[i].id) == 0)
			return (int)i;
	return -ENFILE;
}

/* ---- in ---------------------------------------------------------------------------------------- */

static void add(struct domain *d, struct domain_log *l)
{
	pthread_mutex_lock(&d->lock);
	pthread_mutex_lock(&d->map_lock);
	d->log[l->slot] = l;
	pthread_mutex_unlock(&d->map_lock);
	pthread_mutex_unlock(&d->lock);
}

void logs_close(struct domain_log *l)
{
	if (l->store_open)
		log_store_close(&l->store);
	if (l->reading) {
		(void)close(l->reader.fd);
		segment_end(&l->reader);
	}
	l->store_open = l->reading = false;
}

static struct domain_log *free_log(struct domain_log *l)
{
	logs_close(l);
	log_buffer_free(&l->buffer);
	free(l);
	return NULL;
}

/* Entry in the catalog, then in the control file: a record of it can be judged from the first on. */
static int publish(struct domain *d, struct domain_log *l, char *why, size_t n)
{
	int index, r;

	r = map_logs(d);
	if (r < 0) {
		(void)snprintf(why, n, "control file: %s", strerror(-r));
		return r;
	}
	l->slot = 0;
	while (l->slot < CTL_LOGS && d->log[l->slot])
		l->slot++;
	index = GUARD(free_entry(d));
	if (l->slot == CTL_LOGS || index < 0) {
		(void)snprintf(why, n, "too many logs are open in this domain");
		return index == -EFAULT ? index : -EMFILE;
	}
	l->index = (uint32_t)index;
	/* Allocated: a full tmpfs must fail here and not as a SIGBUS in a client. */
	if (fallocate(d->s.ctl.fd, 0, (off_t)(CTL_LOGS_OFFSET + (uint64_t)l->slot * CTL_LOG_BYTES),
		      CTL_LOG_BYTES) < 0) {
		(void)snprintf(why, n, "control file: %s", strerror(errno));
		return -ENOSPC;
	}
	l->id = pool_new_file_id(d->set->pool);
	if (l->id == 0)
		return -EIO;
	l->entry = (struct pool_file){
		.id = l->id,
		.lane = d->lane,
		.flags = POOL_FILE_LOG,
		.handle_type = CTL_LOG_HANDLE,
		.handle_bytes = (uint32_t)strlen(l->name),
		.log_disk = l->store.disk,
		.log_slot = l->slot,
	};
	memcpy(l->entry.handle, l->name, l->entry.handle_bytes);
	(void)snprintf(l->entry.path, sizeof(l->entry.path), "log:%s", l->name);
	r = catalog_file_put(d->set->pool, UINT32_MAX, &l->entry);
	if (r < 0) {
		(void)snprintf(why, n, "catalog: %s", strerror(-r));
		return r;
	}
	l->catalog = (uint32_t)r;
	place(d, l);
	r = GUARD(fill(d, l));
	if (r < 0)
		(void)catalog_file_drop(d->set->pool, l->catalog);
	return r;
}

int logs_get(struct domain *d, const struct wire_log *q, bool create, struct domain_log **ret,
	     bool *ret_made, char *why, size_t n)
{
	struct log_name name = logs_name(d, q->name);
	struct domain_log *l = logs_find_any(d, q->name);
	bool made = false;
	int r = 0;

	if (ret_made)
		*ret_made = false;
	if (l && l->removing) {
		(void)snprintf(why, n, "it is being removed");
		return -EBUSY;
	}
	if (l) {
		*ret = l;
		return 0;
	}
	if (create) {
		r = log_store_create(&name, q->mode, q->value);
		made = r == 0;
		if (r == -EEXIST)
			r = 0;
	}
	l = r < 0 ? NULL : calloc(1, sizeof(*l));
	if (!l) {
		r = r < 0 ? r : -ENOMEM;
		(void)snprintf(why, n, "%s", strerror(-r));
		return r;
	}
	(void)snprintf(l->name, sizeof(l->name), "%s", q->name);
	r = log_store_open(&l->store, &name, LOG_STORE_UNKNOWN, true);
	l->store_open = r == 0;
	memcpy(l->log, l->store.log, sizeof(l->log));
	if (r < 0)
		(void)snprintf(why, n, "%s", r == -ENOENT ? "no such log" : l->store.why);
	else
		r = publish(d, l, why, n);
	if (r < 0) {
		free_log(l);
		return r;
	}
	l->durable_below = d->tail;
	add(d, l);
	log_msg(LOG_DEBUG, d->name, "log %s: opened, id %llu", l->name, (unsigned long long)l->id);
	if (ret_made)
		*ret_made = made;
	*ret = l;
	return 0;
}

static int check_resumed(const struct domain_log *l)
{
	return atomic_load_acquire(&l->ref.l->id) == l->id &&
			       atomic_load_acquire(&l->ref.f->id) == l->id
		       ? 0
		       : -EBADMSG;
}

static int resumed_entry(const struct domain *d, uint32_t slot)
{
	const struct ctl_log *c = (const void *)(d->logs + (uint64_t)slot * CTL_LOG_BYTES);
	uint32_t entry = atomic_load_relaxed(&c->entry);

	return entry < CTL_FILES && !d->file[entry] ? (int)entry : -EBADMSG;
}

int logs_resume(struct domain *d, uint32_t catalog, const struct pool_file *e)
{
	struct domain_log *l;
	int index, r;

	if (e->log_slot >= CTL_LOGS || d->log[e->log_slot] ||
	    !log_name_ok((const char *)e->handle, sizeof(e->handle)))
		return -EBADMSG;
	r = map_logs(d);
	if (r < 0)
		return r;
	index = GUARD(resumed_entry(d, e->log_slot));
	if (index == -EFAULT)
		return index;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	memcpy(l->name, e->handle, sizeof(l->name));
	l->id = e->id;
	l->slot = e->log_slot;
	l->catalog = catalog;
	l->entry = *e;
	if (index >= 0) {
		l->index = (uint32_t)index;
		place(d, l);
		r = e->flags & POOL_FILE_UNLINKED ? logs_remove_resumed(d, l) : 0;
		l->removing = r == 1;
		index = r < 0 ? r : r == 1 ? 0 : GUARD(check_resumed(l));
	}
	if (index < 0) {
		/* Opened halfway, or removed but for this: no record of it can be live. */
		free_log(l);
		return index == -EFAULT ? index : catalog_file_drop(d->set->pool, catalog);
	}
	/* The store at the next destage: if it cannot be opened, that says so and tries again. */
	add(d, l);
	return 0;
}

/* ---- out --------------------------------------------------------------------------------------- */

void logs_forget(struct domain *d, struct domain_log *l)
{
	pthread_mutex_lock(&d->lock);
	pthread_mutex_lock(&d->map_lock);
	d->log[l->slot] = NULL;
	pthread_mutex_unlock(&d->map_lock);
	pthread_mutex_unlock(&d->lock);
	free_log(l);
}

void logs_forget_all(struct domain *d)
{
	uint8_t *p = d->logs;

	for (uint32_t i = 0; i < CTL_LOGS; i++)
		if (d->log[i])
			logs_forget(d, d->log[i]);
	pthread_mutex_lock(&d->map_lock);
	d->logs = NULL;
	pthread_mutex_unlock(&d->map_lock);
	if (p)
		(void)munmap(p, (size_t)CTL_LOGS * CTL_LOG_BYTES);
}

int logs_store(struct domain *d, struct domain_log *l)
{
	struct log_name name = logs_name(d, l->name);
	int r = 0;

	if (!l->store_open)
		r = log_store_open(&l->store, &name, l->entry.log_disk, true);
	l->store_open = r == 0;
	if (r == 0)
		memcpy(l->log, l->store.log, sizeof(l->log));
	return r;
}

int logs_view(struct domain *d, struct domain_log *l, struct log_store *view,
	      struct log_store **ret)
{
	struct log_name name = logs_name(d, l->name);
	int r;

	*ret = &l->store;
	if (l->store_open || (!l->failing && logs_store(d, l) == 0))
		return 0;
	r = log_store_open(view, &name, l->entry.log_disk, false);
	*ret = view;
	return r;
}

void logs_view_end(const struct domain_log *l, struct log_store *s)
{
	if (s != &l->store)
		log_store_close(s);
}

int logs_release_all(struct domain *d)
{
	int first = 0;

	for (uint32_t i = 0; i < CTL_LOGS; i++) {
		struct domain_log *l = d->log[i];
		int r = 0;

		if (!l)
			continue;
		if (l->removing) {
			r = logs_remove(d, l);
		} else {
			r = logs_store(d, l);
			/* meta first: without an entry it alone says where the log ends. */
			if (r == 0)
				r = log_store_meta(&l->store);
			if (r == 0)
				r = catalog_file_drop(d->set->pool, l->catalog);
			if (r == 0)
				logs_forget(d, l);
		}
		if (r < 0) {
			log_msg(LOG_ERR, d->name, "log %s: cannot be let go: %s", l->name,
				strerror(-r));
			first = first ? first : r;
		}
	}
	return first;
}
