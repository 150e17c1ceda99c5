/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Programs of the system that verbs ask: systemctl, journalctl. */

#include <stddef.h>

/*
 * Runs argv (argv[0] is looked for in PATH; NULL-terminated; nothing passes through a shell) with standard
 * input empty and standard error to /dev/null, and gives what it wrote to standard output in *ret (allocated, terminated; at most
 * `most` bytes, the rest is dropped). Ended by SIGKILL after timeout_ms. Returns its exit status (0 to 255),
 * -ENOENT (no such program), -ETIMEDOUT, or another negative errno; *ret is to be freed in every case.
 */
int command_run(const char *const *argv, size_t most, int timeout_ms, char **ret);
