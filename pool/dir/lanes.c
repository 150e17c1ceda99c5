/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "pool/dir/catalog.h"
#include "pool/dir/media.h"
#include "pool/dir/pool_internal.h"
#include "pool/guard.h"
#include "pool/walk.h"

#define LANE_NAME_BYTES 32
#define LANE_NUMBER_MAX 999999u

static void lane_name(uint32_t lane, char buf[LANE_NAME_BYTES])
{
	(void)snprintf(buf, LANE_NAME_BYTES, POOL_LANE_PREFIX "%06u", lane);
}

void pool_lane_path(const struct pool *p, uint32_t lane, char *buf, size_t n)
{
	char name[LANE_NAME_BYTES];

	lane_name(lane, name);
	(void)snprintf(buf, n, "%s/%s", p->path, name);
}

static bool ring_size_good(uint64_t ring_size)
{
	return ring_size >= LANE_RING_MIN && ring_size <= LANE_RING_MAX &&
	       ring_size % LANE_ALIGN == 0;
}

/* The guard's jump may not run over locals of the caller. */
static int attach_guarded(struct lane *ret, uint8_t *base, size_t bytes)
{
	return GUARD(lane_attach(ret, base, bytes));
}

static int format_guarded(struct lane *ret, uint8_t *base, size_t bytes, uint32_t number,
			  uint64_t ring_size, uint64_t incarnation)
{
	return GUARD(lane_format(ret, base, bytes, number, ring_size, incarnation));
}

/* A lane that others can write says nothing about what its domain wrote; one that others can read tells
 * them. A copy that was put back without its owner looks like that. */
static int check_owner(const struct pool *p, int fd, const struct pool_domain *d, const char *name,
		       struct pool_error *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return pool_refuse(e, -errno, "%s/%s: %s", p->path, name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return pool_refuse(e, -EINVAL,
				   "%s/%s: is no regular file: put the lane's own file back",
				   p->path, name);
	if (st.st_uid == d->uid && (st.st_mode & 0077) == 0)
		return 0;
	return pool_refuse(
		e, -EPERM,
		"%s/%s: belongs to uid %u with mode %04o, and must be uid %u's alone. If "
		"nobody can have changed it: chown %u and chmod 600",
		p->path, name, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777),
		(unsigned)d->uid, (unsigned)d->uid);
}

int pool_lane_open(struct pool *p, const struct pool_domain *d, struct lane *ret, int *ret_fd,
		   struct pool_error *ret_error)
{
	int flags = (p->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	cleanup_close int fd = -1;
	char name[LANE_NAME_BYTES];
	uint8_t *base;
	size_t bytes;
	int r;

	lane_name(d->lane, name);
	if (!ring_size_good(d->ring_size))
		return pool_refuse(ret_error, -EBADMSG,
				   "%s/%s: ring size in the catalog is damaged", p->path, name);
	bytes = LANE_HEADER_BYTES + d->ring_size;
	fd = openat(p->dir_fd, name, flags);
	if (fd < 0)
		return pool_refuse(ret_error, -errno, "%s/%s: %s: put the lane's own file back",
				   p->path, name, strerror(errno));
	r = check_owner(p, fd, d, name, ret_error);
	if (r < 0)
		return r;
	r = media_map(fd, bytes, p->emulated, p->read_only, name, &base, ret_error);
	if (r < 0)
		return r;
	r = attach_guarded(ret, base, bytes);
	if (r == 0 && (ret->number != d->lane || ret->ring_size != d->ring_size))
		r = -EBADMSG;
	if (r < 0) {
		media_unmap(base, bytes);
		return pool_refuse(ret_error, -EBADMSG,
				   "%s/%s: header of the lane is damaged or another lane's",
				   p->path, name);
	}
	*ret_fd = take_fd(fd);
	return 0;
}

void pool_lane_close(struct lane *l, int fd)
{
	if (l && l->base) {
		media_unmap(l->base, l->map_bytes);
		l->base = NULL;
	}
	if (fd >= 0)
		(void)close(fd);
}

/* Where the heads are not known, a lane is live when its walk finds a record, or when it is damaged. */
static int holds(const struct lane *l)
{
	struct walk w;
	uint32_t chain;
	const char *why;
	int r = walk_find_head(l, &w, &chain, &why);

	return r < 0 || w.position != w.tail;
}

bool pool_lane_holds(struct pool *p, const struct pool_domain *d)
{
	struct lane l;
	int fd, r;

	if (pool_lane_open(p, d, &l, &fd, NULL) < 0)
		return true;
	r = pool_lane_is(d, &l) ? GUARD(holds(&l)) : 1;
	pool_lane_close(&l, fd);
	return r != 0;
}

bool pool_lane_is(const struct pool_domain *d, const struct lane *l)
{
	const uint64_t *known = d->lane_incarnation;

	return known[0] == 0 || l->incarnation == known[0] || l->incarnation == known[1];
}

/* Nothing was ever appended to it: the cut came while it was filled or formatted (then its header may be torn,
 * and tells nothing). */
static bool unused(struct pool *p, const char *name)
{
	uint8_t block[2048];
	cleanup_close int fd =
		openat(p->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	off_t at = (off_t)LANE_HEADER_BYTES;
	ssize_t n;

	if (fd < 0)
		return false;
	while ((n = pread(fd, block, sizeof(block), at)) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (block[i] != 0)
				return false;
		}
		at += n;
	}
	return n == 0;
}

static bool files_of(struct pool *p, uint32_t lane)
{
	struct pool_file f;

	return catalog_file_next(p, lane, 0, &f) >= 0;
}

static bool lane_in_catalog(struct pool *p, uint32_t lane)
{
	struct pool_domain d;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		int r = catalog_domain_get(p, i, &d);

		if (r == 0 && d.lane == lane)
			return true;
	}
	return false;
}

/* remove: all of them were looked at, and none holds anything. */
static int orphan(struct pool *p, uint32_t lane, const char *name, bool remove,
		  struct pool_error *e)
{
	struct pool_domain d = { .lane = lane };
	struct stat st;

	if (fstatat(p->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (remove) {
		(void)unlinkat(p->dir_fd, name, 0);
		return 0;
	}
	/* A session may have it mapped, however empty it is: its files are there. */
	if (files_of(p, lane))
		return pool_refuse(
			e, -EBADMSG,
			"%s/%s: the catalog knows files of it and no domain: its entry was lost. "
			"Stop the database that uses it, keep a copy of the whole directory, delete "
			"this file; if it holds records, restore the database, else take our mark "
			"off its files: setfattr -x user.pmemlogd.owner",
			p->path, name);
	if (!unused(p, name)) {
		d.uid = st.st_uid;
		d.ring_size = (uint64_t)st.st_size - LANE_HEADER_BYTES;
		if (pool_lane_holds(p, &d))
			return pool_refuse(
				e, -EBADMSG,
				"%s/%s: holds records, and the catalog knows no domain for "
				"it: its entry was lost. Keep a copy of the whole directory, "
				"restore the database that used it, then delete this file",
				p->path, name);
	}
	return 0;
}

static int orphans(struct pool *p, bool remove, struct pool_error *e)
{
	int fd = openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!dir) {
		close_fd(&fd);
		return pool_refuse(e, -errno, "%s: %s", p->path, strerror(errno));
	}
	while (r == 0 && (entry = readdir(dir))) {
		char name[LANE_NAME_BYTES];
		unsigned lane;

		if (sscanf(entry->d_name, POOL_LANE_PREFIX "%6u", &lane) != 1)
			continue;
		lane_name(lane, name);
		if (strcmp(name, entry->d_name) == 0 && !lane_in_catalog(p, lane))
			r = orphan(p, lane, name, remove, e);
	}
	closedir(dir);
	return r;
}

int pool_lanes_orphans(struct pool *p, struct pool_error *e)
{
	/* Twice: a refusal by the last of them must find the first still there. */
	int r = orphans(p, false, e);

	return r == 0 && !p->read_only ? orphans(p, true, e) : r;
}

/* A new file under the smallest number that no file and no domain has. */
static int new_lane_file(struct pool *p, uint32_t *ret_lane)
{
	char name[LANE_NAME_BYTES];

	for (uint32_t lane = 1; lane <= LANE_NUMBER_MAX; lane++) {
		int fd;

		lane_name(lane, name);
		/* Files of a domain whose entry was lost are nobody else's, either. */
		if (lane_in_catalog(p, lane) || files_of(p, lane))
			continue;
		fd = openat(p->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			    0600);
		if (fd >= 0) {
			*ret_lane = lane;
			return fd;
		}
		if (errno != EEXIST)
			return -errno;
	}
	return -ENOSPC;
}

static int random_incarnation(uint64_t *ret)
{
	do {
		if (getrandom(ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret))
			return -EIO;
	} while (*ret == 0);
	return 0;
}

/* Fills, maps and formats the file; it is durable with its name on return. */
static int build(struct pool *p, int fd, uint32_t lane, uint32_t uid, uint64_t ring_size,
		 const char *name, struct lane *ret, struct pool_error *e)
{
	size_t bytes = LANE_HEADER_BYTES + ring_size;
	uint64_t incarnation;
	uint8_t *base;
	int r = media_fill(fd, bytes);

	if (r < 0)
		return pool_refuse(e, r, "%s/%s: %s", p->path, name,
				   r == -ENOSPC ? "no space in the pool for a lane" : strerror(-r));
	r = random_incarnation(&incarnation);
	if (r < 0)
		return pool_refuse(e, r, "%s/%s: no random numbers", p->path, name);
	r = media_map(fd, bytes, p->emulated, false, name, &base, e);
	if (r < 0)
		return r;
	/* Prefaulted: the first commits pay for no page fault. Older kernels: they do. */
	(void)madvise(base, bytes, MADV_POPULATE_WRITE);
	r = format_guarded(ret, base, bytes, lane, ring_size, incarnation);
	if (r == 0 && (fchown(fd, (uid_t)uid, (gid_t)-1) < 0 || fchmod(fd, 0600) < 0))
		r = -errno;
	if (r == 0 && (fsync(fd) < 0 || fsync(p->dir_fd) < 0))
		r = -errno;
	if (r < 0) {
		media_unmap(base, bytes);
		return pool_refuse(e, r, "%s/%s: %s", p->path, name, strerror(-r));
	}
	return 0;
}

/*
 * Persist order: the file whole with its name; the domain's entry, which makes it the domain's lane. A cut
 * leaves at worst a file that no entry names, which is never used again.
 */
static int create(struct pool *p, int index, struct pool_domain *d, uint64_t ring_size,
		  struct lane *ret, int *ret_fd, struct pool_error *e)
{
	cleanup_close int fd = -1;
	char name[LANE_NAME_BYTES];
	uint32_t lane = 0;
	int r;

	/* Whole pages: nothing else may share one with a ring. */
	ring_size &= ~UINT64_C(4095);
	if (!ring_size_good(ring_size))
		return pool_refuse(e, -EINVAL, "lane size out of range");
	fd = new_lane_file(p, &lane);
	if (fd < 0)
		return pool_refuse(e, fd, "%s: no new lane file: %s", p->path, strerror(-fd));
	lane_name(lane, name);
	r = build(p, fd, lane, d->uid, ring_size, name, ret, e);
	if (r == 0) {
		d->lane = lane;
		d->ring_size = ring_size;
		pool_lane_renewed(d, ret);
		r = catalog_domain_put(p, index >= 0 ? (uint32_t)index : UINT32_MAX, d);
		if (r < 0) {
			pool_lane_close(ret, -1);
			(void)pool_refuse(e, r, "%s: no room for domain %s in the catalog", p->path,
					  d->name);
		}
	}
	if (r < 0) {
		(void)unlinkat(p->dir_fd, name, 0);
		return r;
	}
	*ret_fd = take_fd(fd);
	return 0;
}

static int renew(struct lane *l, uint64_t incarnation)
{
	lane_set_incarnation(l, incarnation);
	return 0;
}

static int renew_guarded(struct lane *l, uint64_t incarnation)
{
	return GUARD(renew(l, incarnation));
}

int pool_lane_renew(struct pool *p, uint32_t index, struct pool_domain *d, struct lane *l)
{
	uint64_t incarnation;
	int r;

	do {
		r = random_incarnation(&incarnation);
	} while (r == 0 && incarnation == l->incarnation);
	if (r < 0)
		return r;
	/* An earlier change was cut behind the header: the lane has its second now. */
	if (d->lane_incarnation[0] != 0 && l->incarnation == d->lane_incarnation[1])
		d->lane_incarnation[0] = l->incarnation;
	d->lane_incarnation[1] = incarnation;
	r = catalog_domain_put(p, index, d);
	return r < 0 ? r : renew_guarded(l, incarnation);
}

void pool_lane_renewed(struct pool_domain *d, const struct lane *l)
{
	d->lane_incarnation[0] = l->incarnation;
	d->lane_incarnation[1] = 0;
}

static int remove_lane(struct pool *p, uint32_t lane)
{
	char name[LANE_NAME_BYTES];

	lane_name(lane, name);
	if (unlinkat(p->dir_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return fsync(p->dir_fd) < 0 ? -errno : 0;
}

int pool_lane_create(struct pool *p, struct pool_domain *d, uint64_t ring_size, struct lane *ret,
		     int *ret_fd, struct pool_error *ret_error)
{
	struct pool_domain old;
	int index, r;

	if (p->read_only)
		return pool_refuse(ret_error, -EROFS, "%s: opened read only", p->path);
	index = catalog_domain_find(p, d->uid, d->name);
	if (index >= 0 && catalog_domain_get(p, (uint32_t)index, &old) < 0)
		index = -ENOENT;
	if (index >= 0 && pool_lane_holds(p, &old))
		return pool_refuse(ret_error, -EBUSY, "lane %u of domain %s still holds records",
				   old.lane, d->name);
	r = create(p, index, d, ring_size, ret, ret_fd, ret_error);
	/* The entry names the new one: the old is nobody's, also if this does not become durable. */
	if (r == 0 && index >= 0)
		(void)remove_lane(p, old.lane);
	return r;
}

/* Persist order: the old file's name goes first, since a pool may not have room for both. A cut leaves a
 * domain whose lane cannot be opened: still quarantined, and given up the same way again. */
int pool_lane_replace(struct pool *p, uint32_t index, struct pool_domain *d,
		      struct pool_error *ret_error)
{
	struct lane l;
	int fd = -1, r;

	if (p->read_only)
		return pool_refuse(ret_error, -EROFS, "%s: opened read only", p->path);
	r = remove_lane(p, d->lane);
	if (r < 0)
		return pool_refuse(ret_error, r, "%s: lane %u: %s", p->path, d->lane, strerror(-r));
	r = create(p, (int)index, d, d->ring_size, &l, &fd, ret_error);
	if (r == 0)
		pool_lane_close(&l, fd);
	return r;
}
