/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/rules.h"

#include <stdio.h>

/*
 * The library's own reader, as a whole: a second one would not always agree. It reads for the program that it
 * is in, so its inside is needed. The daemon has a function of this name.
 */
#define config_load preload_config_load
#include "client/preload/config.c" // NOLINT

/* In the library this is one datagram to the journal. */
void shim_log(char priority, const char *what, const char *name)
{
	(void)priority;
	(void)fprintf(stderr, "pmemlogctl: %s: %s\n", name, what);
}

unsigned rules_load(const char *root, const char *folder, const char *program)
{
	char path[SHIM_PATH_MAX];

	pattern_count = 0;
	text_used = 0;
	rule_count = 0;
	memset(&config, 0, sizeof(config));
	if (strlen(program) >= sizeof(config.program))
		return 0;
	strcpy(config.program, program); /* NOLINT: length checked */
	(void)snprintf(path, sizeof(path), "%s%s", folder ? "" : root,
		       folder ? folder : RULES_FOLDER);
	/* A tree of its own may belong to whoever looks at it. */
	read_folder(path, *root || folder);
	return pattern_count;
}

bool rules_match(const char *path)
{
	return config_match(path);
}
