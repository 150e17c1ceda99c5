/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "pool/file.h"
#include "pool/ops.h"
#include "pool/slot.h"

struct reply {
	int64_t result;
};

struct message {
	struct client_command command;
	struct reply reply;
};

static void send_message(int sock, const struct message *m, const int *fds, unsigned n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)m, .iov_len = sizeof(*m) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		struct cmsghdr *c;

		h.msg_control = control.bytes;
		h.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	if (sendmsg(sock, &h, MSG_NOSIGNAL) != (ssize_t)sizeof(*m))
		_exit(99);
}

/* Returns how many descriptors came, or -1: the other side is gone. */
static int receive_message(int sock, struct message *m, int fds[2])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = m, .iov_len = sizeof(*m) };
	struct msghdr h = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *c;
	size_t n;

	if (recvmsg(sock, &h, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*m))
		return -1;
	c = CMSG_FIRSTHDR(&h);
	if (!c)
		return 0;
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	return (int)n;
}

/* ---- the child -------------------------------------------------------------------------------- */

/* A write stands between its real call and its record, and says so here; -1: none does. */
static int hold_sock = -1;

static ssize_t pwritev_held(int fd, const struct iovec *iov, int n, int64_t offset, int flags)
{
	ssize_t done = session_sys_io.pwritev(fd, iov, n, offset, flags);
	struct message m = { .reply.result = done };
	int sock = hold_sock, fds[2];

	hold_sock = -1;
	if (sock >= 0) {
		send_message(sock, &m, NULL, 0);
		if (receive_message(sock, &m, fds) < 0)
			_exit(0);
	}
	return done;
}

struct child {
	int sock;
	struct session s;
	struct caller who;
	struct file_ref ref;
	int lane_fd;
};

static int64_t attach(struct child *c, int control_fd, int lane_fd)
{
	static struct session_io io;
	struct stat st;
	uint8_t *base;
	int r;

	io = session_sys_io;
	io.pwritev = pwritev_held;
	c->s = (struct session){ .io = &io };
	c->who = (struct caller){ .tid = sys_gettid() };
	c->lane_fd = lane_fd;
	r = control_map(&c->s.ctl, control_fd, &c->s.head_copy);
	if (r < 0)
		return r;
	if (fstat(lane_fd, &st) < 0)
		return -errno;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, lane_fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	r = lane_attach(&c->s.lane, base, (size_t)st.st_size);
	if (r < 0)
		return r;
	return slot_take(&c->s.ctl, c->s.head_copy.incarnation, &c->s.me);
}

static int64_t write_bytes(struct child *c, uint64_t offset, uint64_t n, uint8_t byte)
{
	struct iovec iov;
	void *buf = malloc(n);
	int64_t r;

	if (!buf)
		return -ENOMEM;
	memset(buf, byte, n);
	iov = (struct iovec){ buf, n };
	r = file_write(&c->s, &c->who, &c->ref, &iov, 1, (int64_t)offset, 0);
	free(buf);
	return r;
}

static long unlink_call(void *path)
{
	return unlink(path) < 0 ? -errno : 0;
}

static long die(void *arg)
{
	(void)arg;
	return kill(getpid(), SIGKILL);
}

static int64_t unlink_file(struct child *c, file_call *call, char *path)
{
	int64_t r = file_lock(&c->s, &c->who, &c->ref);

	if (r < 0)
		return r;
	r = file_unlinking_locked(&c->s, &c->who, &c->ref, call, path);
	file_unlock(&c->s, &c->ref);
	return r;
}

static int64_t obey(struct child *c, struct client_command *k, const int *fds, int *ret_fd)
{
	switch (k->op) {
	case CLIENT_ATTACH:
		return attach(c, fds[0], fds[1]);
	case CLIENT_OPEN:
		c->ref.fd = open(k->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		*ret_fd = c->ref.fd;
		return c->ref.fd < 0 ? -errno : 0;
	case CLIENT_BIND:
		c->ref.f = &c->s.ctl.files[k->a];
		c->ref.id = k->b;
		c->ref.open_head = control_head(&c->s.ctl).head;
		return 0;
	case CLIENT_WRITE:
		return write_bytes(c, k->a, k->b, (uint8_t)k->c);
	case CLIENT_WRITE_HELD:
		hold_sock = c->sock;
		return write_bytes(c, k->a, k->b, (uint8_t)k->c);
	case CLIENT_FENCE:
		return file_fenced(&c->s, &c->who, &c->ref, NULL, NULL);
	case CLIENT_SYNC:
		return file_sync(&c->s, &c->who, &c->ref, false);
	case CLIENT_UNLINK:
		return unlink_file(c, unlink_call, k->path);
	case CLIENT_UNLINK_DIES:
		return unlink_file(c, die, NULL);
	case CLIENT_FENCED_DIES:
		return file_fenced(&c->s, &c->who, &c->ref, die, NULL);
	case CLIENT_CUT_CONTROL:
		return ftruncate(c->s.ctl.fd, 0);
	case CLIENT_CUT_LANE:
		return ftruncate(c->lane_fd, 0);
	case CLIENT_FULL_BYPASS:
		return file_enter_bypass(&c->s, &c->who, &c->ref, BYPASS_LANE_FULL);
	case CLIENT_MAPPED:
		return file_enter_bypass(&c->s, &c->who, &c->ref, BYPASS_MAPPED);
	case CLIENT_LOOP:
		for (uint64_t i = 0;; i++)
			if (write_bytes(c, (i % 64) * 4096, 4096, (uint8_t)i) < 0)
				return 0;
	case CLIENT_FORGE_ID:
		atomic_store_seq(&c->ref.f->id, UINT64_C(1) << 50);
		return 0;
	case CLIENT_DEGRADE:
		atomic_add_seq(&c->ref.f->degraded, 1);
		return 0;
	case CLIENT_FORGE_HEAD: {
		struct ctl_hot *hot = c->s.ctl.hot;

		atomic_store_seq(&hot->cell[(hot->index + 1) & 1].head, k->a);
		atomic_store_seq(&hot->index, hot->index + 1);
		return 0;
	}
	case CLIENT_EXIT:
		_exit(0);
	}
	return -EINVAL;
}

static void child_main(int sock)
{
	struct child c = { .sock = sock, .lane_fd = -1 };
	struct message m;
	int fds[2] = { -1, -1 };

	/* The daemon's descriptors: with them we would keep its slot. */
	if (sock > 3)
		(void)close_range(3, (unsigned)sock - 1, 0);
	(void)close_range((unsigned)sock + 1, ~0u, 0);
	pool_ops_select();
	while (receive_message(sock, &m, fds) >= 0) {
		int fd = -1;

		m.reply.result = obey(&c, &m.command, fds, &fd);
		send_message(sock, &m, &fd, fd >= 0 ? 1 : 0);
	}
	_exit(0);
}

/* ---- the test --------------------------------------------------------------------------------- */

void client_start(struct client *c)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	c->pid = fork();
	if (c->pid < 0)
		abort();
	if (c->pid == 0) {
		(void)close(pair[0]);
		child_main(pair[1]);
	}
	(void)close(pair[1]);
	c->sock = pair[0];
}

int64_t client_do(struct client *c, const struct client_command *command, const int *fds,
		  int *ret_fd)
{
	struct message m = { .command = *command };
	int got[2] = { -1, -1 };

	send_message(c->sock, &m, fds, fds ? 2 : 0);
	if (command->op == CLIENT_LOOP || command->op == CLIENT_EXIT)
		return 0;
	if (receive_message(c->sock, &m, got) < 0)
		return -EPIPE;
	if (ret_fd)
		*ret_fd = got[0];
	return m.reply.result;
}

void client_end(struct client *c, int hard)
{
	struct client_command bye = { .op = CLIENT_EXIT };

	if (c->pid <= 0)
		return;
	if (hard)
		(void)kill(c->pid, SIGKILL);
	else
		(void)client_do(c, &bye, NULL, NULL);
	(void)waitpid(c->pid, NULL, 0);
	(void)close(c->sock);
	c->pid = 0;
}
