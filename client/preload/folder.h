/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

/* What getdents64(2) fills; libc's readdir would allocate. */
struct linux_dirent64 {
	uint64_t d_ino;
	int64_t d_off;
	unsigned short d_reclen; /* bytes to the next one */
	unsigned char d_type;
	char d_name[];
};
