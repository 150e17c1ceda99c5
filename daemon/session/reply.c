/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/wire.h"
#include "base/cleanup.h"
#include "base/overflow.h"
#include "daemon/log.h"
#include "daemon/session/check.h"
#include "daemon/session/connection.h"
#include "daemon/session/request.h"

/* The document as a memory file that its reader cannot be cheated with: -1 on failure. */
static int document_fd(struct json_object *document)
{
	size_t n, at = 0;
	const char *text = json_object_to_json_string_length(
		document, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
	cleanup_close int fd = memfd_create("pmemlogd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (!text || fd < 0)
		return -1;
	while (at < n) {
		ssize_t put = write(fd, text + at, n - at);

		if (put < 0)
			return -1;
		at += (size_t)put;
	}
	if (lseek(fd, 0, SEEK_SET) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -1;
	return take_fd(fd);
}

static void set_text(char text[WIRE_TEXT], const char *from)
{
	(void)snprintf(text, WIRE_TEXT, "%s", from ? from : "");
}

bool reply_text(struct connection *c, uint16_t type, uint64_t id, int status, uint32_t exit_code,
		const char *text, struct json_object *document)
{
	struct wire_reply body = { .exit = exit_code };
	cleanup_close int fd = -1;

	set_text(body.text, text);
	if (document) {
		fd = document_fd(document);
		if (fd < 0) {
			status = -ENOMEM;
			body.exit = 1;
			set_text(body.text, "no memory for the answer; try again");
		}
	}
	return connection_send(c, type, WIRE_REPLY, id, status, &body, sizeof(body), &fd,
			       fd >= 0 ? 1 : 0);
}

bool reply_pending(struct connection *c, uint16_t type, uint64_t id)
{
	return connection_send(c, type, WIRE_PENDING, id, 0, NULL, 0, NULL, 0);
}

bool reply_refused(struct connection *c, uint16_t type, uint64_t id, int status, const char *text)
{
	struct wire_hello_reply hello = { .version = CTL_VERSION };
	struct wire_register_reply reg = { 0 };
	struct wire_log_reply log = { 0 };
	struct wire_log_data data = { 0 };

	if (type == WIRE_LOG_READ) {
		set_text(data.text, text);
		return connection_send(c, type, WIRE_REPLY, id, status, &data, sizeof(data), NULL,
				       0);
	}
	if (wire_is_log(type)) {
		set_text(log.text, text);
		return connection_send(c, type, WIRE_REPLY, id, status, &log, sizeof(log), NULL, 0);
	}
	if (type == WIRE_REGISTER) {
		set_text(reg.text, text);
		return connection_send(c, type, WIRE_REPLY, id, status, &reg, sizeof(reg), NULL, 0);
	}
	set_text(hello.text, text);
	return connection_send(c, type, WIRE_REPLY, id, status, &hello, sizeof(hello), NULL, 0);
}

static bool reply_hello(struct connection *c, const struct request *r)
{
	const struct request_part *part = r->parts;
	const struct domain_request *d = &part->d;
	struct wire_hello_reply body = {
		.version = CTL_VERSION,
		.lane = d->lane,
		.incarnation = d->incarnation,
	};
	const int fds[2] = { d->control_fd, d->lane_fd };
	/* mode: WIRE_WANT_LANE was asked for */
	bool with_fds = d->status == 0 && d->mode && fds[0] >= 0 && fds[1] >= 0;

	set_text(body.text, d->text);
	if (d->status == 0) {
		memcpy(c->domain, part->name, sizeof(c->domain));
		c->attached = true;
	}
	return connection_send(c, r->type, WIRE_REPLY, r->id, d->status, &body, sizeof(body), fds,
			       with_fds ? 2 : 0);
}

static bool reply_register(struct connection *c, const struct request *r)
{
	const struct domain_request *d = &r->parts->d;
	struct wire_register_reply body = { .entry = d->entry, .state = d->state, .id = d->id };

	set_text(body.text, d->text);
	return connection_send(c, r->type, WIRE_REPLY, r->id, d->status, &body, sizeof(body), NULL,
			       0);
}

static bool reply_read(struct connection *c, const struct request *r)
{
	const struct domain_request *d = &r->parts->d;
	struct wire_log_data body = d->log_data;
	size_t n = d->status == 0 ? d->data_length : 0;
	uint8_t *whole = malloc(sizeof(body) + n);
	bool sent;

	if (!whole)
		return reply_refused(c, r->type, r->id, -ENOMEM,
				     "pmemlogd is out of memory; try again");
	body.length = (uint32_t)n;
	body.durable = d->log_reply.durable;
	set_text(body.text, d->text);
	memcpy(whole, &body, sizeof(body));
	if (n)
		memcpy(whole + sizeof(body), d->data, n);
	sent = connection_send(c, r->type, WIRE_REPLY, r->id, d->status, whole, sizeof(body) + n,
			       NULL, 0);
	free(whole);
	return sent;
}

bool reply_log(struct connection *c, const struct request *r)
{
	const struct domain_request *d = &r->parts->d;
	struct wire_log_reply body = d->log_reply;

	if (r->type == WIRE_LOG_READ)
		return reply_read(c, r);
	set_text(body.text, d->text);
	return connection_send(c, r->type, WIRE_REPLY, r->id, d->status, &body, sizeof(body),
			       &d->out_fd, d->out_fd >= 0 ? 1 : 0);
}

/* LOG_LIST: one list of all parts. Owned by the caller. */
static struct json_object *merge_lists(const struct request *r)
{
	struct json_object *root = json_object_new_object(), *all = json_object_new_array();

	for (uint32_t i = 0; i < r->n; i++) {
		struct json_object *list = r->parts[i].d.report;
		size_t n = list ? json_object_array_length(list) : 0;

		for (size_t k = 0; k < n; k++)
			json_object_array_add(all,
					      json_object_get(json_object_array_get_idx(list, k)));
	}
	json_object_object_add(root, "logs", all);
	return root;
}

/* FLUSH, GATE, RECOVER, LOG_LIST: the worst of all parts, and the words of each that has something to say. */
static bool reply_parts(struct connection *c, const struct request *r)
{
	struct json_object *report = NULL;
	char text[WIRE_TEXT] = "";
	uint32_t worst = 0;
	size_t at = 0;
	int status = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		const struct request_part *part = &r->parts[i];
		int put;

		if (status == 0)
			status = part->d.status;
		worst = max_of(worst, part->d.exit_code);
		if (part->d.status < 0 && worst == 0)
			worst = 1;
		if (part->d.report)
			report = part->d.report;
		if (!part->d.text[0] || at >= sizeof(text) - 1)
			continue;
		put = r->n == 1 ? snprintf(text + at, sizeof(text) - at, "%s", part->d.text)
				: snprintf(text + at, sizeof(text) - at, "%s%s: %s", at ? "\n" : "",
					   part->name, part->d.text);
		if (put > 0)
			at += (size_t)put;
	}
	if (r->type == WIRE_LOG_LIST) {
		struct json_object *all = merge_lists(r);
		bool sent = reply_text(c, r->type, r->id, status, worst, text, all);

		json_object_put(all);
		return sent;
	}
	return reply_text(c, r->type, r->id, status, worst, text, report);
}

bool reply_request(struct connection *c, struct request *r)
{
	switch ((enum wire_type)r->type) {
	case WIRE_HELLO:
		return reply_hello(c, r);
	case WIRE_REGISTER:
		return reply_register(c, r);
	case WIRE_STATUS:
	case WIRE_FLUSH:
	case WIRE_GATE:
	case WIRE_RECOVER:
	case WIRE_LOG_LIST:
	case WIRE_FEATURES:
		break;
	case WIRE_LOG_OPEN:
	case WIRE_LOG_APPEND:
	case WIRE_LOG_READ:
	case WIRE_LOG_TRIM:
	case WIRE_LOG_SYNC:
	case WIRE_LOG_STAT:
	case WIRE_LOG_SEGMENT:
	case WIRE_LOG_REMOVE:
		return reply_log(c, r);
	}
	return reply_parts(c, r);
}
