/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What a verb has found and what to do about it: a list of {id, severity, text, remedy}. */

#include <stdbool.h>

#include <json-c/json.h>

enum advice {
	ADVICE_OK,	/* looked at, and good */
	ADVICE_NOTE,	/* to be known; no fault */
	ADVICE_WARNING, /* works, and not as well as it could: exit 1 */
	ADVICE_FAULT,	/* does not work, or is not durable: exit 1 */
};

/* remedy: the one thing to do, "" where there is none. id: stable, for programs. */
void advice_add(struct json_object *list, enum advice a, const char *id, const char *remedy,
		const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The worst of them; ADVICE_OK for an empty list. */
enum advice advice_worst(struct json_object *list);

/* For people, on stdout; those that are good only with `all`. */
void advice_print(struct json_object *list, bool all);
