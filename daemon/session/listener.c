/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/session/connection.h"
#include "daemon/session/server.h"

#define LISTENER_BACKLOG 4096
#define LISTENER_BATCH	 64 /* connections taken at one wake-up, so that clients get their turn */

int listener_inherited(int *ret_fd, char *ret_error, unsigned n)
{
	int count = sd_listen_fds(1);
	int fd = SD_LISTEN_FDS_START;
	int r;

	if (count < 0) {
		(void)snprintf(ret_error, n, "LISTEN_FDS cannot be read: %s", strerror(-count));
		return count;
	}
	if (count == 0)
		return 0;
	if (count > 1) {
		(void)snprintf(ret_error, n,
			       "%d sockets were handed over; pmemlogd.socket must name exactly "
			       "one, by ListenSequentialPacket=",
			       count);
		return -EINVAL;
	}
	r = sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0);
	if (r <= 0) {
		(void)snprintf(ret_error, n,
			       "the socket that was handed over is no listening SOCK_SEQPACKET "
			       "unix socket; pmemlogd.socket must use ListenSequentialPacket=");
		return -EINVAL;
	}
	r = fcntl(fd, F_GETFL);
	if (r < 0 || fcntl(fd, F_SETFL, r | O_NONBLOCK) < 0)
		return -errno;
	*ret_fd = fd;
	return 1;
}

bool listener_lies_in(int fd, const char *folder)
{
	struct sockaddr_un a;
	socklen_t length = sizeof(a);
	const char *slash;
	size_t n = strlen(folder);

	memset(&a, 0, sizeof(a));
	if (getsockname(fd, (struct sockaddr *)&a, &length) < 0 || a.sun_family != AF_UNIX)
		return false;
	a.sun_path[sizeof(a.sun_path) - 1] = '\0';
	slash = strrchr(a.sun_path, '/');
	return slash && (size_t)(slash - a.sun_path) == n && strncmp(a.sun_path, folder, n) == 0;
}

/* Another daemon (with another pool) would lose its clients, and share the folder of control files. */
static bool somebody_listens(const struct sockaddr_un *a)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	/* EAGAIN: there is a queue, and it is full. */
	return fd >= 0 &&
	       (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno == EAGAIN);
}

/* A path that nobody listens on any more, or nothing. */
static int clear_path(const struct sockaddr_un *a)
{
	struct stat st;

	if (lstat(a->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (somebody_listens(a))
		return -EADDRINUSE;
	return unlink(a->sun_path) < 0 ? -errno : 0;
}

int listener_open(const char *path, int *ret_fd, char *ret_error, unsigned n)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	cleanup_close int fd = -1;
	int r;

	if (strlen(path) >= sizeof(a.sun_path)) {
		(void)snprintf(ret_error, n, "socket %s: the path is too long", path);
		return -ENAMETOOLONG;
	}
	memcpy(a.sun_path, path, strlen(path) + 1);
	r = clear_path(&a);
	if (r == -EEXIST) {
		(void)snprintf(ret_error, n,
			       "socket %s: something that is no socket is in the way; move it",
			       path);
		return r;
	}
	if (r == 0) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
			r = -errno;
		/* who may do what is decided by the peer's credentials */
		else if (chmod(path, 0666) < 0 || listen(fd, LISTENER_BACKLOG) < 0)
			r = -errno;
	}
	if (r < 0) {
		(void)snprintf(ret_error, n, "socket %s: %s", path, strerror(-r));
		return r;
	}
	*ret_fd = take_fd(fd);
	return 0;
}

/* No descriptor left: give the spare one up to accept the client, and hang up on him. Without this he
 * would stay in the queue and wake us for ever. */
static void refuse_one(struct server *s)
{
	int fd;

	if (s->spare_fd >= 0)
		(void)close(s->spare_fd);
	fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		(void)close(fd);
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	log_msg(LOG_WARNING, NULL,
		"a client was turned away: no descriptor left (LimitNOFILE= of the service)");
}

static int on_listen(sd_event_source *source, int listen_fd, uint32_t events, void *arg)
{
	struct server *s = arg;

	(void)source;
	(void)events;
	for (int i = 0; i < LISTENER_BATCH; i++) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			connection_new(s, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE)
			refuse_one(s);
		else if (errno == EINTR || errno == ECONNABORTED)
			continue;
		break;
	}
	return 0;
}

int listener_start(struct server *s)
{
	int r;

	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	r = sd_event_add_io(s->event, &s->listen_source, s->listen_fd, EPOLLIN, on_listen, s);
	if (r < 0)
		return r;
	return sd_event_source_set_description(s->listen_source, "socket");
}

void listener_stop(struct server *s)
{
	s->listen_source = sd_event_source_disable_unref(s->listen_source);
	if (s->listen_fd >= 0) {
		if (s->own_socket)
			(void)unlink(s->config->socket);
		(void)close(s->listen_fd);
		s->listen_fd = -1;
	}
	if (s->spare_fd >= 0)
		(void)close(s->spare_fd);
	s->spare_fd = -1;
}
