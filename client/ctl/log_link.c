/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The connection of the log verbs: one request at a time. */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "client/ctl/log.h"

/* One at a time for the whole program. */
static union {
	struct wire_header header;
	uint8_t bytes[WIRE_LOG_MAX + 1];
} packet;

static int send_all(struct log_link *l, uint16_t type, const void *body, size_t n,
		    const void *payload, size_t payload_n)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.type = type,
		.kind = WIRE_REQUEST,
		.request_id = ++l->id,
		.length = (uint32_t)(n + payload_n),
	};
	struct iovec iov[3] = { { .iov_base = &header, .iov_len = sizeof(header) },
				{ .iov_len = n },
				{ .iov_len = payload_n } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 3 };

	/* sendmsg only reads there */
	memcpy(&iov[1].iov_base, &body, sizeof(body));
	memcpy(&iov[2].iov_base, &payload, sizeof(payload));
	while (sendmsg(l->fd, &m, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static void take_answer(const struct log_link *l, uint16_t type, struct log_answer *ret)
{
	size_t body = type == WIRE_LOG_READ ? sizeof(ret->data) : sizeof(ret->reply);
	size_t n = packet.header.length;

	(void)l;
	ret->status = packet.header.status;
	memcpy(&ret->reply, packet.bytes + sizeof(packet.header), min_of(body, n));
	/* the last field of both is the text */
	((char *)&ret->reply)[body - 1] = '\0';
	if (type == WIRE_LOG_READ && ret->status == 0) {
		ret->payload = packet.bytes + sizeof(packet.header) + body;
		ret->length = (uint32_t)(n - min_of(n, body));
		if (n < body || ret->length != ret->data.length)
			ret->status = -EPROTO;
	}
}

int link_ask(struct log_link *l, uint16_t type, const void *body, size_t n, const void *payload,
	     size_t payload_n, struct log_answer *ret)
{
	int r, patience_ms = CTL_PATIENCE_MS;

	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	/* an append that has to wait for room is answered when there is some, and says nothing before */
	if (type == WIRE_LOG_APPEND)
		patience_ms = -1;
	r = send_all(l, type, body, n, payload, payload_n);
	while (r == 0) {
		struct pollfd p = { .fd = l->fd, .events = POLLIN };

		r = poll(&p, 1, patience_ms);
		if (r < 0 && errno == EINTR) {
			r = 0;
			continue;
		}
		r = r == 0  ? -ETIMEDOUT
		    : r < 0 ? -errno
			    : ctl_receive(l->fd, packet.bytes, sizeof(packet.bytes), &ret->fd);
		if (r == 0 && (packet.header.request_id != l->id || packet.header.type != type ||
			       packet.header.status > 0))
			r = -EPROTO;
		if (r < 0)
			break;
		if (packet.header.kind == WIRE_PENDING) {
			patience_ms = -1;
			continue;
		}
		take_answer(l, type, ret);
		return 0;
	}
	close_fd(&ret->fd);
	ret->fd = -1;
	link_close(l);
	return r;
}

void link_close(struct log_link *l)
{
	close_fd(&l->fd);
	l->fd = -1;
}

static int refused(struct log_link *l, const struct log_answer *a, const char *text)
{
	link_close(l);
	if (a->status == -ESHUTDOWN)
		return a->status;
	if (a->status == -EPROTO && !*text)
		text = "this pmemlogd has no logs: pmemlogctl is younger";
	return ctl_fail(CTL_REFUSED, "%s", *text ? text : strerror(-a->status));
}

static int say_hello(struct log_link *l)
{
	struct wire_hello hello = { .version = CTL_VERSION, .program = "pmemlogctl" };
	struct wire_hello_reply reply = { .version = 0 };
	struct log_answer a;
	int r;

	memcpy(hello.domain, l->hello, sizeof(hello.domain));
	r = link_ask(l, WIRE_HELLO, &hello, sizeof(hello), NULL, 0, &a);
	if (r < 0 || a.status == 0)
		return r;
	memcpy(&reply, packet.bytes + sizeof(packet.header),
	       min_of(sizeof(reply), packet.header.length));
	reply.text[sizeof(reply.text) - 1] = '\0';
	return refused(l, &a, reply.text);
}

int link_open(struct log_link *l)
{
	const struct wire_features features = { .version = 1 };
	struct wire_features_reply known = { .version = 0 };
	struct log_answer a;
	int r = ctl_connect(l->socket, CTL_PATIENCE_MS, &l->fd);

	if (r < 0)
		return r;
	r = link_ask(l, WIRE_FEATURES, &features, sizeof(features), NULL, 0, &a);
	if (r < 0)
		return r;
	if (a.status < 0)
		return refused(l, &a, "");
	memcpy(&known, packet.bytes + sizeof(packet.header),
	       min_of(sizeof(known), packet.header.length));
	if (!(known.features & WIRE_FEATURE_LOGS)) {
		a.status = -EPROTO;
		return refused(l, &a, "");
	}
	return *l->hello ? say_hello(l) : 0;
}
