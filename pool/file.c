/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file's lock, real syncs and signs of life: what every call on a registered file needs. */

#include "pool/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

#include "base/sys.h"
#include "pool/file_internal.h"
#include "pool/slot.h"
#include "pool/slot_word.h"

#define DAEMON_LOCK_NS UINT64_C(1000000000)

int file_look(struct session *s, struct file_ref *r, struct stat *ret)
{
	const struct ctl_file *f = r->f;

	if (s->io->fstat(r->fd, ret) < 0)
		return -ESTALE;
	if (ret->st_ino != f->ino || major(ret->st_dev) != f->dev_major ||
	    minor(ret->st_dev) != f->dev_minor)
		return -ESTALE;
	return 0;
}

int file_lock(struct session *s, const struct caller *who, struct file_ref *r)
{
	uint64_t timeout = s->is_daemon ? DAEMON_LOCK_NS : LOCK_FOREVER;
	int rc;

	rc = lock_acquire(&s->ctl, &r->f->lock, &s->me, who->tid, timeout, who->stale_self);
	if (rc < 0)
		return rc;

	/* Acquire pairs with the daemon's release of a new registration: an entry that was given to
	 * another file must not be used for this one. */
	if (atomic_load_acquire(&r->f->id) != r->id) {
		lock_release(&r->f->lock);
		return -ESTALE;
	}

	/* Not at the open, where another's write may be under way: lost by a write-back that failed
	 * before the open, and recorded after it, so that no sync of this description tells. */
	if (r->open_head == OPEN_HEAD_UNKNOWN)
		r->open_head = control_head(&s->ctl).head;

	if (rc == LOCK_OWNER_DIED) {
		/* Dead between a write and its record: what it wrote may have been read already, and
		 * who has read it and syncs may build on it. Put right like an interrupted RULE F. */
		if (atomic_load_relaxed(&r->f->write_length))
			atomic_store_relaxed(&r->f->op, 1);
		/* The dead call's reservation goes now, or writers would wait for room that nobody
		 * uses. A failure leaves it to the next owner death. */
		(void)space_recount(s, who);
	}

	/* Release by the owner, acquire by its lock: plain order is enough under the lock, the word
	 * is atomic for file_sync's look without it. */
	if (atomic_load_relaxed(&r->f->op)) {
		rc = file_put_right(s, who, r);
		if (rc < 0) {
			lock_release(&r->f->lock);
			return rc == -ESTALE || rc == -ETIMEDOUT ? rc : -EIO;
		}
	}
	return 0;
}

void file_unlock(struct session *s, struct file_ref *r)
{
	(void)s;
	lock_release(&r->f->lock);
}

bool file_left_by_dead(const struct session *s, const struct ctl_file *f)
{
	/* Acquire: pairs with lock_release, after which op is what the last owner left. */
	uint64_t word = atomic_load_acquire(&f->lock.word);

	if (!word)
		return atomic_load_acquire(&f->op) != 0;
	/* Of our own slot's lock the kernel tells nothing, and who holds it is alive; but the slot may have
	 * been the dead one's. */
	if (word_slot(word) == s->me.slot && word_generation(word) == s->me.generation)
		return false;
	return word_slot(word) == s->me.slot || slot_dead(&s->ctl, word);
}

int file_settle(struct session *s, const struct caller *who, struct file_ref *r)
{
	int rc = file_left_by_dead(s, r->f) ? file_lock(s, who, r) : -EALREADY;

	if (rc == 0)
		file_unlock(s, r);
	return rc == -EALREADY ? 0 : rc;
}

void file_sync_failed(struct session *s, struct file_ref *r)
{
	/* Seq_cst, like every raise: a heal clears it only unmoved. */
	atomic_add_seq(&r->f->degraded, 1);
	/* The kernel may have dropped pages and now calls them clean: from here on this description
	 * proves newer records only. */
	r->open_head = control_head(&s->ctl).head;
}

int file_real_sync(struct session *s, struct file_ref *r, bool data_only)
{
	struct ctl_file *f = r->f;
	/* Acquire pairs with the raises around un-synced calls: what is counted here happened before
	 * the sync begins, so the sync covers it. */
	uint64_t covered = atomic_load_acquire(&f->needs_sync);
	int rc;

	do {
		rc = data_only ? s->io->fdatasync(r->fd) : s->io->fsync(r->fd);
	} while (rc == -EINTR);

	if (rc < 0) {
		file_sync_failed(s, r);
		return rc;
	}
	/* fdatasync does not cover the metadata calls that are counted too. */
	if (!data_only)
		atomic_store_release(&f->synced, covered);
	return 0;
}

int file_sync_locked(struct session *s, const struct caller *who, struct file_ref *r)
{
	(void)who;
	return file_real_sync(s, r, false);
}

/* All that was written has its record, and nothing else is to be made durable. *data_only becomes false
 * where a real sync is due for the library's own reasons. */
static bool nothing_to_sync(const struct file_ref *r, bool *data_only)
{
	const struct ctl_file *f = r->f;
	uint64_t needed;

	/* State first: leaving bypass raises needs_sync before it stores `lane` (release), so whoever
	 * sees the new state sees the raise. */
	if (atomic_load_acquire(&f->state) != FILE_LANE || atomic_load_acquire(&f->op) != 0)
		return false;
	needed = atomic_load_acquire(&f->needs_sync);
	if (atomic_load_acquire(&f->synced) == needed && atomic_load_acquire(&f->id) == r->id)
		return true;
	*data_only = false;
	return false;
}

int file_sync(struct session *s, const struct caller *who, struct file_ref *r, bool data_only)
{
	struct ctl_file *f = r->f;
	struct stat st;
	int rc;

	/* A locked file has a write under way, or one whose owner died in it: its bytes may have been
	 * read already, and have no record yet. Whoever takes the lock puts that right. Acquire: pairs
	 * with lock_release. */
	if (atomic_load_acquire(&f->lock.word) == 0 && nothing_to_sync(r, &data_only))
		return 0;

	rc = file_lock(s, who, r);
	if (rc < 0)
		return rc;
	if (nothing_to_sync(r, &data_only)) {
		file_unlock(s, r);
		return 0;
	}
	rc = file_look(s, r, &st);
	if (rc == 0)
		rc = file_real_sync(s, r, data_only);
	file_unlock(s, r);
	return rc;
}

int file_touch_now(struct session *s, const struct caller *who, struct file_ref *r)
{
	struct append_request touch = { .type = RECORD_TOUCH, .reserved = space_for(0) };
	int rc;

	if (!file_live(s, r->f))
		return 0;
	/* Reserved like a write, so that it never takes room which another call counts on. */
	rc = space_reserve(s, who, touch.reserved);
	if (rc == SPACE_FULL)
		return -ENOSPC;
	if (rc < 0)
		return rc;
	rc = append_record(s, who, r->f, 0, &touch, NULL);
	return rc == APPEND_FULL ? -ENOSPC : rc;
}

int file_touch_before(struct session *s, const struct caller *who, struct file_ref *r)
{
	/* Relaxed: a value that is a little old costs one TOUCH. */
	uint64_t record = atomic_load_relaxed(&s->ctl.hot->last_ns);
	uint64_t beat = atomic_load_relaxed(&s->ctl.hot->beat_ns);
	uint64_t newest = max_of(record, beat);
	uint64_t now;

	if (!file_live(s, r->f))
		return 0;
	now = now_realtime_ns();
	/* A clock that went back gives a ctime before the records: nothing to explain. */
	if (now <= newest || now - newest <= FILE_TOUCH_NS)
		return 0;
	return file_touch_now(s, who, r);
}
