/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/log.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/overflow.h"
#include "base/sys.h"
#include "client/preload/config.h"

#define JOURNAL "/run/systemd/journal/socket"

/* A piece of a message that is only read. A newline in it would begin another field: cut there. */
static struct iovec piece(const char *s)
{
	return (struct iovec){ (void *)(uintptr_t)s, strcspn(s, "\n") };
}

void shim_log(char priority, const char *what, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = JOURNAL };
	char head[] = "PRIORITY=4\nSYSLOG_IDENTIFIER=pmemlogd-preload\nMESSAGE=";
	struct iovec iov[] = {
		{ head, sizeof(head) - 1 }, piece(config.program), piece(": "), piece(what),
		piece(*name ? ": " : ""),   piece(name),
	};
	struct msghdr m = {
		.msg_name = &address,
		.msg_namelen = sizeof(address),
		.msg_iov = iov,
		.msg_iovlen = ARRAY_SIZE(iov),
	};
	long fd = sys_call3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	head[sizeof("PRIORITY=") - 1] = priority;
	(void)sys_call3(SYS_sendmsg, fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sys_call1(SYS_close, fd);
}
