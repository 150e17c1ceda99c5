/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Calls on metadata that no libc of ours exports: a program can make them by syscall(2) alone. */

#include <stdbool.h>

/* The same numbers on every machine; younger than the headers of Debian 12. */
#define META_fchmodat2	   452 /* (dir, path, mode, flags), Linux 6.6 */
#define META_setxattrat	   463 /* (dir, path, flags, name, args, size), Linux 6.13 */
#define META_removexattrat 466 /* (dir, path, flags, name), Linux 6.13 */
#define META_file_setattr  469 /* (dir, path, attributes, size, flags), Linux 6.17 */

/*
 * True if n is one of these: the call has been made, TOUCH and all for a registered file, and *ret is its result
 * as syscall returns it (-1 with errno). Any thread.
 */
bool meta_by_number(long n, const long arg[6], long *ret);
