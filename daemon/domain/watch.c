/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registered files each second: which are gone, which may leave bypass; and when the clock was set. */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/dir/register.h"
#include "pool/guard.h"

const char *identity_words(int found)
{
	switch (found) {
	case IDENTITY_STALE:
		return "no such file any more";
	case IDENTITY_NOT_MOUNTED:
		return "its file system is not mounted here";
	default:
		return strerror(-found);
	}
}

static int entry_clear(const struct domain *d, const struct domain_file *df)
{
	/* Release: nothing that we did with the entry comes after a session finds it free. */
	atomic_store_release(&words_entry(d, df)->id, 0);
	return 0;
}

/* Out: nothing of it is live. Under the file's lock, so that no call is between its look at the id and
 * its record. */
static int drop(struct domain *d, struct domain_file *df)
{
	struct file_words w;
	struct file_ref ref;
	int r;

	r = df->fd < 0 ? words_lock_gone(d, df, &ref) : words_lock(d, df, &ref);
	if (r < 0)
		return r;
	r = words_file(d, df, &w);
	if (r == 0 && w.last > max_of(d->tail, w.fence))
		r = -EAGAIN; /* a write came in between */
	if (r == 0)
		r = GUARD(entry_clear(d, df));
	words_unlock(d, df, &ref);
	if (r < 0)
		return r;
	if (df->catalog != UINT32_MAX)
		r = register_release(d->set->pool, -1, df->catalog);
	if (r < 0)
		log_msg(LOG_WARNING, d->name, "%s: catalog: %s", df->entry.path, strerror(-r));
	registry_forget(d, df);
	return 0;
}

static int leave(struct domain *d, struct domain_file *df)
{
	struct file_words w;
	struct file_ref ref;
	int r;

	r = words_lock(d, df, &ref);
	if (r < 0)
		return r;
	r = words_file(d, df, &w);
	if (r == 0 && w.state == FILE_BYPASS && w.last <= max_of(d->tail, w.fence) &&
	    (w.reason == BYPASS_LANE_FULL || (w.reason == BYPASS_TOKEN && df->token_wait)))
		r = GUARD((file_leave_bypass_locked(&d->s, &ref), 0));
	words_unlock(d, df, &ref);
	return r;
}

/* The token may be free now: stamp, try it again, and only then out of bypass. */
static int token_retry(struct domain *d, struct domain_file *df)
{
	struct pool_file e;
	uint32_t catalog;
	struct stat st;
	int fd = -1, r;

	if (fstat(df->fd, &st) < 0)
		return -errno;
	if (df->catalog == UINT32_MAX) {
		/* First without the mark: a held token costs no sync. */
		if (token_try(d->set->bypass_fd, major(st.st_dev), minor(st.st_dev), st.st_ino) !=
		    TOKEN_FREE)
			return 0;
		r = register_stamp(d->set->pool, df->fd, d->lane, df->entry.path,
				   (const char *const *)config_get(d->set->config, trust_fs), &e,
				   &catalog, &fd, NULL);
		if (r < 0)
			return r;
		(void)close(fd);
		/* The id that its sessions know; it was never another file's. */
		e.id = df->id;
		df->catalog = catalog;
		r = registry_entry_put(d, df, &e);
		if (r < 0)
			return r;
	}
	if (registry_token_held(d, df, &st))
		return 0;
	r = leave(d, df);
	if (r == 0) {
		df->token_wait = false;
		log_msg(LOG_NOTICE, d->name, "%s: nobody writes it without a session any more",
			df->entry.path);
	}
	return r;
}

/* Clients change the state, and have no journal of their own to speak of. */
static void tell_bypass(struct domain *d, struct domain_file *df, bool bypassed)
{
	if (df->bypassed == bypassed)
		return;
	df->bypassed = bypassed;
	log_event(bypassed ? LOG_WARNING : LOG_NOTICE, LOG_ID_BYPASS, d->name, df->entry.path, "%s",
		  bypassed ? "written to the disk without the lane for now: see pmemlogctl status"
			   : "in the lane again");
}

/* -EFAULT, -EBADMSG: the control file. Everything else concerns this file and is tried again. */
static int tick_file(struct domain *d, struct domain_file *df)
{
	struct file_words w;
	struct stat st;
	bool live;
	int r;

	r = words_file(d, df, &w);
	if (r < 0)
		return r;
	live = w.last > max_of(d->tail, w.fence);
	tell_bypass(d, df, w.state == FILE_BYPASS);
	if (df->fd < 0 && !df->gone && df->catalog != UINT32_MAX) {
		int fd = -1;

		r = identity_open(&df->entry, O_RDWR, &fd);
		df->found = r;
		/* Stale without an UNLINK proves nothing: its records stay. */
		df->gone =
			r == IDENTITY_STALE && (w.unlinked || df->entry.flags & POOL_FILE_UNLINKED);
		if (r == IDENTITY_OK) {
			pthread_mutex_lock(&d->lock);
			df->fd = fd;
			pthread_mutex_unlock(&d->lock);
		}
	}
	if (df->fd >= 0 && fstat(df->fd, &st) == 0)
		df->gone = st.st_nlink == 0;
	if (df->gone && !live)
		return drop(d, df);
	if (w.degraded && !df->failing)
		d->mend = true;
	if (df->fd < 0 || live || w.state != FILE_BYPASS)
		return 0;
	if (df->token_wait)
		return token_retry(d, df);
	if (w.reason == BYPASS_LANE_FULL && !d->blocked)
		return leave(d, df);
	return 0;
}

int registry_tick(struct domain *d)
{
	for (uint32_t i = 0; i < d->files_end; i++) {
		struct domain_file *df = d->file[i];
		struct file_words w;

		if (!df)
			continue;
		if (tick_file(d, df) == -EFAULT)
			return -EFAULT;
		if (d->file[i] && words_file(d, df, &w) < 0)
			return -EFAULT;
	}
	return 0;
}

void registry_clock_step(struct domain *d)
{
	log_msg(LOG_NOTICE, d->name, "the clock was set: the files' change times are stored anew");
	for (uint32_t i = 0; i < d->files_end; i++) {
		struct domain_file *df = d->file[i];
		struct pool_file e;
		int r;

		if (!df || df->fd < 0 || df->catalog == UINT32_MAX)
			continue;
		/* Nobody's owner changes, but ctime does: a file that is not written gets one of the new
		 * clock, or its next one would look older than what we have stored. */
		r = rewrite_renew(d, df);
		if (r == 0 && fchown(df->fd, (uid_t)-1, (gid_t)-1) < 0)
			r = -errno;
		if (r == 0)
			r = register_refresh(d->set->pool, df->fd, df->catalog);
		if (r == 0)
			r = catalog_file_get(d->set->pool, df->catalog, &e);
		if (r == 0)
			r = registry_entry_put(d, df, &e);
		if (r < 0)
			log_msg(LOG_WARNING, d->name, "%s: %s", df->entry.path, strerror(-r));
	}
}
