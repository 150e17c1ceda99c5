/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Preload library: close() of a file whose name begins with `slow-close` takes SLOW_CLOSE_MS, as it may
 * on a file system that a process serves (FUSE), which may be the one who passed the descriptor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int close(int fd)
{
	const char *ms = getenv("SLOW_CLOSE_MS");
	char link[64], path[512];
	const char *name;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = ms ? readlink(link, path, sizeof(path) - 1) : -1;
	if (n > 0) {
		path[n] = '\0';
		name = strrchr(path, '/');
		if (name && strncmp(name + 1, "slow-close", 10) == 0)
			(void)usleep((useconds_t)strtoul(ms, NULL, 10) * 1000);
	}
	return (int)syscall(SYS_close, fd);
}
