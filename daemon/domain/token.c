/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bypass tokens: a program that writes a rule file without a session holds a shared flock on
 * <run_dir>/bypass/MAJ:MIN-INO. It takes the token, opens the file and then reads the mark again; the
 * daemon stamps the mark and then tries the token. So one of the two always sees the other.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "daemon/domain/internal.h"

int token_try(int bypass_fd, uint32_t dev_major, uint32_t dev_minor, uint64_t ino)
{
	cleanup_close int fd = -1;
	struct stat st;
	char name[64];

	(void)snprintf(name, sizeof(name), "%u:%u-%llu", dev_major, dev_minor,
		       (unsigned long long)ino);

	/* Anybody may put names into the folder: no link is followed, no FIFO waited for. It is never
	 * created here: who makes it later finds our mark. */
	fd = openat(bypass_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? TOKEN_FREE : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return TOKEN_HELD;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? TOKEN_HELD : -errno;
	return TOKEN_FREE; /* closing lets it go: the mark keeps later ones away */
}
