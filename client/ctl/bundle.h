/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Sections of the support report: name and text, or name and document. */

#include <json-c/json.h>

struct config;

struct bundle {
	struct json_object *sections; /* in the order in which they are shown */
};

void bundle_put(struct bundle *b, const char *name, const char *text);
/* What a program writes to standard output; why it could not be run, otherwise. */
void bundle_command(struct bundle *b, const char *name, const char *const *argv);

/* ---- bundle_files.c */

/* The configuration as it stands, the rules, the databases' drop-ins that name pmemlogd. */
void bundle_configuration(struct bundle *b, const char *config_path); /* NULL: the default one */
/* `pool verify`, superblock and lane headers in hexadecimal, the pool's folder and state, what is kept of
 * quarantines (names alone). */
void bundle_pool(struct bundle *b, const struct config *config);
/* Memory devices, mounts, and which processes have the library. */
void bundle_system(struct bundle *b);
