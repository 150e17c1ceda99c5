/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The bodies of replies. Each returns false when the connection is to be freed by the caller. */

#include <stdbool.h>
#include <stdint.h>

#include <json-c/json.h>

struct connection;
struct request;

/* All parts are done: the final reply for type and parts of r. Marks the connection attached after a
 * HELLO that succeeded. */
bool reply_request(struct connection *c, struct request *r);

/* struct wire_reply with a text; exit: exit code for pmemlogctl. document (may be NULL, stays with the
 * caller) goes along as a sealed memory file. */
bool reply_text(struct connection *c, uint16_t type, uint64_t id, int status, uint32_t exit_code,
		const char *text, struct json_object *document);

/* HELLO or REGISTER refused before a worker had it. */
bool reply_refused(struct connection *c, uint16_t type, uint64_t id, int status, const char *text);

/* WIRE_PENDING. */
bool reply_pending(struct connection *c, uint16_t type, uint64_t id);

/* Of a native log's message. */
bool reply_log(struct connection *c, const struct request *r);
