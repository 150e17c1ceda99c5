/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "client/ctl/ctl.h"

#define TICK_MS	     200
#define DOCUMENT_MAX (256 * 1024 * 1024) /* picked: far above any status */

const char *ctl_socket(struct ctl *c)
{
	const struct config *config;

	if (c->socket)
		return c->socket;
	config = ctl_config(c);
	return config ? config->socket : NULL;
}

int ctl_unreachable(const char *socket_path, int error)
{
	return ctl_fail(CTL_UNREACHABLE,
			"the daemon cannot be reached at %s: %s. Is it running? systemctl status "
			"pmemlogd; journalctl -u pmemlogd",
			socket_path, strerror(-error));
}

int ctl_connect(const char *path, int patience_ms, int *ret_fd)
{
	/* connect() waits while the queue of a daemon that accepts nobody is full */
	const struct timeval limit = { .tv_sec = patience_ms / 1000,
				       .tv_usec = patience_ms % 1000 * 1000 };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	cleanup_close int fd = -1;

	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	memcpy(a.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* 0: none */
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	*ret_fd = take_fd(fd);
	return 0;
}

static int send_request(int s, uint16_t type, const void *body, size_t n, int fd)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.type = type,
		.kind = WIRE_REQUEST,
		.request_id = 1,
		.length = (uint32_t)n,
	};
	struct iovec iov[2] = { { .iov_base = &header, .iov_len = sizeof(header) },
				{ .iov_base = NULL, .iov_len = n } };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	/* sendmsg only reads there */
	memcpy(&iov[1].iov_base, &body, sizeof(body));
	if (fd >= 0) {
		struct cmsghdr *cm;

		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(int));
	}
	return sendmsg(s, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

struct packet {
	struct wire_header header;
	union {
		struct wire_reply reply;
		char bytes[WIRE_MAX - sizeof(struct wire_header)];
	} body;
};

static ssize_t receive_once(int s, struct msghdr *m)
{
	ssize_t n;

	do {
		n = recvmsg(s, m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int ctl_receive(int s, void *packet, size_t bytes, int *ret_fd)
{
	struct iovec iov = { .iov_base = packet, .iov_len = bytes };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct wire_header header;
	struct cmsghdr *cm;
	ssize_t n = receive_once(s, &m);

	*ret_fd = -1;
	/* told once, ahead of what came before it */
	if (n == -ECONNRESET) {
		m.msg_controllen = sizeof(control.bytes);
		n = receive_once(s, &m);
	}
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	cm = CMSG_FIRSTHDR(&m);
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(cm), sizeof(int));
	memcpy(&header, packet, sizeof(header));
	if ((size_t)n >= sizeof(header) && header.magic == WIRE_MAGIC &&
	    header.length == (size_t)n - sizeof(header) && !(m.msg_flags & MSG_TRUNC))
		return 0;
	close_fd(ret_fd);
	*ret_fd = -1;
	return -EPROTO;
}

/* Until something is there; patience_ms > 0: or so long. 0 or -ETIMEDOUT. */
static int wait_readable(int s, int patience_ms, const struct wait_hook *hook)
{
	struct pollfd p = { .fd = s, .events = POLLIN };
	uint64_t begin = now_monotonic_ns();

	while (poll(&p, 1, TICK_MS) <= 0) {
		if (patience_ms > 0 && now_monotonic_ns() - begin > (uint64_t)patience_ms * 1000000)
			return -ETIMEDOUT;
		if (hook)
			hook->tick(hook->arg);
	}
	return 0;
}

char *ctl_document(int fd)
{
	struct stat st;
	size_t at = 0, n;
	char *text;

	if (fstat(fd, &st) < 0 || st.st_size < 0 || st.st_size > DOCUMENT_MAX)
		return NULL;
	n = (size_t)st.st_size;
	text = calloc(1, n + 1);
	while (text && at < n) {
		ssize_t got = pread(fd, text + at, n - at, (off_t)at);

		if (got <= 0) {
			free(text);
			return NULL;
		}
		at += (size_t)got;
	}
	return text;
}

int ctl_ask(const char *socket_path, uint16_t type, const void *body, size_t n, int fd,
	    int patience_ms, const struct wait_hook *hook, struct answer *ret)
{
	cleanup_free struct packet *p = malloc(sizeof(*p));
	cleanup_close int s = -1;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!p)
		return -ENOMEM;
	r = ctl_connect(socket_path, patience_ms, &s);
	if (r == 0)
		r = send_request(s, type, body, n, fd);
	while (r == 0) {
		cleanup_close int document = -1;

		r = wait_readable(s, patience_ms, hook);
		/* for a reply that is shorter than ours */
		memset(p, 0, sizeof(*p));
		if (r == 0)
			r = ctl_receive(s, p, sizeof(*p), &document);
		if (r == 0 && p->header.kind == WIRE_PENDING)
			patience_ms = 0;
		if (r < 0 || p->header.kind == WIRE_PENDING)
			continue;
		ret->status = p->header.status;
		/* bodies end with an error that tells less, or come from a younger daemon */
		memcpy(&ret->reply, &p->body, min_of(sizeof(ret->reply), p->header.length));
		ret->reply.text[sizeof(ret->reply.text) - 1] = '\0';
		if (p->header.length == 0)
			ret->reply.exit = CTL_REFUSED;
		if (document >= 0)
			ret->document = ctl_document(document);
		return 0;
	}
	return r;
}

int ctl_ask_domain(const char *socket_path, uint16_t type, const char *domain, int patience_ms,
		   const struct wait_hook *hook, struct answer *ret)
{
	struct wire_domain body = { 0 };

	memset(ret, 0, sizeof(*ret));
	if (strlen(domain) >= sizeof(body.domain))
		return -ENAMETOOLONG;
	memcpy(body.domain, domain, strlen(domain) + 1);
	return ctl_ask(socket_path, type, &body, sizeof(body), -1, patience_ms, hook, ret);
}

int ctl_report(const struct answer *a)
{
	bool good = a->status == 0 && a->reply.exit == 0;
	const char *text = a->reply.text;

	if (!*text && a->status < 0)
		text = a->status == -EPROTO ? "the daemon did not understand the request: are "
					      "pmemlogctl and pmemlogd of one version?"
					    : strerror(-a->status);
	if (*text)
		(void)fprintf(good ? stdout : stderr, "%s%s\n", good ? "" : "pmemlogctl: ", text);
	if (a->reply.exit == 0 && a->status < 0)
		return CTL_REFUSED;
	return (int)a->reply.exit;
}
