/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* File systems by the magic number of statfs. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILESYSTEM_EXT4	 INT64_C(0xef53)
#define FILESYSTEM_XFS	 INT64_C(0x58465342)
#define FILESYSTEM_BTRFS INT64_C(0x9123683e)
#define FILESYSTEM_TMPFS INT64_C(0x01021994)

/* Magic number of the file system behind fd and its name (or "type 0x...") in buf; negative errno. */
int64_t filesystem_type(int fd, char *buf, size_t n);

/*
 * True for ext4, xfs and btrfs, and for every type that trust_fs (NULL-terminated, may be NULL) names:
 * by its name in mountinfo if it is in our table, else by its magic number ("0xef53").
 */
bool filesystem_supported(int64_t type, const char *const *trust_fs);
