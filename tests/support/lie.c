/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fault put into the daemon by LD_PRELOAD: syncs of files below the folder LIE_BELOW return 0
 * and do nothing. With it the daemon trims records that no disk holds: the power cut must lose
 * rows, or the test is blind.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lies(int fd)
{
	const char *below = getenv("LIE_BELOW");
	char link[64];
	char path[4096];
	ssize_t n;

	if (!below)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = '\0';
	return strncmp(path, below, strlen(below)) == 0;
}

typedef int (*sync_fn)(int fd);

static int pass(const char *name, int fd)
{
	sync_fn real = (sync_fn)dlsym(RTLD_NEXT, name);

	return real(fd);
}

int fsync(int fd)
{
	return lies(fd) ? 0 : pass("fsync", fd);
}

int fdatasync(int fd)
{
	return lies(fd) ? 0 : pass("fdatasync", fd);
}

int syncfs(int fd)
{
	return lies(fd) ? 0 : pass("syncfs", fd);
}
