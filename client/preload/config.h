/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Which files of which programs: rules (preload.d), and the names that the environment gives. */

#include <stdbool.h>
#include <stddef.h>

#include "abi/control.h"

#define SHIM_PATH_MAX 1536 /* bytes of a path that can match a rule; longer ones never do */

/* Constant after the constructor. */
struct shim_config {
	char socket[108]; /* sun_path */
	char folder[108]; /* its directory: control/ and bypass/ lie there */
	char domain
		[CTL_DOMAIN_MAX]; /* PMEMLOGD_DOMAIN, else the rule's, else the unit's, else "default" */
	char program[64];	  /* base name of the executable */
};
extern struct shim_config config;

/*
 * Reads the rules that name this program. Constructor. False: none does (or none can be read), the
 * library stays inert. May allocate (inih).
 */
bool config_load(void);

/* True if a rule takes the file with this canonical, absolute path. */
bool config_match(const char *path);

/* True if a file with this last path component might match; `path` is as the program gave it. */
bool config_may_match(const char *path);

/*
 * glob(7) on a whole string, as fnmatch without flags: *, ?, [a-z], [!a-z], backslash; `*' matches '/'
 * and a leading dot. Allocates nothing, knows no locale (bytes).
 */
bool glob_match(const char *pattern, const char *text);
