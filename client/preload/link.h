/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The connection to the daemon. All under the attach lock (page.h), raw system calls only. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/wire.h"

/*
 * Connects and says HELLO, if that is not done yet. want_lane: with descriptors, on a new connection.
 * ret_fds[2] get them (control, lane) or -1. *ret is the reply.
 * Returns 0 (connected, hello answered with status 0), 1 (was connected already; *ret untouched), a
 * negative errno that the daemon answered (-EBUSY, -EACCES, -EPROTO, -ENOSPC ...), or -ETIMEDOUT when
 * there is no daemon or no answer (100 ms, later while the outage lasts 10 ms; 5 s once it said
 * that it is at work).
 */
int link_hello(bool want_lane, struct wire_hello_reply *ret, int ret_fds[2]);

/* Registers a file: 0, a negative errno from the daemon, -ETIMEDOUT as above (1 s at work), or -EPIPE: the
 * connection was broken (the daemon ended; try once more). */
int link_register(int fd, const char *path, struct wire_register_reply *ret);

/* Drops the connection (an answer did not fit). */
void link_close(void);

/* In a forked child, before it owns its page: the parent's connection is closed here. */
void link_after_fork(void);
