/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* SIGHUP: the configuration read again. */

#include "daemon/config.h"

/*
 * Loads path and takes over into c what a reload may change; the rest is logged as "needs a restart".
 * A file that is not good changes nothing and is logged. Returns how many keys were taken over, or a
 * negative errno. Event loop's thread.
 */
int reload_config(struct config *c, const char *path);
