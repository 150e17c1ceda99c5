/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/pool_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "pool/dir/media.h"
#include "pool/dir/superblock.h"
#include "pool/guard.h"

#define PAGE	   4096u
#define LANE_FILE  "lane-%06u"
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

/* What cannot be read, and what is not there, is filled with 0xff: that is neither zero (free) nor valid. */
static void read_pages(struct pool_copy *c)
{
	for (uint64_t at = 0; at < POOL_BYTES; at += PAGE) {
		size_t n = (size_t)min_of((uint64_t)PAGE, POOL_BYTES - at);
		ssize_t got = pread(c->pool.lock_fd, c->pool.map + at, n, (off_t)at);

		if (got < 0) {
			c->unreadable += n;
			got = 0;
		}
		memset(c->pool.map + at + got, 0xff, n - (size_t)got);
	}
}

static int open_file(struct pool_copy *c, struct pool_error *e)
{
	const char *path = c->pool.path;
	struct stat st;

	c->pool.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->pool.dir_fd < 0)
		return pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	c->pool.lock_fd = openat(c->pool.dir_fd, "pool", OPEN_FLAGS);
	if (c->pool.lock_fd < 0 || fstat(c->pool.lock_fd, &st) < 0)
		return pool_refuse(e, -errno, "%s/pool: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return pool_refuse(e, -EINVAL, "%s/pool: is no regular file", path);
	c->file_bytes = (uint64_t)st.st_size;
	return 0;
}

int pool_copy_open(struct pool_copy **ret, const char *path, struct pool_error *e)
{
	struct pool_copy *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return pool_refuse(e, -ENOMEM, "no memory");
	c->pool.dir_fd = c->pool.lock_fd = -1;
	c->pool.read_only = true;
	pthread_mutex_init(&c->pool.lock, NULL);
	c->pool.path = strdup(path);
	c->pool.map = malloc(POOL_BYTES);
	r = c->pool.path && c->pool.map ? open_file(c, e) : pool_refuse(e, -ENOMEM, "no memory");
	if (r < 0) {
		pool_copy_close(c);
		return r;
	}
	read_pages(c);
	(void)superblock_read(c->pool.lock_fd, path, true, &c->pool.sb, &c->why);
	c->pool.emulated = c->pool.sb.emulated != 0;
	c->domains_damaged = catalog_load(&c->pool) < 0;
	*ret = c;
	return 0;
}

struct pool_copy *pool_copy_close(struct pool_copy *c)
{
	if (!c)
		return NULL;
	close_fd(&c->pool.lock_fd);
	close_fd(&c->pool.dir_fd);
	pthread_mutex_destroy(&c->pool.lock);
	free(c->pool.map);
	free(c->pool.path);
	free(c);
	return NULL;
}

bool pool_copy_in_use(const struct pool_copy *c)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(c->pool.lock_fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int pool_copy_map_raw(const struct pool_copy *c, uint32_t number, uint8_t **ret, size_t *ret_bytes,
		      struct pool_error *e)
{
	const uint64_t most = LANE_HEADER_BYTES + LANE_RING_MAX;
	cleanup_close int fd = -1;
	struct stat st;
	char name[32];
	void *base;

	(void)snprintf(name, sizeof(name), LANE_FILE, number);
	fd = openat(c->pool.dir_fd, name, OPEN_FLAGS);
	if (fd < 0 || fstat(fd, &st) < 0)
		return pool_refuse(e, -errno, "%s/%s: %s", c->pool.path, name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return pool_refuse(e, -EINVAL, "%s/%s: is no regular file", c->pool.path, name);
	if (st.st_size < (off_t)LANE_HEADER_BYTES)
		return pool_refuse(e, -EBADMSG, "%s/%s: is too short for a lane (%lld bytes)",
				   c->pool.path, name, (long long)st.st_size);
	*ret_bytes = (size_t)min_of((uint64_t)st.st_size, most);
	base = mmap(NULL, *ret_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return pool_refuse(e, -errno, "%s/%s: %s", c->pool.path, name, strerror(errno));
	*ret = base;
	return 0;
}

/* The guard's jump may not run over locals of the caller. */
static int attach_guarded(struct lane *ret, uint8_t *base, size_t bytes)
{
	return GUARD(lane_attach(ret, base, bytes));
}

int pool_copy_map(const struct pool_copy *c, uint32_t number, struct lane *ret,
		  struct pool_error *e)
{
	uint8_t *base;
	size_t bytes;
	int r = pool_copy_map_raw(c, number, &base, &bytes, e);

	if (r < 0)
		return r;
	r = attach_guarded(ret, base, bytes);
	if (r == 0)
		return 0;
	(void)munmap(base, bytes);
	return pool_refuse(e, r, "%s/" LANE_FILE ": %s", c->pool.path, number,
			   r == -EFAULT	  ? "its header cannot be read"
			   : r == -EINVAL ? "is shorter than its header says"
					  : "both copies of its header are damaged");
}

void pool_copy_unmap(struct lane *l)
{
	if (l->base)
		(void)munmap(l->base, l->map_bytes);
	l->base = NULL;
}
