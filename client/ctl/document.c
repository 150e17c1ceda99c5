/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/document.h"

#include <stdio.h>

#include "daemon/log.h"
#include "pool/dir/files.h"

void doc_put_text(struct json_object *o, const char *key, const char *text)
{
	(void)json_object_object_add(o, key, json_object_new_string(text));
}

void doc_put_number(struct json_object *o, const char *key, uint64_t v)
{
	(void)json_object_object_add(o, key, json_object_new_uint64(v));
}

void doc_put_bool(struct json_object *o, const char *key, bool v)
{
	(void)json_object_object_add(o, key, json_object_new_boolean(v));
}

void doc_put_uuid(struct json_object *o, const char *key, const uint8_t id[16])
{
	char text[33];

	uuid_text(id, text);
	doc_put_text(o, key, text);
}

struct json_object *doc_member(struct json_object *o, const char *key)
{
	struct json_object *m = NULL;

	if (!o || !json_object_is_type(o, json_type_object))
		return NULL;
	(void)json_object_object_get_ex(o, key, &m);
	return m;
}

const char *doc_text(struct json_object *o, const char *key, char *buf, size_t n)
{
	struct json_object *m = doc_member(o, key);

	buf[0] = '\0';
	if (m)
		log_printable(buf, n, json_object_get_string(m));
	return buf;
}

uint64_t doc_number(struct json_object *o, const char *key)
{
	struct json_object *m = doc_member(o, key);

	return m ? json_object_get_uint64(m) : 0;
}

bool doc_true(struct json_object *o, const char *key)
{
	struct json_object *m = doc_member(o, key);

	return m && json_object_get_boolean(m);
}

size_t doc_count(struct json_object *list)
{
	return list && json_object_is_type(list, json_type_array) ? json_object_array_length(list)
								  : 0;
}

void doc_print(struct json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
}
