/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/sys.h"
#include "client/preload/config.h"
#include "client/preload/desc.h"
#include "client/preload/page.h"

#define MS		 UINT64_C(1000000)
#define ANSWER_NS	 (100 * MS)  /* for any answer, once per outage */
#define OUTAGE_ANSWER_NS (10 * MS)   /* while it lasts */
#define HELLO_WORK_NS	 (5000 * MS) /* the daemon is making a lane */
#define REGISTER_WORK_NS (500 * MS)  /* picked: a few syncs of a slow disk; then bypass */

/* The page forgets the number over a fork, the descriptor stays: remembered here to be closed. */
static int conn_fd = -1;

static void drop(bool outage)
{
	if (page->conn)
		desc_unhide_close((int)page->conn - 1);
	page->conn = 0;
	conn_fd = -1;
	if (outage)
		page->outage = 1;
}

void link_close(void)
{
	drop(false);
}

void link_after_fork(void)
{
	int fd = conn_fd;

	conn_fd = -1;
	if (fd >= 0)
		desc_unhide_close(fd);
}

static int connect_daemon(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	long fd = sys_call3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	long r;

	if (fd < 0)
		return (int)fd;
	memcpy(address.sun_path, config.socket, sizeof(address.sun_path));
	r = sys_call3(SYS_connect, fd, &address, sizeof(address));
	if (r < 0) {
		(void)sys_call1(SYS_close, fd);
		return (int)r;
	}
	r = desc_hide((int)fd);
	if (r < 0)
		return (int)r;
	conn_fd = (int)r;
	page->conn = (uint32_t)r + 1;
	return 0;
}

struct request {
	uint16_t type;
	const void *body;
	uint32_t body_bytes;
	int fd; /* goes with it, or -1 */
	void *reply;
	uint32_t reply_bytes;
	int *fds; /* NULL, or room for two */
	uint64_t work_ns;
};

static int send_request(const struct request *q)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.type = q->type,
		.kind = WIRE_REQUEST,
		.request_id = ++page->request_id,
		.length = q->body_bytes,
	};
	union {
		const void *in;
		void *out; /* sendmsg does not write to what iovec points at */
	} body = { .in = q->body };
	struct iovec iov[2] = { { &header, sizeof(header) }, { body.out, q->body_bytes } };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	long r;

	if (q->fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.bytes);
		CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
		CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
		CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &q->fd, sizeof(int));
	}
	r = sys_call3(SYS_sendmsg, page->conn - 1, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	return r < 0 ? (int)r : 0;
}

static void close_fds(int fds[2])
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			(void)sys_call1(SYS_close, fds[i]);
		fds[i] = -1;
	}
}

/* One packet into buffer; descriptors that come along into fds. Bytes, or a negative errno. */
static long receive(void *buffer, size_t n, int fds[2])
{
	struct iovec iov = { buffer, n };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *c;
	long r = sys_call3(SYS_recvmsg, page->conn - 1, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	fds[0] = fds[1] = -1;
	if (r <= 0)
		return r == 0 ? -EPIPE : r;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		memcpy(fds, CMSG_DATA(c), bytes > 2 * sizeof(int) ? 2 * sizeof(int) : bytes);
	}
	if (m.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	return r;
}

static int wait_readable(uint64_t until)
{
	uint64_t now = now_monotonic_ns();
	struct pollfd p = { .fd = (int)page->conn - 1, .events = POLLIN };
	struct timespec t;
	long r;

	if (now >= until)
		return -ETIMEDOUT;
	t.tv_sec = (time_t)((until - now) / 1000000000u);
	t.tv_nsec = (long)((until - now) % 1000000000u);
	r = sys_call5(SYS_ppoll, &p, 1, &t, NULL, 8);
	if (r == -EINTR)
		return 0;
	return r == 0 ? -ETIMEDOUT : (int)(r < 0 ? r : 0);
}

/* Sends and waits. 0 and *ret_status, or a negative errno of the transport. */
static int transact(const struct request *q, int32_t *ret_status)
{
	union {
		struct wire_header header;
		char bytes[sizeof(struct wire_header) + 1024];
	} packet;
	uint64_t until = now_monotonic_ns() + (page->outage ? OUTAGE_ANSWER_NS : ANSWER_NS);
	int r = send_request(q);

	while (r == 0) {
		int fds[2];
		long n;

		r = wait_readable(until);
		if (r < 0)
			break;
		n = receive(&packet, sizeof(packet), fds);
		if (n == -EAGAIN || n == -EINTR)
			continue;
		if (n < (long)sizeof(packet.header) || packet.header.magic != WIRE_MAGIC ||
		    packet.header.length != (uint64_t)n - sizeof(packet.header)) {
			close_fds(fds);
			r = n < 0 ? (int)n : -EPROTO;
			break;
		}
		/* The answer to a request that was given up: not ours any more. */
		if (packet.header.request_id != page->request_id) {
			close_fds(fds);
			continue;
		}
		if (packet.header.kind == WIRE_PENDING) {
			close_fds(fds);
			until = now_monotonic_ns() + q->work_ns;
			continue;
		}
		if (packet.header.kind != WIRE_REPLY || packet.header.type != q->type ||
		    (packet.header.status == 0 && packet.header.length != q->reply_bytes)) {
			close_fds(fds);
			r = -EPROTO;
			break;
		}
		if (packet.header.length == q->reply_bytes)
			memcpy(q->reply, packet.bytes + sizeof(packet.header), q->reply_bytes);
		if (q->fds)
			memcpy(q->fds, fds, 2 * sizeof(int));
		else
			close_fds(fds);
		page->outage = 0;
		*ret_status = packet.header.status;
		return 0;
	}
	/* Broken is not silent: whoever broke it may be back already. */
	drop(r == -ETIMEDOUT);
	return r == -ETIMEDOUT ? r : -EPIPE;
}

int link_hello(bool want_lane, struct wire_hello_reply *ret, int ret_fds[2])
{
	struct wire_hello hello = {
		.version = CTL_VERSION,
		.want = want_lane ? WIRE_WANT_LANE : 0,
	};
	const struct request q = {
		.type = WIRE_HELLO,
		.body = &hello,
		.body_bytes = sizeof(hello),
		.fd = -1,
		.reply = ret,
		.reply_bytes = sizeof(*ret),
		.fds = ret_fds,
		.work_ns = want_lane ? HELLO_WORK_NS : REGISTER_WORK_NS,
	};
	int32_t status = 0;

	static_assert(sizeof(config.program) <= sizeof(hello.program), "program's name");
	ret_fds[0] = ret_fds[1] = -1;
	if (page->conn)
		return 1;
	if (connect_daemon() < 0) {
		page->outage = 1;
		return -ETIMEDOUT;
	}
	memcpy(hello.domain, config.domain, sizeof(hello.domain));
	memcpy(hello.program, config.program, sizeof(config.program));
	if (transact(&q, &status) < 0)
		return -ETIMEDOUT;
	/* Held, or not allowed: the next attempt asks anew. */
	if (status < 0) {
		close_fds(ret_fds);
		drop(false);
	}
	return status > 0 ? -EPROTO : status;
}

int link_register(int fd, const char *path, struct wire_register_reply *ret)
{
	struct wire_register body = { 0 };
	const struct request q = {
		.type = WIRE_REGISTER,
		.body = &body,
		.body_bytes = sizeof(body),
		.fd = fd,
		.reply = ret,
		.reply_bytes = sizeof(*ret),
		.work_ns = REGISTER_WORK_NS,
	};
	size_t n = strnlen(path, sizeof(body.path) - 1);
	int32_t status = 0;

	int r;

	memcpy(body.path, path, n);
	r = transact(&q, &status);
	if (r < 0)
		return r;
	return status > 0 ? -EPROTO : status;
}
