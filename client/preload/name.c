/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rename, link, unlink. A name's end is told to the lane before it happens (UNLINK); a name's change
 * afterwards (TOUCH), and then it is made durable, since the program's own fsync will do nothing.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"
#include "client/preload/attach.h"
#include "client/preload/desc.h"
#include "client/preload/named.h"
#include "client/preload/open.h"

#define TRIES 16 /* a name that somebody else keeps moving */
#define AGAIN (-EAGAIN)

/* One call that moves or removes names. Either file may be unregistered (NULL). */
struct name_call {
	long number; /* SYS_renameat2, SYS_linkat, SYS_unlinkat */
	int from_dir, to_dir;
	const char *from, *to;
	unsigned flags;
	struct named *moved;   /* gets or changes a name */
	struct named *dropped; /* loses a name */
	const struct caller *who;
};

static long make(void *arg)
{
	const struct name_call *a = arg;

	if (a->number == SYS_unlinkat)
		return sys_call3(SYS_unlinkat, a->from_dir, a->from, a->flags);
	return sys_call5(a->number, a->from_dir, a->from, a->to_dir, a->to, a->flags);
}

static bool names_moved(const struct name_call *a)
{
	return (a->moved && !named_still(a->moved)) || (a->dropped && !named_still(a->dropped));
}

/* Under the locks of all files concerned. */
static long make_locked(void *arg)
{
	struct name_call *a = arg;

	if (names_moved(a))
		return AGAIN;
	if (a->dropped)
		return file_unlinking_locked(attach_session_at(a->dropped->session), a->who,
					     &a->dropped->r, make, a);
	return make(a);
}

static long drop_locked(void *arg)
{
	struct name_call *a = arg;
	struct session *s = attach_session_at(a->dropped->session);
	long r = file_lock(s, a->who, &a->dropped->r);

	if (r < 0)
		return r;
	r = make_locked(a);
	file_unlock(s, &a->dropped->r);
	return r;
}

static long move(struct name_call *a, file_call *call)
{
	return file_touched(attach_session_at(a->moved->session), a->who, &a->moved->r, call, a);
}

/* Two file locks in the order of their entries. */
static long make_in_order(struct name_call *a)
{
	struct session *s;
	long r;

	if (!a->moved)
		return drop_locked(a);
	if (!a->dropped)
		return move(a, make_locked);
	if (a->moved->entry < a->dropped->entry)
		return move(a, drop_locked);

	s = attach_session_at(a->dropped->session);
	r = file_lock(s, a->who, &a->dropped->r);
	if (r < 0)
		return r;
	r = move(a, make_locked);
	file_unlock(s, &a->dropped->r);
	return r;
}

static long sync_folder_of(int dir, const char *path)
{
	char folder[SHIM_PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	long fd, r;

	if (n >= sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, path, n);
	folder[n] = '\0';
	fd = sys_call4(SYS_openat, dir, slash ? (n ? folder : "/") : ".",
		       O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	r = sys_call1(SYS_fsync, fd);
	(void)sys_call1(SYS_close, fd);
	return r;
}

/* fsync of the file and of the folder that has its new name: what an fsync by the program would have
 * brought about. An error is not told: the call itself has been made. */
static void settle_name(struct name_call *a)
{
	struct session *s = attach_session_at(a->moved->session);

	if (file_lock(s, a->who, &a->moved->r) == 0) {
		(void)file_sync_locked(s, a->who, &a->moved->r);
		file_unlock(s, &a->moved->r);
	}
	/* Not done (a folder that its owner may not read, a failing disk): then the program's own fsync must
	 * be a real one. */
	if (sync_folder_of(a->to_dir, a->to) < 0)
		atomic_add_seq(&a->moved->r.f->needs_sync, 1);
}

static long open_both(struct name_call *a)
{
	long r = 0;

	if (a->moved)
		r = attach_slot(a->moved->session, a->who);
	if (r == 0 && a->dropped)
		r = attach_slot(a->dropped->session, a->who);
	if (r == 0 && a->moved)
		r = named_open(a->moved);
	if (r == 0 && a->dropped)
		r = named_open(a->dropped);
	return r;
}

static long run_once(struct name_call *a)
{
	long r = open_both(a);

	if (r == 0) {
		r = make_in_order(a);
		if (r >= 0 && a->moved)
			settle_name(a);
	}
	if (a->moved)
		named_close(a->moved);
	if (a->dropped)
		named_close(a->dropped);
	return r;
}

/* Whom does it concern? True if anybody of ours. */
static bool look(struct name_call *a, struct named *from, struct named *to)
{
	int follow =
		a->number == SYS_linkat ? (int)a->flags & (AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) : 0;
	bool has_from = named_find(a->from_dir, a->from, follow, from);

	a->moved = NULL;
	a->dropped = NULL;
	if (a->number == SYS_unlinkat) {
		a->dropped = has_from ? from : NULL;
		return has_from;
	}
	a->moved = has_from ? from : NULL;
	/* RENAME_EXCHANGE drops nothing: its second file is touched by a call of its own. */
	if (a->number == SYS_renameat2 && !(a->flags & RENAME_EXCHANGE) &&
	    named_find(a->to_dir, a->to, 0, to)) {
		/* Two names of one file: rename does nothing. */
		if (!has_from || to->shut || to->entry != from->entry ||
		    to->session != from->session)
			a->dropped = to;
	}
	return a->moved || a->dropped;
}

static bool shut(const struct name_call *a)
{
	return (a->moved && a->moved->shut) || (a->dropped && a->dropped->shut);
}

/* libc's convention, or *ret_pass: none of our files is concerned. */
static int run(struct name_call *a, bool *ret_pass)
{
	struct named from, to;
	struct caller who;
	struct call_mark mark;
	long r = AGAIN;

	*ret_pass = false;
	for (int i = 0; i < TRIES && (r == AGAIN || r == -ESTALE); i++) {
		if (!look(a, &from, &to)) {
			*ret_pass = true;
			return 0;
		}
		r = mark_enter(&mark, &who);
		if (r < 0)
			break;
		a->who = &who;
		r = shut(a) ? -EIO : run_once(a);
		mark_leave(&mark);
	}
	return (int)errno_result(r == AGAIN || r == -ESTALE ? -EIO : r);
}

static int rename_any(int from_dir, const char *from, int to_dir, const char *to, unsigned flags,
		      bool *ret_pass)
{
	struct name_call a = { .number = SYS_renameat2,
			       .from_dir = from_dir,
			       .from = from,
			       .to_dir = to_dir,
			       .to = to,
			       .flags = flags };

	return run(&a, ret_pass);
}

/*
 * A name has been given. It may be a rule's, of a file that this process writes past us. And if the file is none of
 * ours, what comes next may count on it: MySQL renames the list of its binlogs, syncs no folder, and commits
 * to the new one, whose sync took the rename along in the file system's journal. It does nothing now, so the
 * folder is synced here; an error is not told, the call itself has been made. Returns r.
 */
static int arrived(int dir, const char *path, int r, bool passed)
{
	int keep = errno;

	if (r != 0 || !desc_table)
		return r;
	open_named_now(dir, path);
	if (passed)
		(void)sync_folder_of(dir, path);
	errno = keep;
	return r;
}

static int shim_rename(const char *from, const char *to)
{
	bool pass = true;
	int r = 0;

	if (desc_table)
		r = rename_any(AT_FDCWD, from, AT_FDCWD, to, 0, &pass);
	if (pass)
		r = real.rename(from, to);
	return arrived(AT_FDCWD, to, r, pass);
}

static int shim_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	bool pass = true;
	int r = 0;

	if (desc_table)
		r = rename_any(from_dir, from, to_dir, to, 0, &pass);
	if (pass)
		r = real.renameat(from_dir, from, to_dir, to);
	return arrived(to_dir, to, r, pass);
}

static long nothing(void *arg)
{
	(void)arg;
	return 0;
}

static int shim_renameat2(int from_dir, const char *from, int to_dir, const char *to,
			  unsigned flags)
{
	struct named other;
	bool pass = true;
	int r = 0;

	if (desc_table)
		r = rename_any(from_dir, from, to_dir, to, flags, &pass);
	if (pass)
		r = (int)errno_result(sys_call5(SYS_renameat2, from_dir, from, to_dir, to, flags));
	/* What stood there has the first name now. */
	if (r == 0 && (flags & RENAME_EXCHANGE) && named_find(from_dir, from, 0, &other))
		(void)named_make(&other, NAMED_TOUCHED, nothing, NULL);
	if (flags & RENAME_EXCHANGE)
		(void)arrived(from_dir, from, r, pass);
	return arrived(to_dir, to, r, pass);
}

static int shim_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	struct name_call a = { .number = SYS_linkat,
			       .from_dir = from_dir,
			       .from = from,
			       .to_dir = to_dir,
			       .to = to,
			       .flags = (unsigned)flags };
	bool pass = true;
	int r = 0;

	if (desc_table)
		r = run(&a, &pass);
	if (pass)
		r = (int)errno_result(sys_call5(SYS_linkat, from_dir, from, to_dir, to, flags));
	return arrived(to_dir, to, r, pass);
}

static int shim_link(const char *from, const char *to)
{
	if (!desc_table)
		return real.link(from, to);
	return shim_linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int unlink_any(int dir, const char *path, int flags, bool *ret_pass)
{
	struct name_call a = {
		.number = SYS_unlinkat, .from_dir = dir, .from = path, .flags = (unsigned)flags
	};

	return run(&a, ret_pass);
}

static int shim_unlink(const char *path)
{
	bool pass = true;
	int r = 0;

	if (desc_table)
		r = unlink_any(AT_FDCWD, path, 0, &pass);
	return pass ? real.unlink(path) : r;
}

static int shim_unlinkat(int dir, const char *path, int flags)
{
	bool pass = true;
	int r = 0;

	if (desc_table && !(flags & AT_REMOVEDIR))
		r = unlink_any(dir, path, flags, &pass);
	return pass ? real.unlinkat(dir, path, flags) : r;
}

/* libc's own calls its own unlink. */
static int shim_remove(const char *path)
{
	int keep = errno;
	int r = shim_unlink(path);

	if (r == 0 || (errno != EISDIR && errno != EPERM))
		return r;
	errno = keep;
	return (int)errno_result(sys_call3(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

#define FAMILY_NAME
#include "client/preload/export.h"
