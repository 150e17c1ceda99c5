/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define CONFIG_FILE_MAX (1024 * 1024)

static int check_owner(const char *path, const struct stat *st, char *ret_error, unsigned n)
{
	if (!S_ISREG(st->st_mode)) {
		(void)snprintf(ret_error, n, "%s:0: not a regular file", path);
		return -EINVAL;
	}
	/* Whoever writes this file chooses where a privileged process works. */
	if (st->st_uid != 0 && st->st_uid != geteuid()) {
		(void)snprintf(ret_error, n,
			       "%s:0: belongs to user %u; it must belong to root or to user %u, "
			       "who runs this (chown root)",
			       path, (unsigned)st->st_uid, (unsigned)geteuid());
		return -EPERM;
	}
	if (st->st_mode & (S_IWGRP | S_IWOTH)) {
		(void)snprintf(ret_error, n, "%s:0: mode %04o lets others write it (chmod go-w)",
			       path, (unsigned)st->st_mode & 07777u);
		return -EPERM;
	}
	return 0;
}

int config_file_read(const char *path, char **ret_text, size_t *ret_size, char *ret_error,
		     unsigned n)
{
	cleanup_free char *text = NULL;
	cleanup_close int fd = -1;
	struct stat st;
	size_t at = 0;
	int r;

	/* O_NONBLOCK: a FIFO must not hold us up before we know that it is one */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0) {
		r = -errno;
		(void)snprintf(ret_error, n, "%s:0: cannot be read: %s", path, strerror(-r));
		return r;
	}
	r = check_owner(path, &st, ret_error, n);
	if (r < 0)
		return r;
	text = malloc(CONFIG_FILE_MAX + 1);
	if (!text)
		return -ENOMEM;
	while (at <= CONFIG_FILE_MAX) {
		ssize_t got = read(fd, text + at, CONFIG_FILE_MAX + 1 - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			r = -errno;
			(void)snprintf(ret_error, n, "%s:0: cannot be read: %s", path,
				       strerror(-r));
			return r;
		}
		if (got == 0)
			break;
		at += (size_t)got;
	}
	if (at > CONFIG_FILE_MAX) {
		(void)snprintf(ret_error, n, "%s:0: larger than 1 MiB: this is no configuration",
			       path);
		return -EINVAL;
	}
	text[at] = '\0';
	*ret_text = take_pointer(text);
	*ret_size = at;
	return 0;
}
