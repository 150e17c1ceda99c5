/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The daemon's configuration: filled once, then constant. Keys: config_keys.def, pmemlogd.conf(5). */

#include <stdbool.h>
#include <stdint.h>

struct config {
	char *pool;   /* directory */
	bool emulate; /* memory that does not survive power loss is accepted */
	char *run_dir;
	char *socket;
	char *state_dir;
	uint64_t lane_size_bytes; /* ring of a new lane */
	uint64_t bypass_size_bytes;
	uint64_t destage_age_ns;
	uint64_t reconnect_timeout_ns;
	uint64_t clock_wait_ns;
	char **allow_users;  /* NULL-terminated; "*": everybody */
	char **allow_groups; /* NULL-terminated */
	char **trust_fs;     /* NULL-terminated file system type names */
	int log_level;	     /* syslog priority: 3 err .. 7 debug */
};

/*
 * Loads a file over the defaults. On failure writes "FILE:LINE: reason" to ret_error (n bytes) and
 * returns -EINVAL (content) or a negative errno (file). Owned by the caller: config_free.
 */
int config_load(struct config **ret, const char *path, char *ret_error, unsigned n);
struct config *config_free(struct config *c);
