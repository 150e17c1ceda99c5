/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The lane lock for those who map the lane: puts right what a dead owner left. */

#include "pool/session.h"

/* 0 or a negative errno of lock_acquire. After an owner died: the header at head is zeroed and
 * durable, notes and live_files are counted anew. */
int lane_lock(struct session *s, const struct caller *who);
void lane_unlock(struct session *s);
