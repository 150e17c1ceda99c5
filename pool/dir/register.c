/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/register.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "pool/dir/media.h"

#define REWRITE_NS UINT64_C(200000000) /* the design's 200 ms */

static int proc_path(int fd, char *buf, size_t n)
{
	char name[64];
	ssize_t r;

	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	r = readlink(name, buf, n - 1);
	buf[r < 0 ? 0 : r] = '\0';
	if (r < 0)
		return -errno;
	return (size_t)r == n - 1 ? -ENAMETOOLONG : 0;
}

/* One try: 1 synced, 0 the name moved meanwhile, or a negative errno of the sync itself. */
static int sync_parent_once(int fd, const struct stat *st)
{
	cleanup_free char *path = malloc(PATH_MAX);
	cleanup_close int dir_fd = -1;
	struct stat seen;
	char *slash;

	if (!path)
		return -ENOMEM;
	if (proc_path(fd, path, PATH_MAX) < 0 || path[0] != '/')
		return 0;
	slash = strrchr(path, '/');
	*slash = '\0';
	dir_fd = open(slash == path ? "/" : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return 0;
	if (fstatat(dir_fd, slash + 1, &seen, AT_SYMLINK_NOFOLLOW) < 0 ||
	    seen.st_dev != st->st_dev || seen.st_ino != st->st_ino)
		return 0;
	if (fsync(dir_fd) < 0)
		return -errno;
	/* Still there after the sync: the name that was made durable is the file's. */
	if (fstatat(dir_fd, slash + 1, &seen, AT_SYMLINK_NOFOLLOW) < 0 ||
	    seen.st_dev != st->st_dev || seen.st_ino != st->st_ino)
		return 0;
	return 1;
}

int register_sync_parent(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return 0;
	for (int i = 0; i < 3; i++) {
		int r = sync_parent_once(fd, &st);

		if (r != 0)
			return r < 0 ? r : 0;
	}
	return syncfs(fd) < 0 ? -errno : 0;
}

static int sync_file_and_parent(int fd)
{
	if (fsync(fd) < 0)
		return -errno;
	return register_sync_parent(fd);
}

static bool same_file(const struct pool_file *a, const struct pool_file *b)
{
	return memcmp(a->fs_uuid, b->fs_uuid, sizeof(a->fs_uuid)) == 0 &&
	       a->handle_type == b->handle_type && a->handle_bytes == b->handle_bytes &&
	       memcmp(a->handle, b->handle, sizeof(a->handle)) == 0;
}

static bool lane_is_ours(struct pool *p, uint32_t lane)
{
	struct pool_domain d;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d) == 0 && d.lane == lane)
			return true;
	}
	return false;
}

/* The mark of another lane of this pool, or MARK_* as mark_read. ret_lane: which. */
static int mark_of_any_lane(struct pool *p, int fd, const struct pool_file *f, uint32_t *ret_lane)
{
	struct pool_file other = *f;
	struct pool_domain d;
	int mark = mark_read(fd, p, f);

	if (mark != MARK_FOREIGN)
		return mark;
	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d) < 0)
			continue;
		other.lane = d.lane;
		if (mark_read(fd, p, &other) == MARK_OURS) {
			*ret_lane = d.lane;
			return MARK_OURS;
		}
	}
	return MARK_FOREIGN;
}

/* Another domain's entry for the same file, if it has one, forbids it; our own is used again. */
static int find_entry(struct pool *p, const struct pool_file *f, struct pool_file *ret,
		      uint32_t *ret_index)
{
	for (uint32_t i = 0; i < POOL_FILES; i++) {
		if (catalog_file_get(p, i, ret) < 0 || !same_file(ret, f))
			continue;
		if (ret->lane != f->lane) {
			if (lane_is_ours(p, ret->lane))
				return -EBUSY;
			continue;
		}
		*ret_index = i;
		return 1;
	}
	return 0;
}

static int refuse(struct pool_error *e, int r, const char *path)
{
	const char *why = strerror(-r);

	if (r == -EINVAL)
		why = "is no regular file, or not open for writing";
	else if (r == -EOPNOTSUPP)
		why = "file system is not supported (ext4, xfs, btrfs with user xattrs; others: "
		      "trust_fs), or not visible to the daemon";
	else if (r == -EXDEV)
		why = "carries the owner mark of another pool, lane or machine, which may hold newer "
		      "bytes of it. If that is gone: pmemlogctl recover --adopt";
	else if (r == -EBUSY)
		why = "is registered by another domain";
	else if (r == -ENOSPC)
		why = "no room in the catalog";
	return pool_refuse(e, r, "%s: %s", path, why);
}

/* Checks and identity; *ret_fd is an own description, found the way recovery will find it. */
static int identify(struct pool *p, int fd, const char *const *trust_fs, struct pool_file *f,
		    int *ret_fd)
{
	uint32_t lane = f->lane;
	struct stat a, b;
	int flags = fcntl(fd, F_GETFL), r;

	if (flags < 0)
		return -errno;
	if ((flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH))
		return -EINVAL;
	r = identity_of(fd, trust_fs, f);
	if (r < 0)
		return r;
	r = identity_open(f, O_RDWR, ret_fd);
	if (r != IDENTITY_OK)
		return r < 0 ? r : -EOPNOTSUPP;
	if (fstat(fd, &a) < 0 || fstat(*ret_fd, &b) < 0)
		return -errno;
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return -EOPNOTSUPP;
	r = mark_of_any_lane(p, fd, f, &lane);
	if (r < 0)
		return r;
	if (r == MARK_FOREIGN)
		return -EXDEV;
	return 0;
}

int register_stamp(struct pool *p, int fd, uint32_t lane, const char *path,
		   const char *const *trust_fs, struct pool_file *ret_file, uint32_t *ret_index,
		   int *ret_fd, struct pool_error *e)
{
	struct pool_file f = { .lane = lane }, old;
	cleanup_close int own = -1;
	uint32_t index = UINT32_MAX;
	char found_path[sizeof(f.path)];
	int r, known;

	if (!path)
		path = proc_path(fd, found_path, sizeof(found_path)) < 0 ? "file" : found_path;
	r = identify(p, fd, trust_fs, &f, &own);
	if (r < 0)
		return refuse(e, r, path);
	known = find_entry(p, &f, &old, &index);
	if (known < 0)
		return refuse(e, known, path);
	f.id = known ? old.id : pool_new_file_id(p);
	if (f.id == 0)
		return refuse(e, -EIO, path);
	if (known)
		f.flags = old.flags & POOL_FILE_DEGRADED;
	/* A message may be cut off; a half multibyte sign at the end is harmless there. */
	(void)snprintf(f.path, sizeof(f.path), "%.*s", (int)sizeof(f.path) - 1, path);

	/* The mark is a change of ours: known as such until the ctime that it makes is in the entry. */
	f.rewrite_until_ns =
		max_of(now_realtime_ns() + REWRITE_NS, known ? old.rewrite_until_ns : 0);
	r = catalog_file_put(p, index, &f);
	if (r < 0)
		return refuse(e, r, path);
	index = (uint32_t)r;
	f.rewrite_until_ns = known ? old.rewrite_until_ns : 0;
	r = mark_write(own, p, &f);
	if (r == 0)
		r = identity_times(own, &f.btime_ns, &f.ctime_ns, NULL, NULL);
	if (r == 0)
		r = sync_file_and_parent(own);
	if (r == 0) {
		r = catalog_file_put(p, index, &f);
		r = r < 0 ? r : 0;
	}
	if (r < 0) {
		/* A known file may have live records: mark and entry stay. */
		if (!known) {
			(void)mark_remove(own);
			(void)catalog_file_drop(p, index);
		}
		return refuse(e, r, path);
	}
	*ret_file = f;
	*ret_index = index;
	*ret_fd = take_fd(own);
	return 0;
}

int register_refresh(struct pool *p, int fd, uint32_t index)
{
	struct pool_file f;
	int64_t btime_ns;
	int r = catalog_file_get(p, index, &f);

	if (r == 0)
		r = identity_times(fd, &btime_ns, &f.ctime_ns, NULL, NULL);
	if (r < 0)
		return r;
	if (fsync(fd) < 0)
		return -errno;
	r = catalog_file_put(p, index, &f);
	return r < 0 ? r : 0;
}

int register_release(struct pool *p, int fd, uint32_t index)
{
	int r = 0;

	if (fd >= 0) {
		r = mark_remove(fd);
		if (r == 0 && fsync(fd) < 0)
			r = -errno;
	}
	return r < 0 ? r : catalog_file_drop(p, index);
}

int register_adopt(struct pool *p, int fd, struct pool_error *e)
{
	struct pool_file f = { .lane = 0 };
	uint32_t lane = 0;
	int r = identity_of(fd, NULL, &f);

	if (r < 0)
		return refuse(e, r, "file");
	r = mark_of_any_lane(p, fd, &f, &lane);
	if (r < 0)
		return refuse(e, r, "file");
	if (r == MARK_NONE)
		return 0;
	if (r == MARK_OURS)
		return pool_refuse(
			e, -EBUSY,
			"the file belongs to lane %u of this pool: let its domain recover", lane);
	r = mark_remove(fd);
	if (r == 0)
		r = sync_file_and_parent(fd);
	return r < 0 ? refuse(e, r, "file") : 0;
}
