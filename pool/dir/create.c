/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"
#include "pool/dir/files.h"
#include "pool/dir/media.h"
#include "pool/dir/pool_internal.h"
#include "pool/dir/superblock.h"
#include "pool/dir/usc.h"
#include "pool/guard.h"
#include "pool/ops.h"

static bool is_ours(const char *name)
{
	return strcmp(name, POOL_FILE_NAME) == 0 || strcmp(name, POOL_FILE_NEW_NAME) == 0 ||
	       strncmp(name, POOL_LANE_PREFIX, strlen(POOL_LANE_PREFIX)) == 0;
}

/* Nothing of anybody's may lie there: what a crashed creation left and a file system's own folder do
 * not count. */
static int check_empty(int dir_fd, const char *path, struct pool_error *e)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	while (r == 0 && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    strcmp(name, "lost+found") == 0 || strcmp(name, POOL_FILE_NEW_NAME) == 0)
			continue;
		if (is_ours(name))
			r = pool_refuse(
				e, -EEXIST,
				"%s: holds a pool already (%s); --force gives it up with all "
				"records in it",
				path, name);
		else
			r = pool_refuse(e, -ENOTEMPTY,
					"%s: is not empty (%s); take another directory, or --force",
					path, name);
	}
	closedir(dir);
	return r;
}

/* A pool that this machine expects elsewhere, or that has vanished, is not forgotten by accident. */
static int check_forgotten(const char *path, const char *state_dir, struct pool_error *e)
{
	struct pool_state s;
	char uuid[33];
	int r = state_read(state_dir, &s);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return pool_refuse(
			e, -EEXIST,
			"%s: %s/pool.state cannot be read (%s): whether this machine has "
			"a pool elsewhere cannot be told. Put the file back; if there is "
			"none for certain, --force makes a new pool",
			path, state_dir, strerror(-r));
	uuid_text(s.uuid, uuid);
	return pool_refuse(
		e, -EEXIST,
		"%s: %s/pool.state says that this machine's pool is %s. If that is gone for "
		"good, restore the databases that used it; --force makes a new pool",
		path, state_dir, uuid);
}

/* Lanes of a pool that was replaced. Foreign files stay. */
static void remove_lanes(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, POOL_LANE_PREFIX, strlen(POOL_LANE_PREFIX)) == 0)
			(void)unlinkat(dir_fd, entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
}

static int fill(int fd, const char *path, const char *state_dir, bool emulate, struct pool_error *e,
		struct pool_superblock *sb)
{
	uint8_t *map = NULL;
	int r = media_fill(fd, POOL_BYTES);

	if (r < 0)
		return pool_refuse(e, r, "%s: %s", path,
				   r == -ENOSPC ? "no space for the pool file" : strerror(-r));
	r = media_map(fd, POOL_BYTES, emulate, false, path, &map, e);
	if (r < 0)
		return r;
	memset(sb, 0, sizeof(*sb));
	memcpy(sb->magic, POOL_MAGIC, sizeof(sb->magic));
	sb->version = POOL_VERSION;
	sb->emulated = emulate;
	sb->generation = 1;
	sb->next_file_id = 1;
	sb->created_ns = now_realtime_ns();
	sb->unsafe_shutdown = emulate ? USC_UNKNOWN : usc_read(fd);
	if (getrandom(sb->uuid, sizeof(sb->uuid), 0) != (ssize_t)sizeof(sb->uuid))
		r = -EIO;
	if (r == 0)
		r = machine_id_read(state_dir, false, sb->machine_id);
	if (r == 0)
		r = superblock_write(map, sb);
	media_unmap(map, POOL_BYTES);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	return r < 0 ? pool_refuse(e, r, "%s: %s", path, strerror(-r)) : 0;
}

/* With force: not while somebody works in it. */
static int lock_old(int dir_fd, const char *path, const char *state_dir, int *ret_fd,
		    struct pool_error *e)
{
	*ret_fd = openat(dir_fd, POOL_FILE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (*ret_fd < 0)
		return errno == ENOENT || errno == ELOOP
			       ? 0
			       : pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	return pool_lock(*ret_fd, path, state_dir, e);
}

/*
 * Persist order: the new file under a name of its own, filled and synced; renamed, directory synced: the
 * pool exists (a cut before leaves what was there); the mirror in the state directory (a cut before is a
 * missing mirror with empty lanes, or after force one of another pool: create again).
 */
int pool_create(const char *path, const char *state_dir, bool emulate, bool force,
		struct pool_error *ret_error)
{
	cleanup_free struct pool_superblock *sb = malloc(sizeof(*sb));
	cleanup_close int dir_fd = -1;
	cleanup_close int old_fd = -1;
	cleanup_close int fd = -1;
	struct pool_error *e = ret_error;
	struct pool_state state;
	int r;

	if (e)
		e->text[0] = '\0';
	if (!sb)
		return pool_refuse(e, -ENOMEM, "no memory");
	if (path[0] != '/')
		return pool_refuse(e, -EINVAL, "%s: the pool's path must be absolute", path);
	pool_ops_select();
	(void)guard_install();
	/* Clients open lane files in it by path when they attach without a daemon: 0755. */
	r = directory_make(path, 0755);
	if (r == 0)
		r = directory_make(state_dir, 0755);
	if (r < 0)
		return pool_refuse(e, r, "%s, %s: %s", path, state_dir, strerror(-r));
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	if (!force)
		r = check_empty(dir_fd, path, e);
	if (r == 0 && !force)
		r = check_forgotten(path, state_dir, e);
	if (r == 0)
		r = lock_old(dir_fd, path, state_dir, &old_fd, e);
	if (r < 0)
		return r;

	(void)unlinkat(dir_fd, POOL_FILE_NEW_NAME, 0);
	fd = openat(dir_fd, POOL_FILE_NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	if (fd < 0)
		return pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	r = fill(fd, path, state_dir, emulate, e, sb);
	if (r == 0 && renameat(dir_fd, POOL_FILE_NEW_NAME, dir_fd, POOL_FILE_NAME) < 0)
		r = pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	if (r < 0) {
		(void)unlinkat(dir_fd, POOL_FILE_NEW_NAME, 0);
		return r;
	}
	if (fsync(dir_fd) < 0)
		return pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	/* Only now: until the rename was durable they belonged to the old pool. */
	remove_lanes(dir_fd);
	memcpy(state.uuid, sb->uuid, sizeof(state.uuid));
	state.generation = sb->generation;
	r = state_write(state_dir, &state);
	if (r < 0)
		return pool_refuse(e, r, "%s/pool.state: %s", state_dir, strerror(-r));
	return 0;
}
