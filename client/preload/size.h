/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <sys/types.h>

/* ftruncate under RULE F where the file is registered. 0 or a negative errno. */
long size_truncate(int fd, off_t length);

/* truncate to nothing, by name, of a rule's file. libc's convention. */
int size_truncate_path(const char *path);
