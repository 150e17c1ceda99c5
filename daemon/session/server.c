/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/server.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/session/connection.h"
#include "daemon/session/listener.h"
#include "daemon/session/peer.h"
#include "daemon/session/request.h"

int server_new(struct server **ret, sd_event *event, const struct config *config,
	       struct domain_set *domains, int listen_fd, bool own_socket)
{
	struct server *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->event = event;
	s->config = config;
	s->domains = domains;
	s->listen_fd = listen_fd;
	s->spare_fd = -1;
	s->own_socket = own_socket;
	r = access_build(&s->access, config);
	if (r == 0)
		r = completion_init(&s->completion, event, request_completed, s);
	if (r >= 0)
		r = listener_start(s);
	if (r < 0) {
		s->listen_fd = -1; /* stays with the caller */
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int server_reload(struct server *s)
{
	return access_build(&s->access, s->config);
}

void server_stop(struct server *s)
{
	s->stopping = true;
	listener_stop(s);
}

struct server *server_free(struct server *s)
{
	if (!s)
		return NULL;
	server_stop(s);
	/* last replies of requests that ended while the domains were stopped */
	if (s->completion.last)
		completion_drain(&s->completion);
	while (s->connections)
		connection_free(s->connections);
	access_deinit(&s->access);
	peers_deinit(s);
	/* A worker that hangs in a dead disk may still hand something back: it finds the queue. */
	if (s->outstanding > 0)
		return NULL;
	completion_deinit(&s->completion);
	free(s);
	return NULL;
}
