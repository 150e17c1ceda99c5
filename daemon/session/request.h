/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * A client's request that workers have: one part for each domain it goes to, one reply when all parts
 * are done. Event loop's thread, but for the hand-over in request.c.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/domain/domain.h"
#include "daemon/session/completion.h"

struct connection;
struct server;
struct request;

struct request_part {
	struct domain_request d; /* the worker's until done() */
	struct request *request;
	struct completion_node node;
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
};

struct request {
	struct server *server;
	struct connection *connection; /* NULL: the client is gone */
	uint16_t type;
	uint64_t id;
	uint32_t n, left; /* parts, and how many a worker still has */
	struct request_part *parts;
	struct request *next, *prev; /* of the connection */
};

/*
 * A request of n parts (n >= 1) on c, parts zeroed with fd -1; the caller fills kind, uid, name and
 * what the kind needs, then calls request_submit. NULL: no memory.
 */
struct request *request_new(struct connection *c, uint16_t type, uint64_t id, uint32_t n);

/* Before request_submit only: frees it; descriptors in the parts stay with the caller. */
struct request *request_cancel(struct request *r);

/* Hands all parts to their domains; r belongs to this module from now on. */
void request_submit(struct request *r);

/* The client is gone: the reply is thrown away. */
void request_orphan(struct request *r);

/* For server.c: each() of the completion queue. */
void request_completed(struct completion_node *node, void *server);
