/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* From a file system's UUID to a mount of it. */

#include <stdint.h>

enum mount_outcome {
	MOUNT_OK = 0,
	MOUNT_NONE = 1,	 /* no mount of it in this namespace that can be reached */
	MOUNT_TWICE = 2, /* two different devices carry that UUID */
};

/*
 * Looks through /proc/self/mountinfo for the mounts whose file system has that UUID. Bind mounts and
 * subvolumes of one device are one; a mount that another one hides is not entered; network and kernel
 * file systems are not touched (their servers may hang). A writable mount is preferred. MOUNT_OK:
 * *ret_fd is an open descriptor on the mount. Returns enum mount_outcome or a negative errno.
 */
int mount_find(const uint8_t uuid[16], int *ret_fd);
