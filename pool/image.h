/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Image of a file's last written block, so that a rewrite of it logs only the 64-byte lines that it
 * changes (LINES). While it is valid this holds: the image is what recovery would make of these bytes
 * now, from the disk and the live records. A line that equals it needs no record.
 *
 * And all of the image is in live records, from a WRITE on. The disk may have more than they: the bytes of
 * a write that stands before its record may be written back, and then the power fails. Lines alone over that
 * would make a block that is neither the old one nor the new one, where a WRITE of it makes the old one. So
 * each destage step ends the images (space_mark), and append refuses LINES that come too late.
 *
 * Hence the bytes of a write go from the caller to the image, once, and from there to the file and to the
 * record: were the file written from the caller's memory, a thread that changes it underfoot could leave
 * a line in the image that the file's next sync does not make durable. The caller's memory is read before
 * the kernel has looked at it, so a pointer that write(2) would refuse with EFAULT is a SIGSEGV here; only
 * a file that was seen rewriting its blocks comes so far.
 *
 * All of it under the file's lock. Struck out before the real call, valid again after the record is
 * published; whatever else may change the file drops it: RULE F, heal, bypass, owner death, a failed
 * call. A process of an older version knows no images: its records leave their offset in the entry's
 * write_offset, its RULE F counts in rule_f, and both are compared.
 */

#include "pool/session.h"

#define IMAGE_MAP_RUNS (LINES_MAX / 2) /* most runs of changed lines: every other one */

/* One write on its way. */
struct image_write {
	struct ctl_image *image; /* NULL: keeps none */
	struct iovec iov[2];	 /* what to write: parts of the caller's memory, of the image */
	int iovcnt;
	uint64_t rule_f; /* hot's counter before the record that all of the image stands on */
	bool lines;	 /* payload says less than the whole write */
	struct iovec payload[1 + IMAGE_MAP_RUNS];
	int payload_count;
	uint32_t payload_bytes;
	uint8_t map[LINES_MAP_BYTES];
};

/*
 * Begins a write of `total` bytes at `offset` (the bytes of *iov, or of several, which get no image) to a
 * file of file_size bytes; strikes the image out. True: *ret tells what to write and to record. False:
 * as the caller gave it. ret->payload points into *ret. Reads the caller's memory.
 */
bool image_begin(const struct session *s, const struct ctl_file *f, const struct iovec *iov,
		 int iovcnt, uint64_t offset, uint64_t total, uint64_t file_size,
		 struct image_write *ret);

/* The record of all of it is published: the image is valid again. */
void image_keep(struct ctl_file *f, const struct image_write *w);

/* The file changes in a way that the image does not follow. */
void image_drop(const struct session *s, const struct ctl_file *f);
