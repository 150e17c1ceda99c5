/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "client/lib/lib.h"
#include "pool/ops.h"
#include "pool/sim.h"
#include "pool/slot.h"

#define SLOT_TRIES 5 /* of up to a second each */

/* Maps the lane and checks that it is the one which the control file means. */
static int map_lane(struct session *s, int fd)
{
	size_t bytes = LANE_HEADER_BYTES + s->head_copy.ring_size;
	int flags =
		s->head_copy.media == CTL_MEDIA_FSDAX ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
	struct stat st;
	void *base;
	int r;

	if (s->head_copy.media != CTL_MEDIA_FSDAX && s->head_copy.media != CTL_MEDIA_EMULATED)
		return -EPROTO;
	/* A shorter file would be a SIGBUS later on. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)bytes)
		return -EBADMSG;
	/* Populated: no append pays for the first touch of a page. Without MAP_SYNC on fsdax the stores would
	 * not be durable: then no session at all. */
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	(void)madvise(base, bytes, MADV_DONTDUMP);
	(void)madvise(base, bytes, MADV_DONTFORK);
	r = sim_map(base, bytes, fd);
	if (r == 0)
		r = lane_attach(&s->lane, base, bytes);
	if (r == 0 && (s->lane.number != s->head_copy.lane ||
		       s->lane.incarnation != s->head_copy.incarnation ||
		       s->lane.ring_size != s->head_copy.ring_size))
		r = -ESTALE;
	if (r < 0) {
		sim_unmap(base);
		(void)munmap(base, bytes);
		s->lane.base = NULL;
	}
	return r;
}

static int take_slot(struct session *s)
{
	int r = -EAGAIN;

	/* -EAGAIN: the daemon looks whether the domain is empty, for an instant at a time. */
	for (int i = 0; i < SLOT_TRIES && r == -EAGAIN; i++)
		r = slot_take(&s->ctl, s->head_copy.incarnation, &s->me);
	return r;
}

static int attach_control(struct pmemlogd *c, int control)
{
	struct session *s = &c->s;
	struct stat st;
	int r = control_map(&s->ctl, control, &s->head_copy);

	if (r < 0)
		return r;
	c->control_fd = control;
	/* The mapping holds the open description, and so the slot, whatever becomes of the descriptor: but not
	 * for a child. */
	if (madvise(s->ctl.head, s->ctl.bytes, MADV_DONTFORK) < 0 || fstat(control, &st) < 0)
		return -errno;
	s->ctl.ofd = true;
	s->ctl.dev = st.st_dev;
	s->ctl.ino = st.st_ino;
	s->io = &session_sys_io;
	if (s->head_copy.uid != geteuid() || strcmp(s->head_copy.domain, c->domain) != 0)
		return -EPROTO;
	if (slot_of_process(&s->ctl)) {
		/* The preload library's. Closing a descriptor of this file would take its slot away. */
		c->control_fd = -1;
		return -EBUSY;
	}
	return 0;
}

int attach(struct pmemlogd *c, int control, int lane)
{
	int r;

	pool_ops_select();
	r = attach_control(c, control);
	if (r < 0 && c->control_fd < 0 && r != -EBUSY)
		(void)close(control);
	if (r == 0)
		r = map_lane(&c->s, lane);
	(void)close(lane);
	if (r == 0)
		r = take_slot(&c->s);
	if (r < 0)
		detach(c);
	return r;
}

void detach(struct pmemlogd *c)
{
	struct session *s = &c->s;
	bool ours = process_check(c) == 0;

	if (s->lane.base && ours) {
		sim_unmap(s->lane.base);
		(void)munmap(s->lane.base, s->lane.map_bytes);
	}
	s->lane.base = NULL;
	if (s->ctl.head && ours)
		control_unmap(&s->ctl, false);
	s->ctl.head = NULL;
	/* What the number means now may be another file. */
	if (c->control_fd >= 0) {
		struct stat st;

		if (fstat(c->control_fd, &st) == 0 &&
		    (!s->ctl.ofd || (st.st_dev == s->ctl.dev && st.st_ino == s->ctl.ino)))
			(void)close(c->control_fd);
	}
	c->control_fd = -1;
}

/* ---- without a daemon: while another process of the domain lives ------------------------------- */

/* Ours, open, and somebody is in it? Then the lane's path. *ret_keep: the descriptor may not be closed. */
static int judge(const struct pmemlogd *c, int fd, char ret_lane[512], bool *ret_keep)
{
	struct control ctl;
	struct ctl_head head;
	int r = control_map(&ctl, fd, &head);

	*ret_keep = false;
	if (r < 0)
		return r;
	*ret_keep = slot_of_process(&ctl);
	/* Acquire: pairs with the daemon's store of the state. */
	if (head.uid != geteuid() || strcmp(head.domain, c->domain) != 0 ||
	    atomic_load_acquire(&ctl.head->state) != CTL_OPEN || !slot_any_live(&ctl))
		r = -ENOENT;
	else
		memcpy(ret_lane, head.lane_path, sizeof(head.lane_path));
	control_unmap(&ctl, false);
	return r;
}

static int try_control(const struct pmemlogd *c, int folder, const char *name, int *ret_control,
		       int *ret_lane)
{
	int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char lane[sizeof(((struct ctl_head *)NULL)->lane_path)];
	struct stat st;
	bool keep;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		(void)close(fd);
		return -ENOENT;
	}
	r = judge(c, fd, lane, &keep);
	if (r == 0) {
		*ret_lane = open(lane, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		r = *ret_lane < 0 ? -errno : 0;
	}
	if (r == 0)
		*ret_control = fd;
	else if (!keep)
		(void)close(fd);
	return r;
}

int attach_find(const struct pmemlogd *c, int *ret_control, int *ret_lane)
{
	char path[sizeof(c->socket) + 16];
	const char *slash = strrchr(c->socket, '/');
	struct dirent *e;
	DIR *dir;
	int r = -ETIMEDOUT;

	(void)snprintf(path, sizeof(path), "%.*s/control", slash ? (int)(slash - c->socket) : 0,
		       c->socket);
	dir = opendir(path);
	if (!dir)
		return r;
	while (r != 0 && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.' &&
		    try_control(c, dirfd(dir), e->d_name, ret_control, ret_lane) == 0)
			r = 0;
	(void)closedir(dir);
	return r;
}
