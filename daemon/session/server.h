/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The daemon's side of the socket. All of it runs in the event loop's thread. */

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "abi/wire.h"
#include "daemon/config.h"
#include "daemon/domain/domain.h"
#include "daemon/session/access.h"
#include "daemon/session/completion.h"

#define SERVER_PEER_CONNECTIONS 2048u /* of one uid; picked: twice the slots of a domain */
#define SERVER_PEER_DOMAINS	64u   /* of one uid; picked: a quarter of what a pool has */
#define SERVER_OUTSTANDING	16u   /* requests of one connection under way; picked */

struct connection;

/* Connections of one uid, so that one user cannot use up the descriptors of all. */
struct peer {
	uint32_t uid;
	uint32_t connections;
	uint32_t closing; /* descriptors that a thread of their own closes; atomic */
	bool full;	  /* told so already */
	struct peer *next;
};

struct server {
	sd_event *event;
	const struct config *config;
	struct domain_set *domains;
	struct access access;
	struct completion completion;
	int listen_fd;
	int spare_fd;	 /* given up to be able to refuse when descriptors run out */
	bool own_socket; /* made by us: removed at a clean stop */
	sd_event_source *listen_source;
	struct connection *connections;
	struct peer *peers;
	uint32_t outstanding;		  /* requests that a worker has */
	bool stopping;			  /* nothing is submitted any more */
	uint8_t packet[WIRE_LOG_MAX + 1]; /* one more: longer packets are noticed */
};

/*
 * Takes listen_fd over (a listening SOCK_SEQPACKET unix socket) and serves it in event. own_socket: the
 * path of config->socket is removed at server_free. event, config and domains outlive the server.
 * Returns 0 or a negative errno.
 */
int server_new(struct server **ret, sd_event *event, const struct config *config,
	       struct domain_set *domains, int listen_fd, bool own_socket);

/* After a reload: allow_users and allow_groups anew, for connections from now on. */
int server_reload(struct server *s);

/* First half of a stop: no new client, no new request (they get -ESHUTDOWN); replies still go out. */
void server_stop(struct server *s);

/* The domains are stopped: drops every connection. */
struct server *server_free(struct server *s);
