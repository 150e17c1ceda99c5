/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/document.h"
#include "daemon/log.h"

static const char *const names[] = { "ok", "note", "warning", "fault" };

void advice_add(struct json_object *list, enum advice a, const char *id, const char *remedy,
		const char *format, ...)
{
	struct json_object *o = json_object_new_object();
	char text[1024], printable[1024];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_printable(printable, sizeof(printable), text);
	doc_put_text(o, "id", id);
	doc_put_text(o, "severity", names[a]);
	doc_put_text(o, "text", printable);
	doc_put_text(o, "remedy", remedy);
	(void)json_object_array_add(list, o);
}

enum advice advice_worst(struct json_object *list)
{
	enum advice worst = ADVICE_OK;

	for (size_t i = 0; i < doc_count(list); i++) {
		char severity[16];

		(void)doc_text(json_object_array_get_idx(list, i), "severity", severity,
			       sizeof(severity));
		for (enum advice a = ADVICE_OK; a <= ADVICE_FAULT; a++)
			if (strcmp(severity, names[a]) == 0 && a > worst)
				worst = a;
	}
	return worst;
}

void advice_print(struct json_object *list, bool all)
{
	char id[64], severity[16], text[1024], remedy[1024];

	for (size_t i = 0; i < doc_count(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		(void)doc_text(o, "severity", severity, sizeof(severity));
		if (!all && strcmp(severity, names[ADVICE_OK]) == 0)
			continue;
		printf("%-8s %s: %s\n", severity, doc_text(o, "id", id, sizeof(id)),
		       doc_text(o, "text", text, sizeof(text)));
		if (*doc_text(o, "remedy", remedy, sizeof(remedy)))
			printf("         -> %s\n", remedy);
	}
}
