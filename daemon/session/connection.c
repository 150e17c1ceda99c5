/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/connection.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <systemd/sd-event.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/session/check.h"
#include "daemon/session/dispatch.h"
#include "daemon/session/peer.h"
#include "daemon/session/request.h"
#include "daemon/session/server.h"

#define CONNECTION_BATCH   16 /* packets of one client at one wake-up */
#define CONNECTION_FDS_MAX 4  /* taken with one packet; the kernel drops what does not fit */
#define CONNECTION_GROUPS  512

struct packet {
	size_t n;
	unsigned n_fds;
	int fds[CONNECTION_FDS_MAX];
	bool cut; /* longer than WIRE_LOG_MAX, or more descriptors than fit */
};

static void log_client(const struct connection *c, int priority, const char *what)
{
	log_msg(priority, c->attached ? c->domain : NULL, "client pid %d, user %u%s%s: %s", c->pid,
		c->uid, *c->program ? ", " : "", c->program, what);
}

/* ---- sending ------------------------------------------------------------------------------------- */

bool connection_send(struct connection *c, uint16_t type, uint16_t kind, uint64_t request_id,
		     int status, const void *body, size_t n, const int *fds, unsigned n_fds)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.type = type,
		.kind = kind,
		.request_id = request_id,
		.status = status,
		.length = (uint32_t)n,
	};
	struct iovec iov[2] = {
		{ .iov_base = &header, .iov_len = sizeof(header) },
		{ .iov_base = NULL, .iov_len = n },
	};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = n ? 2 : 1 };

	/* sendmsg does not write there; its type is shared with recvmsg */
	memcpy(&iov[1].iov_base, &body, sizeof(body));
	if (n_fds) {
		struct cmsghdr *cm;

		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n_fds * sizeof(int));
	}
	for (;;) {
		if (sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return true;
		if (errno != EINTR)
			break;
	}
	if (errno == EAGAIN)
		log_client(c, LOG_NOTICE, "dropped: it does not read its replies");
	return false;
}

/* ---- receiving ----------------------------------------------------------------------------------- */

static void take_descriptors(struct msghdr *m, struct packet *p)
{
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(m); cm; cm = CMSG_NXTHDR(m, cm)) {
		unsigned n;

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (unsigned)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (unsigned i = 0; i < n && p->n_fds < CONNECTION_FDS_MAX; i++)
			memcpy(&p->fds[p->n_fds++], CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
	}
}

/* One packet: 1, 0 (end), or a negative errno (-EAGAIN: nothing there). */
static int receive(struct connection *c, struct packet *p)
{
	struct server *s = c->server;
	struct iovec iov = { .iov_base = s->packet, .iov_len = sizeof(s->packet) };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(CONNECTION_FDS_MAX * sizeof(int))];
	} control;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t n;

	memset(p, 0, sizeof(*p));
	/* A user whose descriptors we still try to close gets none through: without room for them the
	 * kernel drops them itself, and the packet counts as cut. */
	if (!peer_may_pass(c->peer))
		m.msg_controllen = 0;
	n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	take_descriptors(&m, p);
	p->n = (size_t)n;
	p->cut = (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || p->n > WIRE_LOG_MAX;
	return n > 0 || p->n_fds > 0;
}

static void drop_descriptors(struct connection *c, struct packet *p)
{
	for (unsigned i = 0; i < p->n_fds; i++)
		connection_close_received(c, p->fds[i]);
	p->n_fds = 0;
}

/* False: the connection is to be freed. */
static bool handle_packet(struct connection *c, struct packet *p)
{
	struct wire_request request;
	const char *why = NULL;
	bool go_on;
	int r;

	r = wire_check(&request, c->server->packet, p->n, p->n_fds, &why);
	if (p->cut && r != -EPROTO) {
		why = "packet or list of descriptors cut off";
		r = -EPROTO;
	}
	if (r == -EPROTO) {
		log_client(c, LOG_WARNING, why);
		drop_descriptors(c, p);
		(void)connection_send(c, request.header.type, WIRE_REPLY, request.header.request_id,
				      -EPROTO, NULL, 0, NULL, 0);
		return false;
	}
	if (r == -EPROTONOSUPPORT)
		return dispatch_refuse_version(c, &request);
	/* dispatch takes the descriptor out when a worker gets it */
	go_on = dispatch(c, &request, p->n_fds ? &p->fds[0] : NULL);
	if (p->n_fds && p->fds[0] < 0)
		p->n_fds = 0;
	drop_descriptors(c, p);
	return go_on;
}

static int on_readable(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct connection *c = arg;
	struct packet p;

	(void)source;
	(void)fd;
	for (int i = 0; i < CONNECTION_BATCH && c->outstanding < SERVER_OUTSTANDING; i++) {
		int r = receive(c, &p);

		if (r == -EAGAIN || r == -EINTR)
			break;
		if (r <= 0 || !handle_packet(c, &p)) {
			connection_free(c);
			return 0;
		}
	}
	/* While nothing is read a hang-up is all there is to see. */
	if (c->outstanding >= SERVER_OUTSTANDING && (events & (EPOLLHUP | EPOLLERR)))
		connection_free(c);
	return 0;
}

void connection_begin(struct connection *c)
{
	c->outstanding++;
	if (c->outstanding == SERVER_OUTSTANDING)
		(void)sd_event_source_set_io_events(c->source, 0);
}

void connection_end(struct connection *c)
{
	if (c->outstanding == SERVER_OUTSTANDING)
		(void)sd_event_source_set_io_events(c->source, EPOLLIN);
	c->outstanding--;
}

/* ---- descriptors of clients ---------------------------------------------------------------------- */

struct closing {
	int fd;
	struct peer *peer;
};

static void *close_thread(void *arg)
{
	struct closing *closing = arg;

	(void)close(closing->fd);
	/* release: pairs with peer_may_pass, peers_sweep */
	(void)atomic_sub_seq(&closing->peer->closing, 1);
	free(closing);
	return NULL;
}

void connection_close_received(struct connection *c, int fd)
{
	struct closing *closing = malloc(sizeof(*closing));
	pthread_attr_t attr;
	pthread_t thread;
	bool started = false;

	if (closing && pthread_attr_init(&attr) == 0) {
		*closing = (struct closing){ .fd = fd, .peer = c->peer };
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		(void)pthread_attr_setstacksize(&attr, 64 * 1024);
		(void)atomic_add_seq(&c->peer->closing, 1);
		started = pthread_create(&thread, &attr, close_thread, closing) == 0;
		if (!started)
			(void)atomic_sub_seq(&c->peer->closing, 1);
		(void)pthread_attr_destroy(&attr);
	}
	if (!started) {
		free(closing);
		(void)close(fd);
	}
}

/* ---- life ---------------------------------------------------------------------------------------- */

/* Credentials as of connect(): 0, or a negative errno. */
static int identify(struct connection *c)
{
	struct ucred cred;
	socklen_t length = sizeof(cred);
	gid_t groups[CONNECTION_GROUPS];
	unsigned n = 0;

	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
		return -errno;
	length = sizeof(groups);
	/* ERANGE (more than fit): none of them counts, the primary one does */
	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) == 0)
		n = (unsigned)(length / sizeof(gid_t));
	c->uid = cred.uid;
	c->pid = cred.pid;
	c->admin = access_is_admin(cred.uid);
	c->allowed = access_allows(&c->server->access, cred.uid, cred.gid, groups, n);
	return 0;
}

void connection_new(struct server *s, int fd)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (!c) {
		(void)close(fd);
		return;
	}
	c->server = s;
	c->fd = fd;
	if (identify(c) < 0 || !(c->peer = peer_add(s, c->uid))) {
		(void)close(fd);
		free(c);
		return;
	}
	c->next = s->connections;
	if (c->next)
		c->next->prev = c;
	s->connections = c;
	if (sd_event_add_io(s->event, &c->source, fd, EPOLLIN, on_readable, c) < 0)
		connection_free(c);
}

void connection_logs(struct connection *c, uint32_t uid, const char *domain)
{
	struct domain_set *domains = c->server->domains;

	if (domain && c->logs[0] && c->logs_uid == uid && strcmp(c->logs, domain) == 0)
		return;
	/* The next one first: a domain that is used is not let go of for an instant. */
	if (domain)
		domain_log_user(domains, uid, domain, 1);
	if (c->logs[0])
		domain_log_user(domains, c->logs_uid, c->logs, -1);
	c->logs_uid = uid;
	(void)snprintf(c->logs, sizeof(c->logs), "%s", domain ? domain : "");
}

void connection_free(struct connection *c)
{
	struct server *s = c->server;

	while (c->requests)
		request_orphan(c->requests);
	/* At a stop the domains are gone before their clients are. */
	if (!s->stopping)
		connection_logs(c, 0, NULL);
	if (c->attached && !s->stopping)
		domain_hangup(s->domains, c->uid, c->domain);
	if (c->prev)
		c->prev->next = c->next;
	else
		s->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	peer_remove(s, c->peer);
	sd_event_source_disable_unref(c->source);
	(void)close(c->fd);
	free(c);
}
