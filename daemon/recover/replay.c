/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"
#include "daemon/recover/recovery.h"

#define SYNC_TRIES 2

/* Through libc's functions: tests put faults between by LD_PRELOAD. */

struct replay {
	struct recovery *r;
	bool logs;	  /* records of native logs, else of files */
	bool began;	  /* a byte of a file may have been written */
	uint64_t time_ns; /* of the record that plan_each gives */
	uint64_t done;
	uint64_t told; /* of done, at the last call of progress */
	char *why;
	size_t n;
};

static int fail(struct replay *s, const struct recovery_file *f, const char *what, int error)
{
	char path[REPORT_PATH_BYTES];

	report_path(f->entry.path, path);
	(void)snprintf(s->why, s->n, "%s: %s: %s", path, what, strerror(-error));
	return error;
}

/*
 * rewrite_until is durable before the file's ctime can move beyond the last one: a crash in here finds
 * its own changes as its own. Renewed at half time; a write that takes longer than the rest has set its
 * ctime when it began. Never lowered: after a clock step backwards the file's ctime may still lie there.
 */
static int renew(struct recovery *r, struct recovery_file *f)
{
	uint64_t now_ns = now_realtime_ns();
	int index;

	if (f->entry.rewrite_until_ns > now_ns + REWRITE_NS / 2)
		return 0;
	f->entry.rewrite_until_ns = now_ns + REWRITE_NS;
	index = catalog_file_put(r->pool, f->index, &f->entry);
	return index < 0 ? index : 0;
}

static int write_whole(struct replay *s, struct recovery_file *f, const uint8_t *p, size_t n,
		       uint64_t offset)
{
	while (n > 0) {
		ssize_t w;
		int r = renew(s->r, f);

		if (r < 0)
			return fail(s, f, "the catalog cannot be written", r);
		w = pwrite(f->fd, p, n, (off_t)offset);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return fail(s, f, "cannot be written", w < 0 ? -errno : -EIO);
		s->began = true;
		f->wrote = true;
		p += w;
		n -= (size_t)w;
		offset += (uint64_t)w;
	}
	return 0;
}

static int replay_record(void *arg, size_t file, uint64_t offset, const void *payload,
			 uint32_t length)
{
	struct replay *s = arg;
	struct recovery_file *f = &s->r->files[file];
	const struct recover_options *o = s->r->options;
	int r;

	if (f->action != ACTION_REPLAY || f->store_open != s->logs)
		return 0;
	if (f->store_open) {
		/* What is put behind its end is cut off the next time: nothing has begun. */
		f->wrote = true;
		r = log_store_put(&f->store, offset, s->time_ns, payload, length);
		if (r < 0)
			r = fail(s, f, f->store.why, r);
	} else {
		r = write_whole(s, f, payload, length, offset);
	}
	if (r < 0)
		return r;
	s->done += length;
	if (o->progress && s->done - s->told >= (1u << 20)) {
		s->told = s->done;
		o->progress(o->arg, s->done, s->r->plan.bytes);
	}
	return 0;
}

/* A shell's limit of open files is lower than what a domain may have; the hard one is not. */
static int open_for_writing(struct recovery_file *f)
{
	struct rlimit limit;
	int found = identity_open(&f->entry, O_RDWR, &f->fd);

	if (found != -EMFILE || getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
	    limit.rlim_cur == limit.rlim_max)
		return found;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return found;
	return identity_open(&f->entry, O_RDWR, &f->fd);
}

/* All are open before the first byte: a file that cannot be opened holds the domain, no more. */
static int open_all(struct replay *s)
{
	struct recovery *r = s->r;

	for (size_t i = 0; i < r->plan.n_files; i++) {
		struct recovery_file *f = &r->files[i];
		int found;

		if (f->action != ACTION_REPLAY)
			continue;
		if (recovery_is_log(&f->entry)) {
			found = recovery_log_open(r, f);
			if (found < 0)
				return fail(s, f, f->store.why, found);
			continue;
		}
		found = open_for_writing(f);
		if (found < 0)
			return fail(s, f, "cannot be opened for writing", found);
		if (found != IDENTITY_OK)
			return fail(s, f, "cannot be opened any more", -ESTALE);
	}
	return 0;
}

/* Every file is synced, whatever the others say: each hears of its old errors, and only once. */
static int sync_all(struct replay *s)
{
	struct recovery *r = s->r;
	int result = 0;

	for (size_t i = 0; i < r->plan.n_files; i++) {
		struct recovery_file *f = &r->files[i];
		int synced;

		if (f->store_open != s->logs || (!f->store_open && f->fd < 0))
			continue;
		if (f->store_open) {
			synced = recovery_log_sync(r, f);
			if (synced < 0)
				result = fail(s, f, f->store.why, synced);
			continue;
		}
		/* Also where nothing was written: what an earlier, crashed replay wrote may be in the
		 * page cache only. After a failure nothing is trimmed, and the next run writes anew. */
		if (fdatasync(f->fd) < 0)
			result = fail(s, f, "fdatasync", -errno);
		if (r->options->progress)
			r->options->progress(r->options->arg, s->done, r->plan.bytes);
	}
	return result;
}

/* The page cache may be of a failed write-back in this boot: what is written over such pages may not come
 * back from the disk (pool/pages.h). Errors are those of before; the sync at the end tells of ours. */
static int drop_all(struct replay *s)
{
	struct recovery *r = s->r;

	for (size_t i = 0; i < r->plan.n_files; i++) {
		/* A log's is cut off behind what is durable. */
		if (r->files[i].store_open && s->logs) {
			int opened = recovery_log_open(r, &r->files[i]);

			if (opened < 0)
				return fail(s, &r->files[i], r->files[i].store.why, opened);
		}
		if (r->files[i].fd < 0 || s->logs)
			continue;
		(void)fdatasync(r->files[i].fd);
		(void)posix_fadvise(r->files[i].fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return 0;
}

/*
 * Two tries: the kernel keeps an error of its write-back for whoever syncs next, so the first sync may
 * report one from before the replay (the disk failed, the daemon died, the disk is well again). A failed
 * sync is never just tried again: all is written anew first.
 */
static int write_and_sync(struct replay *s)
{
	struct recovery *r = s->r;
	int result = -EIO;

	for (int i = 0; i < SYNC_TRIES && result < 0; i++) {
		result = drop_all(s);
		if (result < 0)
			return result;
		s->done = s->told = 0;
		result = plan_each(&r->plan, &r->lane, replay_record, s);
		if (result < 0)
			return result;
		result = sync_all(s);
	}
	return result;
}

static void close_all(struct recovery *r)
{
	for (size_t i = 0; i < r->plan.n_files; i++) {
		recovery_log_close(&r->files[i]);
		if (r->files[i].fd >= 0)
			(void)close(r->files[i].fd);
		r->files[i].fd = -1;
	}
}

static bool any_log(const struct recovery *r)
{
	for (size_t i = 0; i < r->plan.n_files; i++)
		if (r->files[i].store_open)
			return true;
	return false;
}

enum replay_outcome replay_run(struct recovery *r, char *why, size_t n)
{
	struct replay s = { .r = r, .why = why, .n = n };
	int result;

	(void)snprintf(why, n, "the lane changed while it was replayed");
	r->plan.each_ns = &s.time_ns;
	result = open_all(&s);
	/* Logs first: where they find no room, no file has been touched, and the domain is held and tried again. */
	s.logs = true;
	if (result == 0 && any_log(r))
		result = write_and_sync(&s);
	s.logs = false;
	if (result == 0)
		result = write_and_sync(&s);
	close_all(r);
	r->plan.each_ns = NULL;
	if (result == 0)
		return REPLAY_DONE;
	return s.began ? REPLAY_BROKEN : REPLAY_NOT_BEGUN;
}
