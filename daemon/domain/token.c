/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bypass tokens: a program that writes a rule file without a session holds a shared flock on
 * <run_dir>/bypass/MAJ:MIN-INO. It takes the token, opens the file and then reads the mark again; the
 * daemon stamps the mark, tries the token and keeps it until the file's entry is published. So one of
 * the two always sees the other, and who gets the token and sees a mark without an entry knows that no
 * entry will say `lane` while it writes.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "daemon/domain/internal.h"

static int open_token(int bypass_fd, const char *name)
{
	/* Anybody may put names into the folder: no link is followed, no FIFO waited for. */
	int fd = openat(bypass_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	/* Not O_CREAT at once: in a sticky folder the kernel may refuse it on somebody else's file. */
	if (fd < 0 && errno == ENOENT)
		fd = openat(bypass_fd, name, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			    0644);
	if (fd < 0 && errno == EEXIST)
		fd = openat(bypass_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int token_claim(int bypass_fd, uint32_t dev_major, uint32_t dev_minor, uint64_t ino, int *ret_fd)
{
	cleanup_close int fd = -1;
	struct stat st;
	char name[64];

	(void)snprintf(name, sizeof(name), "%u:%u-%llu", dev_major, dev_minor,
		       (unsigned long long)ino);
	fd = open_token(bypass_fd, name);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return TOKEN_HELD;
	/* The umask may have taken the others' bit, and a token is for every user's shared lock. */
	if ((st.st_mode & 0444) != 0444 && st.st_uid == geteuid())
		(void)fchmod(fd, 0644);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? TOKEN_HELD : -errno;
	*ret_fd = take_fd(fd);
	return TOKEN_FREE;
}

int token_try(int bypass_fd, uint32_t dev_major, uint32_t dev_minor, uint64_t ino)
{
	cleanup_close int fd = -1;

	return token_claim(bypass_fd, dev_major, dev_minor, ino, &fd);
}
