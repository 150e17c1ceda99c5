/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A native log in recovery. Its segments are the daemon's own and nobody else's: no mark, no times, no clock. What
 * is asked is whether they are there, are this log's, and reach as far as the catalog says; a log whose
 * segments end earlier was rolled back, and replaying over that would leave a hole.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/recover/recovery.h"

static struct log_name name_of(const struct pool *p, const struct pool_domain *d,
			       const struct pool_file *f)
{
	/* The entry has a CRC and its name was checked when it was made; log_store_path does it again. */
	return (struct log_name){
		.state_dir = p->state_dir,
		.uid = d->uid,
		.domain = d->name,
		.name = (const char *)f->handle,
	};
}

bool recovery_is_log(const struct pool_file *f)
{
	return (f->flags & POOL_FILE_LOG) != 0;
}

void recovery_log_look(struct recovery *r, struct recovery_file *f)
{
	struct log_name n = name_of(r->pool, &r->domain, &f->entry);
	struct judge_facts *facts = &f->facts;
	struct log_store s;
	int result = log_store_open(&s, &n, f->entry.log_disk, false);

	/* Those of files that a log has none of: as in its entry, or beyond question. */
	facts->btime_ns = facts->catalog_btime_ns;
	facts->ctime_ns = facts->catalog_ctime_ns;
	facts->mark = MARK_OURS;
	facts->now_ns = UINT64_MAX;
	facts->found = FOUND_OPEN;
	if (result == -ENOENT || result == -EBADMSG) {
		facts->found = FOUND_STALE;
	} else if (result < 0) {
		facts->found = FOUND_ERROR;
		facts->error = result;
	} else {
		/* Its first live record is already in the segments, or follows on them. */
		if (f->plan->begin > s.disk)
			facts->found = FOUND_STALE;
		log_store_close(&s);
	}
	if (result == -EBADMSG)
		log_event(LOG_ERR, NULL, r->domain.name, f->entry.path, "%s", s.why);
}

int recovery_log_open(struct recovery *r, struct recovery_file *f)
{
	struct log_name n = name_of(r->pool, &r->domain, &f->entry);
	int result;

	recovery_log_close(f);
	result = log_store_open(&f->store, &n, f->entry.log_disk, true);
	f->store_open = result == 0;
	return result;
}

void recovery_log_close(struct recovery_file *f)
{
	if (f->store_open)
		log_store_close(&f->store);
	f->store_open = false;
}

int recovery_log_sync(struct recovery *r, struct recovery_file *f)
{
	int result = log_store_sync(&f->store);

	if (result < 0)
		return result;
	f->entry.log_disk = f->store.disk;
	result = catalog_file_put(r->pool, f->index, &f->entry);
	return result < 0 ? result : 0;
}

/* Removed by its users, or damaged: nothing can be written into it. */
static int release_lost(const struct recovery *r, const struct pool_file *f, struct log_name *n,
			const char *why)
{
	int result = 0;

	/* What the removal had not come to. */
	if (f->flags & POOL_FILE_UNLINKED)
		result = log_store_remove(n);
	else
		log_event(LOG_WARNING, NULL, r->domain.name, f->path,
			  "%s: its files are left as they are; pmemlogctl log rm takes them away",
			  why);
	return result == -ENOENT ? 0 : result;
}

/*
 * meta first: a cut leaves an entry, and the next recovery finds nothing live. Without an entry meta alone says
 * where the log ends.
 */
int recovery_log_release(struct recovery *r, const struct pool_file *f, uint32_t index)
{
	struct log_name n = name_of(r->pool, &r->domain, f);
	struct log_store s;
	int result = log_store_open(&s, &n, f->log_disk, true);

	if (result == 0) {
		result = log_store_meta(&s);
		log_store_close(&s);
	} else if (result == -ENOENT || result == -EBADMSG) {
		result = release_lost(r, f, &n, s.why);
	}
	return result < 0 ? result : catalog_file_drop(r->pool, index);
}
