/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What a file is, in raw system calls. */

#include <stddef.h>
#include <stdint.h>

#include "client/preload/config.h"

/* A kernel file handle: inode with generation. */
struct handle {
	uint32_t type;
	uint32_t length;
	uint8_t bytes[CTL_HANDLE_MAX];
};

/* name_to_handle_at(2). flags: AT_EMPTY_PATH, AT_SYMLINK_FOLLOW. 0 or a negative errno. */
int handle_of(int dir, const char *path, int flags, struct handle *ret);

/* Canonical path of a descriptor (/proc/self/fd). Length, or a negative errno; -ENAMETOOLONG. */
long handle_path(int fd, char *ret, size_t n);

/* "/proc/self/fd/N" of a descriptor. Returns ret. */
const char *handle_link(int fd, char ret[static 32]);
