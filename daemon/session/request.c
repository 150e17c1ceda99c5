/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/request.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomic.h"
#include "daemon/session/connection.h"
#include "daemon/session/reply.h"
#include "daemon/session/server.h"

struct request *request_new(struct connection *c, uint16_t type, uint64_t id, uint32_t n)
{
	struct request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->parts = calloc(n, sizeof(*r->parts));
	if (!r->parts) {
		free(r);
		return NULL;
	}
	r->server = c->server;
	r->connection = c;
	r->type = type;
	r->id = id;
	r->n = n;
	for (uint32_t i = 0; i < n; i++) {
		r->parts[i].request = r;
		r->parts[i].d.fd = -1;
		r->parts[i].d.control_fd = -1;
		r->parts[i].d.lane_fd = -1;
		r->parts[i].d.out_fd = -1;
	}
	return r;
}

struct request *request_cancel(struct request *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		free(r->parts[i].d.data);
	free(r->parts);
	free(r);
	return NULL;
}

/* The worker's thread. */
static void on_done(struct domain_request *d)
{
	struct request_part *part = d->arg;

	completion_post(&part->request->server->completion, &part->node);
}

void request_submit(struct request *r)
{
	struct connection *c = r->connection;
	struct server *s = r->server;
	uint32_t n = r->n;

	r->next = c->requests;
	if (r->next)
		r->next->prev = r;
	c->requests = r;
	r->left = n;
	s->outstanding++;
	connection_begin(c);
	/* Completions come through the event loop: r cannot go before this function has ended. */
	for (uint32_t i = 0; i < n; i++) {
		struct request_part *part = &r->parts[i];

		part->d.done = on_done;
		part->d.arg = part;
		domain_submit(s->domains, part->uid, part->name, &part->d);
	}
}

static void unlink_request(struct request *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		r->connection->requests = r->next;
	if (r->next)
		r->next->prev = r->prev;
	r->next = r->prev = NULL;
}

void request_orphan(struct request *r)
{
	unlink_request(r);
	r->connection = NULL;
	/* Relaxed: the worker looks again and again. */
	for (uint32_t i = 0; i < r->n; i++)
		atomic_store_relaxed(&r->parts[i].d.gone, true);
}

static void request_free(struct request *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		struct domain_request *d = &r->parts[i].d;

		/* made by the worker for the reply: control and lane file are ours to close */
		if (d->control_fd >= 0)
			(void)close(d->control_fd);
		if (d->lane_fd >= 0)
			(void)close(d->lane_fd);
		if (d->out_fd >= 0)
			(void)close(d->out_fd);
		free(d->data);
		json_object_put(d->report);
	}
	r->server->outstanding--;
	free(r->parts);
	free(r);
}

void request_completed(struct completion_node *node, void *server)
{
	struct request_part *part =
		(struct request_part *)(void *)((char *)node - offsetof(struct request_part, node));
	struct request *r = part->request;
	struct connection *c = r->connection;

	(void)server;
	if (--r->left > 0)
		return;
	if (c) {
		unlink_request(r);
		connection_end(c);
		if (r->type == WIRE_LOG_APPEND)
			c->appends--;
		if (!reply_request(c, r))
			connection_free(c);
	} else if (r->type == WIRE_HELLO && !r->server->stopping) {
		/* served for a client that went meanwhile */
		domain_hangup(r->server->domains, part->uid, part->name);
	}
	request_free(r);
}
