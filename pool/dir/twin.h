/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What lies twice: superblock and catalog entries. A put writes one copy, drains, then the other: a cut
 * leaves at least one valid copy, and after a whole put a flipped bit in either costs nothing.
 */

#include <stddef.h>
#include <stdint.h>

struct twin_layout {
	size_t bytes;		/* of one copy; a multiple of 64 */
	size_t crc_offset;	/* u32, CRC32C of the copy with this field zero */
	size_t sequence_offset; /* u64 */
};

/*
 * Reads the valid copy with the higher sequence into ret. scratch: another `bytes` bytes. Survives
 * SIGBUS (an unreadable copy is a damaged one). Returns 0; -ENOENT: never written (both zero, or one
 * zero and the other torn: the first put did not end); -EBADMSG: both damaged.
 * ret_first (may be NULL): 0 or 1, the copy that the next put writes first: a damaged one, else the older.
 */
int twin_read(const struct twin_layout *t, const uint8_t *a, const uint8_t *b, void *ret,
	      void *scratch, int *ret_first);

/*
 * Writes image (its sequence and CRC are set here) to both copies. scratch: 2 x bytes.
 * Persist order: both copies as they stand (a killed writer may not have drained one); the damaged or older copy, drain: the new state is the one that counts; the other copy,
 * drain: it also survives the loss of either. Returns 0 or -EFAULT (unwritable memory).
 */
int twin_write(const struct twin_layout *t, uint8_t *a, uint8_t *b, void *image, void *scratch);
