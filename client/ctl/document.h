/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * JSON objects that verbs make and take apart. Reading: a member that is missing, or of another kind, is
 * "", 0, false or NULL, never a failure; o may be NULL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

void doc_put_text(struct json_object *o, const char *key, const char *text);
void doc_put_number(struct json_object *o, const char *key, uint64_t v);
void doc_put_bool(struct json_object *o, const char *key, bool v);
/* 16 bytes as 32 hexadecimal digits. */
void doc_put_uuid(struct json_object *o, const char *key, const uint8_t id[16]);

struct json_object *doc_member(struct json_object *o, const char *key);
/* Printable (log_printable) into buf of n bytes; returns buf. */
const char *doc_text(struct json_object *o, const char *key, char *buf, size_t n);
uint64_t doc_number(struct json_object *o, const char *key);
bool doc_true(struct json_object *o, const char *key);
/* Elements of a list; 0 where it is none. */
size_t doc_count(struct json_object *list);

/* One document on stdout, with line breaks. */
void doc_print(struct json_object *o);
