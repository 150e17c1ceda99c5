/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The file that most cases write, and the bytes that they write to it. */

#include "tests/preload/say.h"

#define SHOWN (O_ACCMODE | O_APPEND | O_DIRECT | O_DSYNC | O_SYNC | O_NONBLOCK)

static char block[8192] __attribute__((aligned(4096)));

static inline int log_file(int flags)
{
	int fd;

	memset(block, 'b', sizeof(block));
	fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC | flags, 0640);
	MUST(fd >= 0);
	return fd;
}
