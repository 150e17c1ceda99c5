/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a program that posix_spawn starts gets: descriptors and files that it writes without a record. */

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>

#include "client/preload/desc.h"
#include "client/preload/named.h"
#include "client/preload/passed.h"

static long nothing(void *arg)
{
	(void)arg;
	return 0;
}

/* Returns its error; errno is left alone. */
static int shim_addopen(posix_spawn_file_actions_t *actions, int fd, const char *path, int flags,
			mode_t mode)
{
	struct named n;
	int keep = errno;

	if (unlikely(!real.spawn_addopen))
		return ENOSYS;
	if (unlikely(desc_table) && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC)) &&
	    named_find(AT_FDCWD, path, AT_SYMLINK_FOLLOW, &n) &&
	    named_make(&n, NAMED_BYPASS, nothing, NULL) < 0) {
		int r = errno;

		errno = keep;
		return r;
	}
	return real.spawn_addopen(actions, fd, path, flags, mode);
}

static int shim_adddup2(posix_spawn_file_actions_t *actions, int fd, int onto)
{
	int keep = errno;

	if (unlikely(!real.spawn_adddup2))
		return ENOSYS;
	if (unlikely(desc_peek(fd) != NULL) && passed_on(fd) < 0) {
		int r = errno;

		errno = keep;
		return r;
	}
	return real.spawn_adddup2(actions, fd, onto);
}

#define FAMILY_SPAWN
#include "client/preload/export.h"
