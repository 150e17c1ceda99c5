/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Which files of a program the preload library would take: by the library's own code. One thread. */

#include <stdbool.h>

/*
 * Reads ROOT/etc/pmemlogd/preload.d (or `folder`, if not NULL) as the library would in a program whose file
 * is called `program`. Replaces what was read before. Returns how many patterns of paths apply to it; what
 * is wrong with a file is told on stderr.
 */
unsigned rules_load(const char *root, const char *folder, const char *program);

/* True if a rule that was loaded takes the file of this canonical, absolute path. */
bool rules_match(const char *path);
