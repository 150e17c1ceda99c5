/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of tokens, and of the ways in and out of bypass: tests/models/token.pml. */
#include "client/preload/takeover.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/sys.h"
#include "client/preload/attach.h"
#include "client/preload/fork.h"
#include "client/preload/handle.h"
#include "client/preload/link.h"
#include "client/preload/log.h"

#define RETRY_NS UINT64_C(1000000000) /* a file in bypass tries to register that often */

/* The file's entry in a session's control file: fills d and makes it DESC_ENTRY. False: none. */
static bool adopt(struct desc *d, uint32_t session, int fd)
{
	const struct session *s = attach_session_at(session);
	struct handle h;
	int entry;

	if (handle_of(fd, "", AT_EMPTY_PATH, &h) < 0)
		return false;
	entry = control_find(&s->ctl, h.type, h.bytes, h.length);
	if (entry < 0)
		return false;
	d->session = session;
	d->entry = (uint32_t)entry;
	/* Acquire: pairs with the daemon's store of id, the last of a registration. */
	d->id = atomic_load_acquire(&s->ctl.files[entry].id);
	/* An fsync of this description proves newer records only: noted at its first lock. */
	atomic_store_relaxed(&d->open_head, OPEN_HEAD_UNKNOWN);
	if (d->id == 0)
		return false;
	/* Seq_cst, like all that says "kind": pairs with run_token. */
	atomic_store_seq(&d->kind, DESC_ENTRY);
	return true;
}

/* A session, then the file's entry in it. 0, or a negative errno; -EBUSY: no session, since the domain is
 * held or quarantined. A database that runs goes on under a hold: its new files go to bypass. */
static int enroll_locked(struct desc *d, int fd, const char *path)
{
	struct wire_register_reply reply;
	int session = attach_locked();
	int r = -EPIPE;

	if (session < 0)
		return session;
	if (adopt(d, (uint32_t)session, fd))
		return 0;
	/* Twice: the connection may be one to a daemon that has been replaced. */
	for (int i = 0; i < 2; i++) {
		r = attach_connection((uint32_t)session);
		if (r == 0)
			r = link_register(fd, path, &reply);
		if (r != -EPIPE)
			break;
	}
	/* The reply's index is not needed: the entry is found by what the file is. */
	if (adopt(d, (uint32_t)session, fd))
		return 0;
	return r == -EBUSY || r >= 0 ? -EPROTO : r;
}

static int enroll(struct desc *d, int fd, const char *path, const struct caller *who)
{
	int r = page_lock(who, true);

	if (r < 0)
		return r;
	r = enroll_locked(d, fd, path);
	page_unlock();
	return r;
}

/* The token, then the mark: in this order. 0: in bypass, or an entry after all; -EIO. */
static int bypass_with_token(struct desc *d, int fd)
{
	int token = token_take(d->dev, d->ino);

	/* No folder: no daemon has run since the machine started, and it makes the folder before it
	 * registers anything. The token is tried again with each attempt to register. Without one for
	 * another reason the file must not be written. */
	if (token < 0 && token != -ENOENT && token != -ENOTDIR)
		return token == -ENFILE || token == -EMFILE ? token : -EIO;
	atomic_store_relaxed(&d->token, token < 0 ? -1 : token);
	d->page_key = page->key;
	d->forks = fork_count();
	if (mark_look(fd) != MARK_ABSENT) {
		int session = attach_newest();

		/* The daemon keeps the token until an entry is there: published before ours was, or
		 * never while we have it. */
		if (session >= 0 && adopt(d, (uint32_t)session, fd)) {
			takeover_token_unused(d);
			return 0;
		}
		/* A daemon that died between mark and entry leaves a mark of our own lane: a file
		 * without an entry has no record there, and the running database goes on. */
		if (!mark_harmless(fd))
			return -EIO;
	}
	atomic_store_seq(&d->kind, DESC_TOKEN);
	return 0;
}

int takeover(int fd, const struct stat *st, const char *path, int asked, bool inherit,
	     const struct caller *who)
{
	struct desc *d = desc_new();
	int r;

	if (!d)
		return -EMFILE;
	d->dev = st->st_dev;
	d->ino = st->st_ino;
	atomic_store_relaxed(&d->asked, asked & (O_DIRECT | O_DSYNC | O_SYNC | O_APPEND));

	r = enroll(d, fd, path, who);
	if (r == -EBUSY) {
		shim_log('3', "the domain is held or quarantined, not opened for writing", path);
		r = -EIO;
	} else if (r == -EMFILE) {
		shim_log('3', "no free session slot, not opened for writing", path);
		r = -EIO;
	} else if (r < 0) {
		r = bypass_with_token(d, fd);
		if (r == -EIO)
			shim_log('3',
				 "its commits may lie in a pool that nobody serves, not opened",
				 path);
		else if (r == 0 && atomic_load_relaxed(&d->kind) == DESC_TOKEN)
			shim_log('4', "not registered with pmemlogd, written to the disk", path);
	}
	if (r == 0)
		r = desc_set(fd, d, inherit);
	if (r < 0)
		desc_put(d);
	return r;
}

void takeover_token_unused(struct desc *d)
{
	int32_t token;

	if (atomic_load_seq(&d->kind) != DESC_ENTRY || atomic_load_seq(&d->users) != 0)
		return;
	token = atomic_xchg_seq(&d->token, -1);
	if (token >= 0)
		desc_unhide_close(token);
}

/* One try a second for the process: the caller that moves the time makes it. */
static bool retry_due(void)
{
	uint64_t next = atomic_load_relaxed(&page->next_retry_ns);
	uint64_t now = now_monotonic_ns();

	return now >= next && atomic_cas_seq(&page->next_retry_ns, &next, now + RETRY_NS);
}

/* A token for a description that has none so far: while calls under way write without a lock, the daemon
 * must not think the file's sessions alone with it. False: still no folder. */
static bool token_now(struct desc *d)
{
	int32_t none = -1;
	int r = token_take(d->dev, d->ino);

	if (r < 0)
		return false;
	d->page_key = page->key;
	d->forks = fork_count();
	/* Another thread was quicker. */
	if (!atomic_cas_seq(&d->token, &none, r))
		desc_unhide_close(r);
	return true;
}

/* Under the attach lock, with a token. */
static void retry_locked(struct call *c)
{
	struct desc *d = c->d;
	char path[SHIM_PATH_MAX];
	int r;

	if (handle_path(c->r.fd, path, sizeof(path)) < 0)
		path[0] = '\0';
	r = enroll_locked(d, c->r.fd, path);
	/* The answer will not be another one tomorrow. */
	if (r == -EOPNOTSUPP || r == -EINVAL)
		atomic_store_relaxed(&d->stay, 1);
}

void takeover_retry(struct call *c)
{
	struct desc *d = c->d;

	bool bare = atomic_load_relaxed(&d->token) < 0;

	if (atomic_load_relaxed(&d->stay))
		return;
	/* Without a token nothing keeps the daemon from letting others log the file: asked for before each
	 * call. Else once a second, and not where a copy of this description lives in another process,
	 * without a session and a lock. */
	if (bare) {
		if (!token_now(d))
			return;
	} else if (!retry_due() || d->page_key != page->key || d->forks != fork_count()) {
		return;
	}
	if (page_lock(&c->who, bare) < 0)
		return;
	if (atomic_load_seq(&d->kind) == DESC_TOKEN)
		retry_locked(c);
	page_unlock();
	takeover_token_unused(d);
}

/* Out of the lane once, for good: the entry that it has now must say so, too. */
static int stay_out(const struct call *c)
{
	const struct desc *d = c->d;
	struct session *s;
	struct file_ref r = { .fd = c->r.fd, .id = d->id, .asked_flags = c->r.asked_flags };
	int rc;

	if (!atomic_load_relaxed(&d->stay) || atomic_load_seq(&d->kind) != DESC_ENTRY)
		return 0;
	rc = attach_slot(d->session, &c->who);
	if (rc < 0)
		return rc == -ESTALE ? 0 : -EIO;
	s = attach_session_at(d->session);
	r.f = &s->ctl.files[d->entry];
	r.open_head = atomic_load_relaxed(&d->open_head);
	rc = file_enter_bypass(s, &c->who, &r, BYPASS_STREAM);
	return rc == -ESTALE ? 0 : rc; /* gone again: the next round finds out */
}

long takeover_renew(struct call *c)
{
	struct desc *d = c->d;
	struct stat st;
	int r;

	/* Its records are trimmed and its last name is gone: nothing will ever need to be durable. */
	r = (int)sys_call2(SYS_fstat, c->r.fd, &st);
	if (r == 0 && st.st_nlink == 0) {
		atomic_store_relaxed(&d->stay, 1);
		atomic_store_seq(&d->kind, DESC_TOKEN);
		return 0;
	}
	r = page_lock(&c->who, true);
	if (r < 0)
		return r;
	/* Another thread may have come to bypass meanwhile; a registration is simply found again. */
	if (atomic_load_seq(&d->kind) == DESC_ENTRY) {
		r = enroll_locked(d, c->r.fd, "");
		if (r == -EBUSY)
			r = -EIO;
		else if (r < 0)
			r = bypass_with_token(d, c->r.fd);
	}
	page_unlock();
	return r < 0 ? r : stay_out(c);
}
