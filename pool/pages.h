/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Pages that a failed write-back has left behind. ext4 allocates blocks as unwritten and says "written"
 * when the write is done. Where it fails they stay unwritten, but the page's buffers are taken for mapped:
 * the same bytes written again and synced without an error go to the disk, and read as zeros after the
 * next boot. Only pages that are read in anew are mapped anew.
 */

#include <stdbool.h>
#include <stdint.h>

#include "pool/session.h"

/* After a good sync: has the file blocks within its size that the file system takes for unwritten? True for
 * preallocated ones, too. False where it cannot be told. Raw system calls. */
bool pages_unwritten(int fd);

/*
 * Syncs the file and drops its pages; what is written next is mapped anew. Under the file's lock, or a page
 * may become dirty in between and stay. Readers see what the disk has until the caller has written again.
 * 0, or the sync's error (nothing dropped).
 */
int pages_drop(struct session *s, int fd);
