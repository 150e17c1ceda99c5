/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The ways in which a program that knows nothing of pmemlogd reads a file. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared.h"

/* What one reader has open of one file, and room of its own to copy into. */
struct way {
	int fd, direct, copy;
	int pipe[2];
	const uint8_t *map;
	size_t map_bytes;
	uint8_t *aligned; /* for O_DIRECT */
};

/* Opens the file that is at `path` now. number: for the name of the copy. 0, or -1 with errno. */
int way_open(struct way *w, const char *path, size_t bytes, unsigned number);
void way_close(struct way *w);

/* Up to n bytes from `at` (a multiple of 4096; n too, at most 1 MiB) into buffer; what the file does not
 * have is zeros. Returns how many the file had, or -1 with errno. */
ssize_t way_read(struct way *w, enum mode mode, void *buffer, size_t n, off_t at);

/* The whole file by cp(1) into a copy, which is then read. As way_read. */
ssize_t way_cp(struct way *w, const char *path, void *buffer, size_t n);

extern const char *const mode_names[MODES];
