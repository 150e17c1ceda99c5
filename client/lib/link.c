/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The socket. */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/overflow.h"
#include "base/sys.h"
#include "client/lib/lib.h"

void link_drop(struct pmemlogd *c)
{
	if (c->socket_fd >= 0)
		(void)close(c->socket_fd);
	c->socket_fd = -1;
}

static int connect_daemon(struct pmemlogd *c)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	memcpy(address.sun_path, c->socket, sizeof(address.sun_path));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		(void)close(fd);
		return -ETIMEDOUT; /* no daemon, or too many that knock */
	}
	c->socket_fd = fd;
	return 0;
}

struct exchange {
	uint16_t type;
	const void *body;
	uint32_t bytes;
	void *reply;
	uint32_t reply_bytes;
	int fds[2]; /* came with the reply, or -1 */
	uint64_t extra_ns;
};

static void close_fds(struct exchange *x)
{
	for (int i = 0; i < 2; i++) {
		if (x->fds[i] >= 0)
			(void)close(x->fds[i]);
		x->fds[i] = -1;
	}
}

static int send_request(struct pmemlogd *c, const struct exchange *x)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.type = x->type,
		.kind = WIRE_REQUEST,
		.request_id = ++c->request_id,
		.length = x->bytes,
	};
	struct iovec iov[2] = { { &header, sizeof(header) }, { NULL, x->bytes } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	/* sendmsg does not write there; its type is shared with recvmsg */
	memcpy(&iov[1].iov_base, &x->body, sizeof(x->body));
	for (;;) {
		if (sendmsg(c->socket_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno != EINTR)
			return -EPIPE;
	}
}

static void take_fds(struct msghdr *m, struct exchange *x)
{
	for (struct cmsghdr *cm = CMSG_FIRSTHDR(m); cm; cm = CMSG_NXTHDR(m, cm)) {
		size_t n;

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(x->fds, CMSG_DATA(cm), min_of(n, (size_t)2) * sizeof(int));
	}
}

/* One packet: 1 (our answer), 0 (another, or "at work"), or a negative errno. */
static int receive(struct pmemlogd *c, struct exchange *x, int32_t *ret_status)
{
	struct wire_header header;
	struct iovec iov[2] = { { &header, sizeof(header) }, { x->reply, x->reply_bytes } };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct msghdr m = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t n = recvmsg(c->socket_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : -EPIPE;
	if (n == 0)
		return -EPIPE;
	take_fds(&m, x);
	if ((size_t)n < sizeof(header) || header.magic != WIRE_MAGIC) {
		close_fds(x);
		return -EPROTO;
	}
	if (header.request_id != c->request_id || header.kind != WIRE_REPLY) {
		close_fds(x);
		return 0;
	}
	/* A daemon that does not know the message says so in a header alone, and hangs up. */
	if (header.length == 0 && header.status < 0) {
		*ret_status = header.status;
		return 1;
	}
	if (header.type != x->type || header.length != x->reply_bytes ||
	    (size_t)n != sizeof(header) + x->reply_bytes || (m.msg_flags & MSG_TRUNC)) {
		close_fds(x);
		return -EPROTO;
	}
	*ret_status = header.status;
	return 1;
}

/* 0 and *ret_status, -EPIPE (the connection broke), -EPROTO, -ETIMEDOUT. After any of these it is dropped. */
static int transact(struct pmemlogd *c, struct exchange *x, int32_t *ret_status)
{
	uint64_t until = now_monotonic_ns() + c->timeout_ns;
	int r;

	x->fds[0] = x->fds[1] = -1;
	/* UINT64_MAX: for ever */
	until = add_overflow(until, x->extra_ns, &until) ? UINT64_MAX : until;
	r = send_request(c, x);
	while (r == 0) {
		struct pollfd p = { .fd = c->socket_fd, .events = POLLIN };
		uint64_t now = now_monotonic_ns();
		int ms;

		if (now >= until) {
			r = -ETIMEDOUT;
			break;
		}
		ms = (int)min_of((until - now) / 1000000 + 1, UINT64_C(1000000));
		if (poll(&p, 1, ms) > 0)
			r = receive(c, x, ret_status);
	}
	if (r < 0)
		link_drop(c);
	return r < 0 ? r : 0;
}

static void keep_text(struct pmemlogd *c, const char text[WIRE_TEXT])
{
	(void)snprintf(c->text, sizeof(c->text), "%.*s", (int)WIRE_TEXT - 1, text);
}

/* A daemon that stops is as good as one that is gone. */
static int32_t about_to_go(struct pmemlogd *c, int32_t status)
{
	if (status != -ESHUTDOWN)
		return status;
	link_drop(c);
	return -ETIMEDOUT;
}

int link_hello(struct pmemlogd *c, int ret_fds[2])
{
	struct wire_hello hello = {
		.version = CTL_VERSION,
		.want = ret_fds ? WIRE_WANT_LANE : 0,
	};
	struct wire_hello_reply reply = { .text = "" };
	struct exchange x = { WIRE_HELLO, &hello, sizeof(hello), &reply, sizeof(reply),
			      { -1, -1 }, 0 };
	int32_t status = 0;
	int r;

	link_drop(c);
	r = connect_daemon(c);
	if (r < 0)
		return r;
	memcpy(hello.domain, c->domain, sizeof(hello.domain));
	(void)snprintf(hello.program, sizeof(hello.program), "%.63s",
		       program_invocation_short_name);
	r = transact(c, &x, &status);
	if (r < 0)
		return r == -EPIPE ? -ETIMEDOUT : r;
	keep_text(c, reply.text);
	status = about_to_go(c, status);
	if (status == 0 && ret_fds && (x.fds[0] < 0 || x.fds[1] < 0))
		status = -EPROTO;
	if (status == 0 && !ret_fds &&
	    (reply.lane != c->s.head_copy.lane || reply.incarnation != c->s.head_copy.incarnation))
		status = -ESTALE;
	if (status == 0 && ret_fds) {
		memcpy(ret_fds, x.fds, sizeof(x.fds));
		return 0;
	}
	close_fds(&x);
	if (status != 0)
		link_drop(c);
	return status > 0 ? -EPROTO : status;
}

int link_check(struct pmemlogd *c)
{
	struct pollfd p = { .fd = c->socket_fd, .events = POLLIN };

	/* Nothing comes unasked: what can be read is the end. */
	if (c->socket_fd >= 0 && poll(&p, 1, 0) == 0)
		return 0;
	return link_hello(c, NULL);
}

int link_log(struct pmemlogd *c, uint16_t type, const struct wire_log *q,
	     struct wire_log_reply *ret, int *ret_fd, uint64_t extra_ns)
{
	struct exchange x = { type, q, sizeof(*q), ret, sizeof(*ret), { -1, -1 }, extra_ns };
	int32_t status = 0;
	int r = link_check(c);

	if (r < 0)
		return r;
	memset(ret, 0, sizeof(*ret));
	r = transact(c, &x, &status);
	/* It was restarted just now; what the messages do may be done twice. */
	if (r == -EPIPE) {
		r = link_hello(c, NULL);
		if (r == 0)
			r = transact(c, &x, &status);
	}
	if (r < 0)
		return r == -EPIPE ? -ETIMEDOUT : r;
	if (status == -EPROTO && !*ret->text) {
		link_drop(c);
		status = -EOPNOTSUPP;
	}
	keep_text(c, ret->text);
	status = about_to_go(c, status);
	if (ret_fd && status == 0) {
		*ret_fd = x.fds[0];
		x.fds[0] = -1;
	}
	close_fds(&x);
	if (ret_fd && status == 0 && *ret_fd < 0)
		status = -EPROTO;
	return status > 0 ? -EPROTO : status;
}
