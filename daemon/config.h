/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * The daemon's configuration. Keys: config_keys.def, pmemlogd.conf(5). Filled once, then constant, but
 * for config_apply: a thread other than the event loop's reads the fields that a reload may change
 * (config_keys.def) through config_get.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

#define CONFIG_DEFAULT_PATH "/etc/pmemlogd/pmemlogd.conf"

struct config {
	char *pool;   /* directory */
	bool emulate; /* memory that does not survive power loss is accepted */
	char *run_dir;
	char *socket;
	char *state_dir;
	uint64_t lane_size_bytes; /* ring of a new lane */
	uint64_t bypass_size_bytes;
	bool changed_lines; /* control files made from now on have images */
	uint64_t destage_age_ns;
	uint64_t reconnect_timeout_ns;
	uint64_t clock_wait_ns;
	char **allow_users;  /* NULL-terminated; "*": everybody */
	char **allow_groups; /* NULL-terminated */
	char **trust_fs;     /* NULL-terminated file system type names */
	int log_level;	     /* syslog priority: 3 err .. 7 debug */

	struct config_retired
		*retired; /* lists that a reload replaced; readers may still have them */
};

/* A field that a reload may change, as a worker reads it. Acquire: pairs with the release store of
 * config_apply, so that a list is whole when its pointer is seen. */
#define config_get(c, field) atomic_load_acquire(&(c)->field)

/*
 * Loads a file over the defaults; path NULL: the defaults alone. The file must belong to root or to
 * our own user and must not be writable by anybody else. On failure writes "FILE:LINE: reason" to
 * ret_error (n bytes) and returns -EINVAL (content), -EPERM (owner or mode) or a negative errno
 * (file). Owned by the caller: config_free.
 */
int config_load(struct config **ret, const char *path, char *ret_error, unsigned n);

/* The same from memory (size bytes, need not be terminated); name stands for the file in errors. */
int config_parse(struct config **ret, const char *name, const char *text, size_t size,
		 char *ret_error, unsigned n);

/*
 * Takes over from fresh what a reload may change. Calls each(arg, key, applied) for every key whose
 * value differs; applied false: it takes a restart. fresh stays with the caller, who frees it. One
 * thread at a time; readers: config_get.
 */
void config_apply(struct config *c, struct config *fresh,
		  void (*each)(void *arg, const char *key, bool applied), void *arg);

struct config *config_free(struct config *c);

/* Prints the keys with default and meaning, for --help. */
void config_print_keys(void);
