/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The process's surroundings, before any thread. */

#include "daemon/config.h"

/* umask 077, locale C, no SIGPIPE, as many descriptors as allowed. Cannot fail. */
void limits_set(void);

/*
 * Makes the folders that tmpfiles.d would have made, if they are missing: run_dir and run_dir/control
 * (0755), run_dir/bypass (1777), state_dir (0700). A folder that is there is left as it is, but must
 * be a folder of root or of our own user that nobody else can write (bypass: with the sticky bit).
 * Returns 0, or a negative errno with words in ret_error (n bytes).
 */
int limits_make_folders(const struct config *c, char *ret_error, unsigned n);
