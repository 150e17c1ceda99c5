/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Heal: write the newest live payload of each byte into the file again, from the lane. */

#include "pool/file.h"

/*
 * Under the file's lock: walks [tail, head), writes for each byte of this file its newest live payload
 * (records at or above the newest FENCE), newest first, so that no reader sees an older one. Does not
 * sync. Copies and CRC-checks each payload before it is written; if the daemon trims underneath, begins
 * anew at the new tail (what lay below is durable). Scratch memory by mmap.
 * Returns 0 or a negative errno (-EBADMSG: a live record is damaged; nothing after it was written).
 * A TOUCH first as file_write does.
 */
int heal_locked(struct session *s, const struct caller *who, struct file_ref *r);
