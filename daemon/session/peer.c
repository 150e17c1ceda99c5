/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/peer.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "daemon/log.h"
#include "daemon/session/server.h"

struct peer *peer_add(struct server *s, uint32_t uid)
{
	struct peer *p = s->peers;

	while (p && p->uid != uid)
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		p->uid = uid;
		p->next = s->peers;
		s->peers = p;
	}
	if (p->connections >= SERVER_PEER_CONNECTIONS) {
		if (!p->full)
			log_msg(LOG_WARNING, NULL,
				"user %u has %u connections: more are refused, those processes go "
				"on without pmemlogd",
				uid, p->connections);
		p->full = true;
		return NULL;
	}
	p->connections++;
	return p;
}

/* Frees users without connections. Acquire: a thread that counted itself out is done with p. */
static void sweep(struct server *s)
{
	struct peer **at = &s->peers;

	while (*at) {
		struct peer *p = *at;

		if (p->connections || atomic_load_acquire(&p->closing)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
	}
}

void peer_remove(struct server *s, struct peer *p)
{
	p->connections--;
	p->full = p->full && p->connections > SERVER_PEER_CONNECTIONS / 2;
	if (p->connections == 0)
		sweep(s);
}

bool peer_may_pass(const struct peer *p)
{
	return atomic_load_acquire(&p->closing) < PEER_CLOSING_MAX;
}

void peers_deinit(struct server *s)
{
	sweep(s);
}
