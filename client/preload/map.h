/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdio.h>

/* fdopen of a descriptor that may be a rule file's: bypass for good first. libc's convention. */
FILE *map_fdopen(int fd, const char *mode);
