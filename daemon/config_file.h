/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Reads a configuration file once, after a look at whose it is. */

#include <stddef.h>

/*
 * Reads a regular file of at most 1 MiB that belongs to root or to our own user and that nobody else
 * can write. Owner and mode are those of the descriptor that is read, so there is no moment between
 * check and use. On failure writes "FILE:0: reason" to ret_error (n bytes) and returns -EPERM
 * (owner, mode), -EINVAL (not a regular file, too large) or a negative errno. *ret_text is terminated
 * and owned by the caller.
 */
int config_file_read(const char *path, char **ret_text, size_t *ret_size, char *ret_error,
		     unsigned n);
