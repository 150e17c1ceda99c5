/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* losefs as FUSE sees it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUSE_USE_VERSION 35
#include <fuse_lowlevel.h>

struct ops_state {
	bool dead;    /* the power is off: every call fails with EIO */
	bool badsync; /* every sync fails with EIO, and nothing is durable by it */
	unsigned long writes, syncs;
	uint8_t uuid[16];
};

extern struct ops_state ops_state;
extern const struct fuse_lowlevel_ops losefs_ops;

/*
 * libfuse of Debian 12 does not know FUSE_STATX, which alone carries a birth time. True: the request in buf
 * was one and has been answered.
 */
bool ops_statx(int fd, const void *buf, size_t n);
