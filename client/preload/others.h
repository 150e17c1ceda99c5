/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Other descriptors of one inode in this process: opened under another name, inherited, by libc itself. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum others_kind {
	OTHERS_WRITER, /* writes, and is in no description of the table: its writes leave no record */
	OTHERS_ANY,    /* any that may stand behind a record lock (POSIX) of the process */
	OTHERS_KEPT,   /* one of the shim's own (desc_keep) */
	OTHERS_RING, /* an io_uring, whatever the file: its requests go by number and leave no record */
	OTHERS_PAST, /* OTHERS_WRITER or OTHERS_RING */
};

/*
 * A descriptor of (dev, ino) of that kind, not `except`, or -1. It walks /proc/self/fd (where that cannot be
 * opened, the numbers below the limit): tens of microseconds, for opens and renames only. Raw calls.
 */
int others_find(uint64_t dev, uint64_t ino, int except, enum others_kind kind);

/* True if the process has a shared, writable mapping of the file that was made while the file was none of
 * ours. */
bool others_mapped(uint64_t dev, uint64_t ino);

/* True if one for reading lies between addr and addr + n. */
bool others_mapped_at(uint64_t dev, uint64_t ino, const void *addr, size_t n);

/* A shared writable mapping of a file that is none of ours is about to be made. */
void others_note_mapping(void);
