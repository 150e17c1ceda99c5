/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A log's folder: made, opened, listed, removed. */

#include "daemon/logs/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/logs/store_internal.h"
#include "pool/dir/files.h"

bool log_name_ok(const char *name, size_t n)
{
	size_t length = strnlen(name, n);

	if (length == 0 || length >= CTL_LOG_NAME_MAX || length == n || name[0] == '.')
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = name[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '.' || c == '@' || c == '-'))
			return false;
	}
	return true;
}

void segment_name(uint64_t lsn, char buf[SEGMENT_NAME_BYTES])
{
	(void)snprintf(buf, SEGMENT_NAME_BYTES, "%016" PRIx64 ".log", lsn);
}

/* <state_dir>/logs/<uid>-<domain>: a domain's name is checked where it comes from, and once more here. */
static int domain_path(const char *state_dir, uint32_t uid, const char *domain, char buf[512])
{
	int n;

	if (strchr(domain, '/') || !*domain)
		return -EINVAL;
	n = snprintf(buf, 512, "%s/logs/%u-%s", state_dir, uid, domain);
	return n < 0 || n >= 512 ? -ENAMETOOLONG : 0;
}

int log_store_path(const struct log_name *n, char buf[512])
{
	char above[512];
	int r = domain_path(n->state_dir, n->uid, n->domain, above), k;

	if (r < 0)
		return r;
	if (!log_name_ok(n->name, CTL_LOG_NAME_MAX))
		return -EINVAL;
	k = snprintf(buf, 512, "%s/%s", above, n->name);
	return k < 0 || k >= 512 ? -ENAMETOOLONG : 0;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int find_segments(struct log_store *s)
{
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint32_t room = 0;
	int r = 0;

	if (!dir) {
		r = -errno;
		if (fd >= 0)
			(void)close(fd);
		return r;
	}
	while (r == 0 && (errno = 0, e = readdir(dir)) != NULL) {
		char again[SEGMENT_NAME_BYTES];
		uint64_t lsn;

		if (sscanf(e->d_name, "%16" SCNx64 ".log", &lsn) != 1)
			continue;
		segment_name(lsn, again);
		if (strcmp(again, e->d_name) != 0)
			continue;
		if (s->n_segments == room) {
			uint64_t *more = reallocarray(s->segments, room + 64, sizeof(*more));

			if (!more) {
				r = -ENOMEM;
				break;
			}
			s->segments = more;
			room += 64;
		}
		s->segments[s->n_segments++] = lsn;
	}
	if (r == 0 && errno)
		r = -errno;
	(void)closedir(dir);
	if (s->n_segments)
		qsort(s->segments, s->n_segments, sizeof(*s->segments), compare);
	return r;
}

static int open_segment(const struct log_store *s, uint64_t lsn, int flags)
{
	char name[SEGMENT_NAME_BYTES];
	int fd;

	segment_name(lsn, name);
	fd = openat(s->dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int unlink_segment(struct log_store *s, uint64_t lsn)
{
	char name[SEGMENT_NAME_BYTES];

	segment_name(lsn, name);
	return unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int sync_folder(const struct log_store *s)
{
	return fsync(s->dir_fd) < 0 ? -errno : 0;
}

/* Walks the newest segment up to `goal`. *ret_offset: where the frame at s->end begins. 0, or as segment_begin. */
static int walk_newest(struct log_store *s, uint64_t goal, uint64_t *ret_offset)
{
	struct segment_frame f;
	struct segment_reader r;
	int rc = segment_begin(&r, s->fd, s->segments[s->n_segments - 1]);

	if (rc == 0 && memcmp(r.header.log, s->log, sizeof(s->log)) != 0)
		rc = -EBADMSG;
	if (rc < 0)
		return rc;
	*ret_offset = r.offset;
	s->end = r.lsn;
	while (r.lsn < goal && (rc = segment_next(&r, &f)) == 1) {
		*ret_offset = r.offset;
		s->end = r.lsn;
	}
	segment_end(&r);
	/* What is torn is no error here; who asked for more than there is finds out. */
	return rc == 0 || rc == 1 || rc == -EBADMSG ? 0 : rc;
}

/* Cuts the newest segment behind s->end, durably. */
static int cut(struct log_store *s, uint64_t offset)
{
	struct stat st;

	s->fd_bytes = offset;
	if (fstat(s->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > offset && ftruncate(s->fd, (off_t)offset) < 0)
		return -errno;
	/* What an earlier, killed daemon wrote may be in the page cache alone. */
	return fdatasync(s->fd) < 0 ? -errno : 0;
}

/* goal: the end that is durable; exact: nothing beyond it is believed. */
static int open_newest(struct log_store *s, uint64_t goal, bool exact, bool write)
{
	uint64_t offset = 0;
	int r = 0;

	/* Made and never filled with anything that counts. */
	while (exact && s->n_segments && s->segments[s->n_segments - 1] >= goal && goal > 0) {
		if (write)
			r = unlink_segment(s, s->segments[s->n_segments - 1]);
		if (r < 0)
			return r;
		s->n_segments--;
	}
	for (;;) {
		if (s->n_segments == 0) {
			s->end = 0;
			break;
		}
		s->fd = open_segment(s, s->segments[s->n_segments - 1], write ? O_RDWR : O_RDONLY);
		if (s->fd < 0)
			return s->fd;
		r = walk_newest(s, exact ? goal : UINT64_MAX, &offset);
		if (r == 0)
			break;
		/* A header that was never whole, behind everything that is known to be there. */
		if (r != -EBADMSG || s->segments[s->n_segments - 1] < goal)
			return r;
		(void)close(s->fd);
		s->fd = -1;
		if (write) {
			r = unlink_segment(s, s->segments[s->n_segments - 1]);
			if (r < 0)
				return r;
		}
		s->n_segments--;
	}
	if (s->end < goal)
		return log_store_fail(s, -EBADMSG,
				      "its segments end at %" PRIu64 ", %" PRIu64
				      " was on disk: damaged, or an older copy",
				      s->end, goal);
	if (!write)
		return 0;
	if (s->fd >= 0)
		r = cut(s, offset);
	/* Always: who made the newest segment may have died, or failed, before the folder was synced. */
	return r == 0 ? sync_folder(s) : r;
}

static int open_all(struct log_store *s, const struct log_name *n, uint64_t known, bool write)
{
	struct log_meta m;
	uint64_t goal;
	int r;

	r = log_meta_read(s->path, &m);
	if (r == -EBADMSG)
		(void)log_store_fail(s, r, "meta is damaged");
	if (r < 0)
		return r;
	s->dir_fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->dir_fd < 0)
		return -errno;
	(void)snprintf(s->name, sizeof(s->name), "%s", n->name);
	(void)snprintf(s->domain, sizeof(s->domain), "%s", n->domain);
	s->uid = n->uid;
	memcpy(s->log, m.log, sizeof(s->log));
	s->mode = m.mode;
	s->capacity = m.capacity;
	s->first = m.first;
	goal = known == LOG_STORE_UNKNOWN || known < m.end ? m.end : known;
	r = find_segments(s);
	if (r == 0)
		r = open_newest(s, goal, known != LOG_STORE_UNKNOWN, write);
	if (r == -EBADMSG && !*s->why)
		(void)log_store_fail(s, r, "its newest segment is damaged");
	if (r < 0)
		return r;
	s->disk = s->end;
	return write ? log_store_drop(s) : 0;
}

int log_store_open(struct log_store *s, const struct log_name *n, uint64_t known, bool write)
{
	int r;

	*s = (struct log_store){ .dir_fd = -1, .fd = -1 };
	r = log_store_path(n, s->path);
	if (r == 0)
		r = open_all(s, n, known, write);
	if (r < 0) {
		if (!*s->why)
			(void)log_store_fail(s, r, "%s", strerror(-r));
		log_store_close(s);
	}
	return r;
}

void log_store_close(struct log_store *s)
{
	if (s->fd >= 0)
		(void)close(s->fd);
	if (s->dir_fd >= 0)
		(void)close(s->dir_fd);
	free(s->segments);
	free(s->buffer);
	s->fd = s->dir_fd = -1;
	s->segments = NULL;
	s->buffer = NULL;
	s->n_segments = 0;
	s->buffered = 0;
}

/* ---- made, removed, listed ----------------------------------------------------------------------- */

/* meta first: from then on the folder is no log. *ret_any: there was something of one. */
static int empty_folder(const char *path, bool *ret_any)
{
	struct log_store s = { .dir_fd = -1, .fd = -1 };
	struct log_meta m;
	int r;

	*ret_any = log_meta_read(path, &m) != -ENOENT;
	s.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s.dir_fd < 0)
		return -errno;
	r = unlinkat(s.dir_fd, "meta", 0) < 0 && errno != ENOENT ? -errno : 0;
	if (r == 0 && *ret_any)
		r = sync_folder(&s);
	if (r == 0)
		r = find_segments(&s);
	for (uint32_t i = 0; r == 0 && i < s.n_segments; i++)
		r = unlink_segment(&s, s.segments[i]);
	if (r == 0 && s.n_segments) {
		*ret_any = true;
		r = sync_folder(&s);
	}
	log_store_close(&s);
	return r;
}

int log_store_create(const struct log_name *n, uint32_t mode, uint64_t capacity)
{
	struct log_meta m = { .mode = mode, .capacity = capacity }, there;
	char path[512], above[512];
	int r = log_store_path(n, path);
	bool left;

	if (r < 0)
		return r;
	r = log_meta_read(path, &there);
	if (r != -ENOENT)
		return r < 0 ? r : -EEXIST;
	if (getrandom(m.log, sizeof(m.log), 0) != (ssize_t)sizeof(m.log))
		return -EIO;
	(void)snprintf(above, sizeof(above), "%s/logs", n->state_dir);
	r = directory_make(above, 0700);
	if (r == 0)
		r = directory_sync(n->state_dir);
	if (r == 0)
		r = domain_path(n->state_dir, n->uid, n->domain, above);
	if (r == 0)
		r = directory_make(above, 0700);
	if (r == 0)
		r = directory_make(path, 0700);
	/* Without meta the folder is none: names first, meta last. Nothing of an earlier log may be in it then. */
	if (r == 0)
		r = directory_sync(above);
	if (r == 0)
		r = empty_folder(path, &left);
	if (r == 0) {
		(void)snprintf(above, sizeof(above), "%s/logs", n->state_dir);
		r = directory_sync(above);
	}
	return r < 0 ? r : log_meta_write(path, &m);
}

int log_store_remove(const struct log_name *n)
{
	char path[512];
	bool any = false;
	int r = log_store_path(n, path);

	if (r == 0)
		r = empty_folder(path, &any);
	if (r < 0)
		return r;
	/* The log is gone; an empty folder that cannot be removed is none. */
	(void)rmdir(path);
	return any ? 0 : -ENOENT;
}

int log_store_list(const char *state_dir, uint32_t uid, const char *domain,
		   void (*each)(void *arg, const char *name), void *arg)
{
	char path[512];
	struct dirent *e;
	DIR *dir;
	int r = domain_path(state_dir, uid, domain, path);

	if (r < 0)
		return r;
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(dir)) != NULL)
		if (log_name_ok(e->d_name, sizeof(e->d_name)))
			each(arg, e->d_name);
	(void)closedir(dir);
	return 0;
}
