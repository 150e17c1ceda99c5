/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/named.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/sys.h"
#include "client/preload/attach.h"
#include "client/preload/desc.h"
#include "client/preload/log.h"
#include "client/preload/others.h"
#include "client/preload/takeover.h"

#define FD_NAME "/proc/self/fd/"

static bool find(struct named *n)
{
	const struct session *s;
	struct handle h;
	int session = attach_newest();
	int entry;

	if (session < 0 || handle_of(n->dir, n->path, n->flags, &h) < 0)
		return false;
	s = attach_session_at((uint32_t)session);
	entry = control_find(&s->ctl, h.type, h.bytes, h.length);
	if (entry < 0)
		return false;
	n->session = (uint32_t)session;
	n->entry = (uint32_t)entry;
	/* Acquire: pairs with the daemon's store of id, the last of a registration. */
	n->id = atomic_load_acquire(&s->ctl.files[entry].id);
	return n->id != 0;
}

/* Attaches, for a file that carries our mark. */
static void attach_now(void)
{
	struct caller who;
	struct call_mark mark;

	if (mark_enter(&mark, &who) < 0)
		return;
	if (page_lock(&who, true) == 0) {
		(void)attach_locked();
		page_unlock();
	}
	mark_leave(&mark);
}

/* A rule's file that is in no session of this process: its records may live in a lane all the same
 * (another process, or an earlier life of this one). True: *n is filled. */
static bool find_marked(struct named *n)
{
	bool found = false;
	long fd;

	/* O_PATH: its close drops no record lock of the program's. */
	fd = sys_call4(SYS_openat, n->dir, n->path, O_PATH | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (mark_look((int)fd) != MARK_ABSENT) {
		attach_now();
		found = find(n);
		if (!found && !mark_harmless((int)fd)) {
			shim_log('3',
				 "its commits may lie in a pool that nobody serves, not changed",
				 n->path);
			n->shut = true;
			found = true;
		}
	}
	(void)sys_call1(SYS_close, fd);
	return found;
}

bool named_find(int dir, const char *path, int flags, struct named *ret)
{
	if (!desc_table || !path)
		return false;
	page_own();
	*ret = (struct named){ .dir = dir, .path = path, .flags = flags, .r.fd = -1 };
	if (find(ret))
		return true;
	/* A descriptor's name says nothing of the file's. */
	return (config_may_match(path) || strncmp(path, FD_NAME, sizeof(FD_NAME) - 1) == 0) &&
	       find_marked(ret);
}

static bool marked(int dir, const char *path)
{
	long fd = sys_call4(SYS_openat, dir, path, O_PATH | O_CLOEXEC, 0);
	bool found = fd >= 0 && mark_look((int)fd) != MARK_ABSENT;

	if (fd >= 0)
		(void)sys_call1(SYS_close, fd);
	return found;
}

void named_settle(int dir, const char *path)
{
	struct named n = { .dir = dir, .path = path, .flags = AT_SYMLINK_FOLLOW, .r.fd = -1 };
	struct caller who;
	struct call_mark mark;
	struct session *s;
	int keep = errno;

	page_own();
	/* A database that starts again reads before it opens anything for writing. */
	if (attach_newest() < 0 && marked(dir, path))
		attach_now();
	if (find(&n) && mark_enter(&mark, &who) == 0) {
		s = attach_session_at(n.session);
		/* The slot first: a child's look at a lock of its parent's is not at its own. */
		if (attach_slot(n.session, &who) == 0 &&
		    file_left_by_dead(s, &s->ctl.files[n.entry]) && named_open(&n) == 0) {
			/* Not to be put right now: whoever writes it next hears of that. */
			(void)file_settle(s, &who, &n.r);
			named_close(&n);
		}
		mark_leave(&mark);
	}
	errno = keep;
}

bool named_still(const struct named *n)
{
	struct named again = { .dir = n->dir, .path = n->path, .flags = n->flags };

	return find(&again) && again.session == n->session && again.entry == n->entry &&
	       again.id == n->id;
}

/* Kept by an earlier call, or -1. */
static int kept(const struct named *n)
{
	struct stat st;

	if (sys_call4(SYS_newfstatat, n->dir, n->path, &st,
		      n->flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	return others_find(st.st_dev, st.st_ino, -1, OTHERS_KEPT);
}

int named_open(struct named *n)
{
	struct session *s = attach_session_at(n->session);
	int nofollow = n->flags & AT_SYMLINK_FOLLOW ? 0 : O_NOFOLLOW;
	long fd = desc_find_fd(n->session, n->entry, n->id);

	if (fd < 0 && (n->flags & AT_EMPTY_PATH) && !*n->path)
		fd = n->dir;
	if (fd < 0)
		fd = kept(n);
	n->own_fd = fd < 0;
	if (fd < 0)
		fd = sys_call4(SYS_openat, n->dir, n->path,
			       O_RDWR | O_CLOEXEC | O_NONBLOCK | nofollow, 0);
	if (fd < 0)
		fd = sys_call4(SYS_openat, n->dir, n->path, O_PATH | O_CLOEXEC | nofollow, 0);
	if (fd < 0)
		return (int)fd;
	n->r = (struct file_ref){
		.f = &s->ctl.files[n->entry],
		.id = n->id,
		.fd = (int)fd,
		/* Just opened, or not ours to answer for: proves nothing that is in the lane. */
		.open_head = OPEN_HEAD_UNKNOWN,
	};
	return 0;
}

void named_close(struct named *n)
{
	struct stat st;
	int fd = n->r.fd;

	n->r.fd = -1;
	if (!n->own_fd || fd < 0)
		return;
	/* The close of an O_PATH descriptor drops no lock; neither does ours where there is no other. */
	if (!(sys_call2(SYS_fcntl, fd, F_GETFL) & O_PATH) && sys_call2(SYS_fstat, fd, &st) == 0 &&
	    others_find(st.st_dev, st.st_ino, fd, OTHERS_ANY) >= 0)
		desc_keep(fd);
	else
		(void)sys_call1(SYS_close, fd);
}

long named_make(struct named *n, enum named_how how, file_call *call, void *arg)
{
	struct session *s = attach_session_at(n->session);
	struct caller who;
	struct call_mark mark;
	long r = n->shut ? -EIO : mark_enter(&mark, &who);

	if (r < 0)
		return errno_result(r);
	r = attach_slot(n->session, &who);
	if (r == 0)
		r = named_open(n);
	if (r == 0) {
		r = how == NAMED_FENCED	  ? file_fenced(s, &who, &n->r, call, arg)
		    : how == NAMED_BYPASS ? file_enter_bypass(s, &who, &n->r, BYPASS_STREAM)
					  : file_touched(s, &who, &n->r, call, arg);
		if (r == 0 && how == NAMED_BYPASS)
			r = call(arg);
		named_close(n);
	}
	mark_leave(&mark);
	/* Not registered any more: nothing of it can be live. */
	if (r == -ESTALE)
		r = call(arg);
	return errno_result(r);
}
