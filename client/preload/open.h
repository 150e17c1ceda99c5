/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* open as the library makes it, for the other calls that open a file by name. */

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/types.h>

struct open_args {
	int dir; /* of a handle: a descriptor on its mount */
	const char *path;
	int flags;
	mode_t mode;
	const struct open_how *how;	  /* openat2; flags and mode stand above, too. Else NULL */
	const struct file_handle *handle; /* open_by_handle_at, in place of path. Else NULL */
};

enum open_probe {
	PROBE_MATCH,
	PROBE_OTHER,
	PROBE_NOTHING
};

/* What would be opened? Opens nothing: no truncation, no record locks lost. */
enum open_probe open_probe(const struct open_args *a);

/* Opens; a rule's file is taken over. libc's result convention. */
int open_any(const struct open_args *a);

/* openat2(2), by libc's name for it or by syscall. */
int open_how(int dir, const char *path, const struct open_how *how, size_t size);

/* A writable descriptor that libc has opened and the table does not know is a rule's file now (rename): its
 * writes leave no record, so the file is registered and goes to bypass for good. Nothing for other files. */
void open_named_now(int dir, const char *path);
