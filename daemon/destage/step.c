/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One step: sync the files, persist the tail, publish the space. In this order, always. Models:
 * tests/models/fence.pml (heal, trim), space.pml (the tail).
 */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/destage/destage.h"
#include "daemon/log.h"
#include "pool/guard.h"
#include "pool/heal.h"
#include "pool/pages.h"
#include "pool/space.h"

static const char *error_words(int r)
{
	switch (-r) {
	case ENOSPC:
	case EDQUOT:
		return "the file system is full: make room";
	case EIO:
		return "the disk reports an error: look into the kernel's log";
	case EROFS:
		return "the file system is read-only";
	case EBADMSG:
		return "a live record is damaged: keep the database running and copy its data";
	case ETIMEDOUT:
		return "a process that is stopped inside a write holds the file's lock";
	default:
		return strerror(-r);
	}
}

static void failing_set(struct domain_file *df, bool failing)
{
	/* Relaxed: status shows it. */
	atomic_store_relaxed(&df->failing, failing);
}

/* The file fails: shown, and tried again in a while. */
static int file_fails(struct domain *d, struct domain_file *df, const char *what, const char *why)
{
	bool first = !df->failing;

	failing_set(df, true);
	df->backoff_ns = min_of(max_of(2 * df->backoff_ns, RETRY_MIN_NS), RETRY_MAX_NS);
	df->retry_ns = now_monotonic_ns() + df->backoff_ns;
	pthread_mutex_lock(&d->lock);
	d->destage_errors++;
	pthread_mutex_unlock(&d->lock);
	domain_error_set(d,
			 "%s: %s: %s; the data is safe in the pool and the file is healed and "
			 "synced again",
			 df->entry.path, what, why);
	if (first) {
		log_event(LOG_ERR, LOG_ID_DEGRADED, d->name, df->entry.path,
			  "%s: %s; the data is safe in the pool, trying again", what, why);
		domain_notify(d);
	}
	return -EAGAIN;
}

/* A sync or heal of one file failed. Never just tried again: the kernel may have dropped the pages. */
static int file_failed(struct domain *d, struct domain_file *df, int error, const char *what)
{
	int fd;

	if (error == -EFAULT)
		return error;
	/* A lock that is not to be had says nothing about the file's pages. */
	if (error != -ETIMEDOUT) {
		struct pool_file e = df->entry;
		int r;

		/* Persisted first: after a crash of ours the next daemon heals, too. */
		e.flags |= POOL_FILE_DEGRADED;
		if (e.flags != df->entry.flags) {
			r = registry_entry_put(d, df, &e);
			if (r < 0)
				log_msg(LOG_ERR, d->name, "catalog: %s", strerror(-r));
		}
		/* Sequentially consistent, like every raise: a heal clears it only unmoved. */
		if (GUARD((int)(atomic_add_seq(&words_entry(d, df)->degraded, 1) & 0)) < 0)
			return -EFAULT;

		fd = fd_reopen(df->fd);
		if (fd >= 0) {
			pthread_mutex_lock(&d->lock);
			(void)close(df->fd);
			df->fd = fd;
			pthread_mutex_unlock(&d->lock);
		}
		/* Also where the old one is kept: it has told us, and will not again. */
		df->open_head = OPEN_HEAD_NONE;
	}

	return file_fails(d, df, what, error_words(error));
}

/*
 * What `degraded` holds while a heal of ours is under way, the lock given back. Its own value: a session may
 * heal meanwhile and clear it, and another sync fail, which makes the same number of it again.
 */
#define DEGRADED_HEAL 0x80000000u

static int mark_heal(struct ctl_file *f, uint32_t *ret)
{
	uint32_t seen = atomic_load_seq(&f->degraded);

	/* Under the file's lock, as all who raise or clear it but ourselves. */
	*ret = seen && atomic_cas_seq(&f->degraded, &seen, DEGRADED_HEAL) ? DEGRADED_HEAL : 0;
	return 0;
}

/* Writes the newest live payload of each byte again. *ret_degraded: the counter before it. anew: into pages
 * that are read in from the disk, see pool/pages.h. */
static int file_heal(struct domain *d, struct domain_file *df, bool anew, uint32_t *ret_degraded)
{
	struct file_ref ref;
	struct file_words w;
	int r;

	r = words_lock(d, df, &ref);
	if (r < 0)
		return r;
	r = words_file(d, df, &w);
	if (r == 0)
		r = GUARD(mark_heal(words_entry(d, df), ret_degraded));
	if (r == 0 && anew)
		r = pages_drop(&d->s, df->fd);
	if (r == 0)
		r = GUARD(heal_locked(&d->s, &d->who, &ref));
	words_unlock(d, df, &ref);
	return r;
}

static int clear_if_unmoved(struct ctl_file *f, uint32_t seen)
{
	if (seen)
		(void)atomic_cas_seq(&f->degraded, &seen, 0);
	return 0;
}

/* After a heal whose sync was good: the counter is cleared unless somebody's sync failed since. */
static int file_mended(struct domain *d, struct domain_file *df, uint32_t degraded)
{
	struct file_ref ref;
	int r;

	if (degraded) {
		r = words_lock(d, df, &ref);
		if (r == -EFAULT)
			return r;
		if (r < 0) {
			d->mend = true; /* another time */
			return 0;
		}
		r = GUARD(clear_if_unmoved(words_entry(d, df), degraded));
		words_unlock(d, df, &ref);
		if (r < 0)
			return r;
	}
	if (df->entry.flags & POOL_FILE_DEGRADED) {
		struct pool_file e = df->entry;

		e.flags &= ~POOL_FILE_DEGRADED;
		(void)registry_entry_put(d, df, &e);
	}
	return 0;
}

/* An UNLINK was seen, and a stale handle is no surprise to recovery; or it came to nothing. */
static void note_unlink(struct domain *d, struct domain_file *df, bool unlinked)
{
	struct pool_file e = df->entry;

	e.flags = unlinked ? e.flags | POOL_FILE_UNLINKED : e.flags & ~POOL_FILE_UNLINKED;
	(void)registry_entry_put(d, df, &e);
}

static int progress(struct domain *d)
{
	/* Relaxed: clients compare it with the clock only. */
	atomic_store_relaxed(&d->s.ctl.hot->daemon_ns, now_monotonic_ns());
	return 0;
}

static int file_sync_own(const struct domain_file *df, bool all)
{
	int r;

	do {
		r = all ? fsync(df->fd) : fdatasync(df->fd);
		r = r < 0 ? -errno : 0;
	} while (r == -EINTR);
	return r;
}

/*
 * Makes the file's records below `head` durable in it. all: sync it in any case (the last step).
 * 0, -EAGAIN (failed, or not yet to be tried again), -EFAULT, -EBADMSG.
 */
static int file_durable(struct domain *d, struct domain_file *df, uint64_t head, bool all)
{
	struct file_words w;
	uint64_t floor;
	uint32_t degraded = 0;
	bool live, heal;
	int r;

	r = words_file(d, df, &w);
	if (r < 0)
		return r;
	if ((w.unlinked != 0) != ((df->entry.flags & POOL_FILE_UNLINKED) != 0))
		note_unlink(d, df, w.unlinked != 0);

	/* Below it nothing is live: trimmed, fenced, or synced by us while another file failed. */
	floor = max_of(max_of(d->tail, w.fence), df->durable_below);
	live = w.last > floor;
	/* INLINE is trusted only for records appended while our description was open without error;
	 * the bytes of older ones may have been dropped from the page cache before we could hear. */
	heal = w.degraded || (live && max_of(w.first, floor) < df->open_head);
	if (!live && !heal && !all) {
		failing_set(df, false); /* it was a lock, and a client has synced the file since */
		return 0;
	}
	/* The inode is gone for good, or has no record (another domain's file): nothing to do. */
	if (df->fd < 0 && (df->gone || df->catalog == UINT32_MAX))
		return 0;
	if (!all && now_monotonic_ns() < df->retry_ns)
		return -EAGAIN;
	if (df->fd < 0) /* opened again by registry_tick, each second */
		return file_fails(d, df, "cannot be opened", identity_words(df->found));

	if (all && w.op) {
		struct file_ref ref;

		/* Its owner is dead: taking the lock puts right what it left. */
		r = words_lock(d, df, &ref);
		if (r < 0)
			return r == -EFAULT ? r : file_failed(d, df, r, "lock");
		words_unlock(d, df, &ref);
	}
	if (heal) {
		r = file_heal(d, df, false, &degraded);
		if (r < 0)
			return file_failed(d, df, r, "writing again");
	}
	r = file_sync_own(df, all);
	if (r == 0 && heal && pages_unwritten(df->fd)) {
		r = file_heal(d, df, true, &degraded);
		if (r < 0)
			return file_failed(d, df, r, "writing again");
		r = file_sync_own(df, all);
	}
	if (r < 0)
		return file_failed(d, df, r, all ? "fsync" : "fdatasync");

	df->durable_below = head;
	/* A heal has covered all that was there when it had the lock: no second one for what came between. */
	if (heal && df->open_head != OPEN_HEAD_NONE)
		df->durable_below = max_of(head, df->open_head);
	if (df->failing)
		log_msg(LOG_NOTICE, d->name, "%s: synced again", df->entry.path);
	failing_set(df, false);
	df->backoff_ns = df->retry_ns = 0;
	r = GUARD(progress(d));
	if (r == 0 && (heal || df->entry.flags & POOL_FILE_DEGRADED))
		r = file_mended(d, df, degraded);
	return r;
}

static int tail_write(const struct domain *d, const struct ctl_cell *to)
{
	lane_tail_write(&d->s.lane, to->head, to->chain);
	return 0;
}

static int tail_publish(struct domain *d)
{
	int r = GUARD(space_publish_tail(&d->s, &d->who, d->tail));

	if (r == -EFAULT)
		return r;
	/* Not to be had (a process stopped inside an append): the space is published later. */
	d->publish = r < 0;
	return r < 0 ? -EAGAIN : 0;
}

static int step_files(struct domain *d, bool all)
{
	struct ctl_cell cell;
	uint64_t now = now_monotonic_ns();
	int r, failed = 0;

	d->mend = false;
	d->step_ns = now;
	r = words_mark(d, &cell);
	if (r == -EAGAIN) {
		domain_error_set(
			d, "a process that is stopped inside a write holds the lane's lock; the "
			   "data is safe in the pool, tried again");
		d->blocked = true;
		d->retry_ns = now_monotonic_ns() + RETRY_MIN_NS;
	}
	if (r < 0)
		return r;
	d->retry_ns = UINT64_MAX;

	for (uint32_t i = 0; i < d->files_end; i++) {
		struct domain_file *df = d->file[i];

		if (!df)
			continue;
		r = file_durable(d, df, cell.head, all);
		if (r == -EAGAIN) {
			/* The tail stays, so nothing of this file is lost; the others go on. */
			failed = r;
			d->retry_ns = min_of(d->retry_ns, max_of(df->retry_ns, now + RETRY_MIN_NS));
		} else if (r < 0) {
			return r;
		}
		domain_serve_light(d);
	}
	r = destage_logs(d, &cell);
	if (r == -EAGAIN)
		failed = r;
	else if (r < 0)
		return r;
	d->blocked = failed != 0;
	if (failed)
		return failed;

	/* Every file with records below cell.head has them durably: they are not needed any more.
	 * Once the tail is persisted recovery begins at it; only then may the space be used again. */
	if (cell.head != d->tail) {
		r = GUARD(tail_write(d, &cell));
		if (r < 0)
			return r;
		d->tail = cell.head;
		d->publish = true;
	}
	pthread_mutex_lock(&d->lock);
	d->destages++;
	/* What came since is not older than this step. */
	d->live_since = now;
	pthread_mutex_unlock(&d->lock);
	if (d->publish) {
		r = tail_publish(d);
		if (r == -EAGAIN) {
			d->blocked = true;
			d->retry_ns = now_monotonic_ns() + RETRY_MIN_NS;
		}
		if (r < 0)
			return r;
	}
	return GUARD(progress(d));
}

static int step(struct domain *d, bool all)
{
	int r;

	d->stepping = true;
	r = step_files(d, all);
	d->stepping = false;
	return r;
}

int destage_step(struct domain *d)
{
	return step(d, false);
}

int destage_finish(struct domain *d)
{
	return step(d, true);
}
