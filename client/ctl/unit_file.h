/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The text of a systemd unit file (systemd.syntax(7)). */

#include <stdbool.h>

/* Calls each(arg, section, key, value) for every assignment, continued lines joined, comments left out. A value
 * longer than 8 KiB is cut off. */
void unit_file_parse(const char *text,
		     void (*each)(void *arg, const char *section, const char *key,
				  const char *value),
		     void *arg);

/* Calls each(arg, word) for the words of a value, quotes taken away. inside: what a quote holds is given as
 * its words as well (sh -c "exec /usr/sbin/mariadbd ..."). */
void unit_file_words(const char *value, bool inside, void (*each)(void *arg, const char *word),
		     void *arg);
