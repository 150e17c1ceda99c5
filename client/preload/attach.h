/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* From a process with rules to a session: through the daemon, or through the control folder. */

#include "client/preload/page.h"

/* Sessions of this process; [0, count) are complete and stay. Acquire by attach_session_at. */
struct session *attach_session_at(uint32_t index);

/* Index of the newest session, or -1. */
int attach_newest(void);

/*
 * Makes sure that this process has a slot in session `index` (a forked child takes its own). 0, or a
 * negative errno: -ESTALE (control file closed: attach anew), -EMFILE (no free slot). No lock needed
 * outside; takes the attach lock when there is something to do.
 */
int attach_slot(uint32_t index, const struct caller *who);

/*
 * A session for this process, under the attach lock: the one it has, else through the socket, else
 * through the control folder. Returns its index, -EBUSY (the domain is held or quarantined: files with
 * our mark stay closed), or another negative errno: none to be had now.
 */
int attach_locked(void);

/* Under the attach lock: a connection for registering in session `index`. 0 or a negative errno. */
int attach_connection(uint32_t index);

/* attach_without_daemon.c: finds a control file of our domain with a living session in it and opens
 * it and its lane. 0 and the two descriptors, or a negative errno. */
int attach_find_control(int *ret_control, int *ret_lane);
