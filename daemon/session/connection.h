/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One client. Event loop's thread only. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/wire.h"

struct server;
struct request;

struct connection {
	struct server *server;
	struct peer *peer;
	int fd;
	struct sd_event_source *source;
	uint32_t uid;
	pid_t pid;
	bool admin;   /* root or our own user */
	bool allowed; /* by allow_users, allow_groups */
	/* set by a HELLO that succeeded: the domain that this client registers files in */
	bool attached;
	char domain[CTL_DOMAIN_MAX];
	/* Whose log it used last: it counts there as a session, until it uses another's or ends. "": none */
	char logs[CTL_DOMAIN_MAX];
	uint32_t logs_uid;
	char program[64];
	struct request *requests; /* under way; they lose their connection when it goes */
	uint32_t outstanding;
	uint32_t appends; /* LOG_APPENDs that a worker has: a later one may not overtake them */
	struct connection *next, *prev;
};

/* Takes an accepted, non-blocking descriptor over; refuses (closes it) past SERVER_PEER_CONNECTIONS. */
void connection_new(struct server *s, int fd);

/* It uses a log of this domain from now on; NULL: of none. */
void connection_logs(struct connection *c, uint32_t uid, const char *domain);

/* Drops the client: his requests go on, their replies go nowhere. Frees c. */
void connection_free(struct connection *c);

/*
 * Sends one reply packet with up to 2 descriptors (they stay with the caller). A client whose socket
 * is full is not waited for. False: the connection is to be freed by the caller.
 */
bool connection_send(struct connection *c, uint16_t type, uint16_t kind, uint64_t request_id,
		     int status, const void *body, size_t n, const int *fds, unsigned n_fds);

/* One request more or less under way: at SERVER_OUTSTANDING nothing is read until one has ended. */
void connection_begin(struct connection *c);
void connection_end(struct connection *c);

/*
 * Closes a descriptor that came from a client. Not here: closing a file of a user-space file system
 * asks its server, which may be the client himself. A thread does it.
 */
void connection_close_received(struct connection *c, int fd);
