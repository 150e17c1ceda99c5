/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "pool/dir/catalog.h"
#include "pool/dir/files.h"
#include "pool/dir/media.h"
#include "pool/dir/pool_internal.h"
#include "pool/dir/superblock.h"
#include "pool/dir/usc.h"
#include "pool/guard.h"
#include "pool/ops.h"

int pool_open_files(const char *path, bool read_only, int *ret_dir_fd, int *ret_fd,
		    struct pool_error *e)
{
	int flags = (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	struct stat st;

	if (path[0] != '/')
		return pool_refuse(e, -EINVAL, "%s: the pool's path must be absolute", path);
	*ret_dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir_fd < 0)
		return pool_refuse(e, -errno, "%s: %s", path, strerror(errno));
	*ret_fd = openat(*ret_dir_fd, POOL_FILE_NAME, flags);
	if (*ret_fd < 0 && errno == ENOENT)
		return pool_refuse(
			e, -ENOENT,
			"%s: holds no pool. If it should: is its file system mounted? A new "
			"one is made by: pmemlogctl pool create",
			path);
	if (*ret_fd < 0 && errno != ELOOP && errno != EISDIR)
		return pool_refuse(e, -errno, "%s/%s: %s", path, POOL_FILE_NAME, strerror(errno));
	if (*ret_fd < 0 || fstat(*ret_fd, &st) < 0 || !S_ISREG(st.st_mode))
		return pool_refuse(e, -EINVAL,
				   "%s/%s: is no regular file; nothing was changed. Put the pool's "
				   "own file back",
				   path, POOL_FILE_NAME);
	return 0;
}

int pool_lock(int fd, const char *path, const char *state_dir, struct pool_error *e)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char pid[32] = "unknown";

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno != EAGAIN && errno != EACCES)
		return pool_refuse(e, -errno, "%s: cannot be locked: %s", path, strerror(errno));
	/* The kernel tells no owner of an OFD lock. */
	if (file_read_small(state_dir, "pool.pid", pid, sizeof(pid)) > 0)
		pid[strcspn(pid, "\n")] = '\0';
	return pool_refuse(e, -EBUSY, "%s: is in use by process %s", path, pid);
}

static int check_machine(const struct pool *p, struct pool_error *e)
{
	uint8_t id[16];
	char ours[33], theirs[33];
	int r = machine_id_read(p->state_dir, true, id);

	if (r < 0)
		return pool_refuse(e, r, "this machine has no id (/etc/machine-id)");
	if (memcmp(id, p->sb.machine_id, sizeof(id)) == 0)
		return 0;
	uuid_text(id, ours);
	uuid_text(p->sb.machine_id, theirs);
	return pool_refuse(
		e, -EXDEV,
		"%s: belongs to machine %s, this is %s: its databases may have gone on "
		"elsewhere. If it is the same machine, installed anew: echo %s > %s/machine-id",
		p->path, theirs, ours, theirs, p->state_dir);
}

/* True if any lane holds records. */
static bool any_lane_holds(struct pool *p)
{
	struct pool_domain d;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d) == 0 && pool_lane_holds(p, &d))
			return true;
	}
	return false;
}

/*
 * The mirror in the state directory is raised after the pool (see raise_generation), so the pool's
 * generation is the mirror's or one ahead. A lower one is an older copy of the pool; a much higher one
 * an older copy of the state directory.
 */
static int check_state(struct pool *p, struct pool_error *e)
{
	struct pool_state s;
	char uuid[33], line[96];
	int r = state_read(p->state_dir, &s);

	uuid_text(p->sb.uuid, uuid);
	(void)snprintf(line, sizeof(line), "pmemlogd-pool 1 %s %" PRIu64, uuid, p->sb.generation);
	if (r == -ENOENT || r == -EBADMSG) {
		const char *what = r == -ENOENT ? "is missing" : "is damaged";

		if (any_lane_holds(p))
			return pool_refuse(
				e, -ENOKEY,
				"%s/pool.state %s, and the pool holds records: whether it is "
				"the newest copy of this pool cannot be told. If it is: echo "
				"'%s' > %s/pool.state",
				p->state_dir, what, line, p->state_dir);
		(void)snprintf(p->warning, sizeof(p->warning),
			       "pool.state %s; taken from the pool, which holds no records", what);
		return 0;
	}
	if (r < 0)
		return pool_refuse(e, r, "%s/pool.state: %s", p->state_dir, strerror(-r));
	if (memcmp(s.uuid, p->sb.uuid, sizeof(s.uuid)) != 0) {
		char known[33];

		uuid_text(s.uuid, known);
		return pool_refuse(e, -EXDEV,
				   "%s: is pool %s, but this machine's pool is %s: another one is "
				   "mounted here. To change to this one for good: echo '%s' > "
				   "%s/pool.state",
				   p->path, uuid, known, line, p->state_dir);
	}
	if (p->sb.generation < s.generation)
		return pool_refuse(
			e, -ESTALE,
			"%s: is an older copy of this pool (generation %" PRIu64
			", this machine has seen %" PRIu64 "): its records are out of date. "
			"Put the newest copy back; if that is lost, restore the databases and "
			"make a new pool: pmemlogctl pool create --force",
			p->path, p->sb.generation, s.generation);
	if (p->sb.generation - s.generation > 1)
		return pool_refuse(
			e, -ESTALE,
			"%s: generation %" PRIu64 ", but %s knows %" PRIu64
			" only: the state directory is an older copy. If this pool is the "
			"right one: echo '%s' > %s/pool.state",
			p->path, p->sb.generation, p->state_dir, s.generation, line, p->state_dir);
	return 0;
}

/*
 * A risen count says that flushed stores may have missed the media. A lane that held nothing has lost
 * nothing; the others are quarantined one by one, so that recover --apply can be decided by name.
 * Persist order: verdicts, then the count: a cut between asks the same question again.
 */
static int check_unsafe_shutdown(struct pool *p)
{
	uint64_t count = usc_read(p->lock_fd);
	struct pool_domain d;
	int r = 0;

	if (count == USC_UNKNOWN || count == p->sb.unsafe_shutdown)
		return 0;
	for (uint32_t i = 0; p->sb.unsafe_shutdown != USC_UNKNOWN && i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d) < 0 || !pool_lane_holds(p, &d) ||
		    d.verdict == VERDICT_QUARANTINED)
			continue;
		d.verdict = VERDICT_QUARANTINED;
		(void)snprintf(
			d.reason, sizeof(d.reason),
			"%s (%" PRIu64 " -> %" PRIu64
			"): acknowledged records may be missing. Check the database's backup; "
			"pmemlogctl recover --apply replays what is there",
			count > p->sb.unsafe_shutdown
				? "the memory device counted an unsafe shutdown"
				: "the memory device's count of unsafe shutdowns has fallen (another "
				  "device?)",
			p->sb.unsafe_shutdown, count);
		r = catalog_domain_put(p, i, &d);
		if (r < 0)
			return r;
	}
	p->sb.unsafe_shutdown = count;
	return 0;
}

/*
 * Persist order: the mirror catches up with the pool if a cut came between last time; pool + 1; mirror.
 * So the mirror is the pool's generation or one behind at any time, and a copy of the pool that was
 * taken before this opening is refused from the end of it on.
 */
static int raise_generation(struct pool *p, struct pool_error *e)
{
	struct pool_state s = { .generation = p->sb.generation };
	int r;

	memcpy(s.uuid, p->sb.uuid, sizeof(s.uuid));
	r = state_write(p->state_dir, &s);
	if (r == 0) {
		p->sb.generation++;
		r = superblock_write(p->map, &p->sb);
	}
	if (r == 0) {
		s.generation = p->sb.generation;
		r = state_write(p->state_dir, &s);
	}
	if (r < 0)
		return pool_refuse(e, r, "%s, %s: the generation cannot be raised: %s", p->path,
				   p->state_dir, strerror(-r));
	return 0;
}

static void write_pid(const struct pool *p)
{
	char pid[32];

	(void)snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
	(void)file_replace(p->state_dir, "pool.pid", pid, 0644);
}

static int open_checked(struct pool *p, bool emulate, struct pool_error *e)
{
	int r;

	if (!p->read_only) {
		r = directory_make(p->state_dir, 0755);
		if (r < 0)
			return pool_refuse(e, r, "%s: %s", p->state_dir, strerror(-r));
	}
	r = pool_open_files(p->path, p->read_only, &p->dir_fd, &p->lock_fd, e);
	if (r == 0 && !p->read_only)
		r = pool_lock(p->lock_fd, p->path, p->state_dir, e);
	if (r == 0)
		r = superblock_read(p->lock_fd, p->path, p->read_only, &p->sb, e);
	if (r < 0)
		return r;
	p->emulated = p->sb.emulated != 0;
	if (p->emulated && !emulate)
		return pool_refuse(
			e, -EOPNOTSUPP,
			"%s: is an emulated pool, which does not survive power loss; for "
			"tests and trials: emulate = true",
			p->path);
	r = check_machine(p, e);
	if (r == 0)
		r = media_map(p->lock_fd, POOL_BYTES, p->emulated, p->read_only, p->path, &p->map,
			      e);
	if (r < 0)
		return r;
	if (catalog_load(p) < 0)
		return pool_refuse(
			e, -EBADMSG,
			"%s: the entry of a domain is damaged in both copies: whose records "
			"lie here cannot be told; nothing was changed. Keep a copy of the whole "
			"directory, restore the databases that used it, then: pmemlogctl pool "
			"create --force",
			p->path);
	r = check_state(p, e);
	if (r == 0)
		r = pool_lanes_orphans(p, e);
	if (r < 0 || p->read_only)
		return r;

	r = check_unsafe_shutdown(p);
	if (r < 0)
		return pool_refuse(e, r, "%s: catalog cannot be written: %s", p->path,
				   strerror(-r));
	p->next_id = p->sb.next_file_id;
	r = raise_generation(p, e);
	if (r == 0)
		write_pid(p);
	return r;
}

int pool_open(struct pool **ret, const char *path, const char *state_dir, bool emulate,
	      bool read_only, struct pool_error *ret_error)
{
	struct pool *p = calloc(1, sizeof(*p));
	int r = -ENOMEM;

	if (ret_error)
		ret_error->text[0] = '\0';
	if (!p)
		return pool_refuse(ret_error, -ENOMEM, "no memory");
	pool_ops_select();
	(void)guard_install();
	p->dir_fd = -1;
	p->lock_fd = -1;
	p->read_only = read_only;
	pthread_mutex_init(&p->lock, NULL);
	p->path = strdup(path);
	p->state_dir = strdup(state_dir);
	if (p->path && p->state_dir)
		r = open_checked(p, emulate, ret_error);
	else
		(void)pool_refuse(ret_error, r, "no memory");
	if (r < 0) {
		pool_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct pool *pool_close(struct pool *p)
{
	if (!p)
		return NULL;
	media_unmap(p->map, POOL_BYTES);
	close_fd(&p->lock_fd);
	close_fd(&p->dir_fd);
	pthread_mutex_destroy(&p->lock);
	free(p->path);
	free(p->state_dir);
	free(p);
	return NULL;
}

uint64_t pool_new_file_id(struct pool *p)
{
	const uint64_t step = 1024; /* picked: one superblock write in so many registrations */
	uint64_t id = 0;

	if (p->read_only)
		return 0;
	pthread_mutex_lock(&p->lock);
	if (p->next_id == p->sb.next_file_id) {
		p->sb.next_file_id += step;
		if (superblock_write(p->map, &p->sb) < 0)
			p->sb.next_file_id -= step;
	}
	/* Only ids below the durable limit are given out, so none can come again after a cut. */
	if (p->next_id < p->sb.next_file_id)
		id = p->next_id++;
	pthread_mutex_unlock(&p->lock);
	return id;
}
