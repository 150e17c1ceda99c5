/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/report.h"

#include <inttypes.h>

#include <json-c/json.h>

#include "client/ctl/ctl.h"
#include "daemon/log.h"

static const char *text_of(struct json_object *o, const char *name, char *buf, size_t n)
{
	struct json_object *m;

	buf[0] = '\0';
	if (json_object_object_get_ex(o, name, &m))
		log_printable(buf, n, json_object_get_string(m));
	return buf;
}

static uint64_t number_of(struct json_object *o, const char *name)
{
	struct json_object *m;

	return json_object_object_get_ex(o, name, &m) ? json_object_get_uint64(m) : 0;
}

static void print_file(FILE *out, struct json_object *f)
{
	char path[512], row[256], action[64];

	text_of(f, "path", path, sizeof(path));
	text_of(f, "row", row, sizeof(row));
	text_of(f, "action", action, sizeof(action));
	(void)fprintf(out, "  %-12s %s%s%s%s\n", action, path, *row ? "  (" : "", row,
		      *row ? ")" : "");
}

void report_print(FILE *out, const char *document, bool json)
{
	struct json_object *o = json ? NULL : json_tokener_parse(document);
	struct json_object *files;
	char domain[CTL_DOMAIN_MAX], outcome[64], reason[512], user[64], bytes[32];

	if (!o || !json_object_is_type(o, json_type_object)) {
		(void)fprintf(out, "%s\n", document);
		json_object_put(o);
		return;
	}
	text_of(o, "reason", reason, sizeof(reason));
	(void)fprintf(out, "%s/%s: %s%s%s; %" PRIu64 " records, %s\n",
		      ctl_user(user, sizeof(user), (uint32_t)number_of(o, "uid")),
		      text_of(o, "domain", domain, sizeof(domain)),
		      text_of(o, "outcome", outcome, sizeof(outcome)), *reason ? ": " : "", reason,
		      number_of(o, "records"),
		      ctl_bytes(bytes, sizeof(bytes), number_of(o, "live_bytes")));
	if (json_object_object_get_ex(o, "files", &files) &&
	    json_object_is_type(files, json_type_array))
		for (size_t i = 0; i < json_object_array_length(files); i++)
			print_file(out, json_object_array_get_idx(files, i));
	json_object_put(o);
}
