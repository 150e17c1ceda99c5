/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One record: is it valid where it stands? */

#include <stdint.h>

#include "pool/lane.h"

/*
 * Copies the record at `position` out of the lane and checks it: type and lengths in bounds, position
 * as it stands and in [tail, tail + ring), incarnation, CRC of header
 * and payload (PAD: header only). The chain is not checked here (walk does). Returns 0 and *ret (a private
 * copy), or -EBADMSG. Reads are plain: the caller guards against SIGBUS (guard.h).
 */
int record_check(const struct lane *l, uint64_t position, uint64_t tail, struct record_header *ret);

/*
 * Copies the payload of a checked record into dst (record->length bytes) and verifies that what was
 * copied still has the record's CRC: 0 or -EBADMSG (overwritten meanwhile, or damaged).
 */
int record_payload(const struct lane *l, const struct record_header *record, void *dst);
