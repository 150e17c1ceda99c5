/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One LOG_APPEND after the other, as a client in any language does it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "abi/log.h"
#include "bench/bench.h"

#define THREADS_MAX 64u

static int sockets[THREADS_MAX];
static unsigned opened;

/* One request of two pieces behind the header, and its final answer's status. */
static int ask(int fd, uint16_t type, const struct iovec body[2])
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.type = type,
		.kind = WIRE_REQUEST,
		.length = (uint32_t)(body[0].iov_len + body[1].iov_len),
	};
	struct iovec iov[3] = { { &header, sizeof(header) }, body[0], body[1] };
	struct {
		struct wire_header header;
		uint8_t body[1024]; /* more than any of these */
	} answer;

	if (writev(fd, iov, 3) < 0)
		return -errno;
	do {
		ssize_t n = recv(fd, &answer, sizeof(answer), 0);

		if (n < (ssize_t)sizeof(answer.header))
			return n < 0 ? -errno : -EPIPE;
	} while (answer.header.kind == WIRE_PENDING);
	return answer.header.status;
}

static int connect_one(void)
{
	struct wire_hello hello = { .version = CTL_VERSION, .program = "pmemlogd-bench" };
	const struct iovec body[2] = { { &hello, sizeof(hello) }, { NULL, 0 } };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = getenv("PMEMLOGD_SOCKET"), *domain = getenv("PMEMLOGD_DOMAIN");
	int r, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path ? path : "/run/pmemlogd/pmemlogd.sock");
	snprintf(hello.domain, sizeof(hello.domain), "%s", domain ? domain : "default");
	r = connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : ask(fd, WIRE_HELLO, body);
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

int socket_open(unsigned size, unsigned threads)
{
	(void)size;
	for (opened = 0; opened < threads && opened < THREADS_MAX; opened++) {
		int r = connect_one();

		if (r < 0) {
			socket_close();
			return failed("socket", -r);
		}
		sockets[opened] = r;
	}
	return 0;
}

void socket_once(unsigned thread, const void *bytes, unsigned size)
{
	struct wire_log_append a = { .length = size, .name = "bench" };
	const struct iovec body[2] = { { &a, sizeof(a) }, { (void *)(uintptr_t)bytes, size } };
	int r = ask(sockets[thread], WIRE_LOG_APPEND, body);

	if (r < 0)
		die("LOG_APPEND", -r);
}

void socket_close(void)
{
	while (opened > 0)
		close(sockets[--opened]);
}
