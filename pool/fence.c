/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RULE F: calls that no record can stand for. Everything older is made durable in the file and fenced
 * off before the call, so that recovery never replays an old record over what the call did.
 * Against heal, destaging and failing disks: tests/models/fence.pml.
 */

#include <errno.h>

#include "base/sys.h"
#include "pool/file_internal.h"
#include "pool/heal.h"
#include "pool/image.h"
#include "pool/pages.h"

/* Two tries: the first sync after a heal may report an old error that the heal has mended. */
#define HEAL_TRIES 2

static int append_fence(struct session *s, const struct caller *who, struct file_ref *r,
			uint64_t below)
{
	const struct append_request fence = { .type = RECORD_FENCE, .offset = below };
	int rc = append_record(s, who, r->f, 0, &fence, NULL);

	if (rc != APPEND_FULL)
		return rc;
	/* Trimmed since the caller looked: a FENCE has nothing to fence off, and no room is kept for it.
	 * Otherwise the reserve holds one for each live file: no room means that the books are broken. */
	return file_live(s, r->f) ? -ENOSPC : 0;
}

/* pages_drop, whose sync is a sync like any other. */
static int drop_pages(struct session *s, struct file_ref *r)
{
	int rc = pages_drop(s, r->fd);

	if (rc < 0)
		file_sync_failed(s, r);
	return rc;
}

static int heal_and_sync(struct session *s, const struct caller *who, struct file_ref *r,
			 const struct file_range *keep)
{
	struct ctl_file *f = r->f;
	bool dropped = false;
	int rc = 0;

	for (int i = 0; i < HEAL_TRIES; i++) {
		/* Seq_cst: pairs with the raise of the daemon's sync, which takes no lock; looked at again
		 * below. */
		uint32_t degraded = atomic_load_seq(&f->degraded);

		rc = heal_around(s, who, r, keep);
		if (rc < 0)
			return rc;
		rc = file_real_sync(s, r, false);
		/* The bytes of `keep` lie nowhere else, so the pages must stay; and where a write-back has
		 * failed they may have gone into blocks that read as zeros after a cut. The file could
		 * not tell either: the caller hears of the error, and the next one heals it all. */
		if (rc == 0 && keep && pages_unwritten(r->fd)) {
			atomic_add_seq(&f->degraded, 1);
			return -EIO;
		}
		if (rc == 0 && !keep && !dropped && pages_unwritten(r->fd)) {
			rc = drop_pages(s, r);
			if (rc < 0)
				return rc;
			dropped = true;
			i--; /* the same again, from pages that are mapped anew */
			continue;
		}
		dropped = false; /* a sync that fails may leave them as they were before */
		if (rc == 0) {
			/* Moved since: somebody's sync failed after our heal began; it counts. */
			if (degraded)
				(void)atomic_cas_seq(&f->degraded, &degraded, 0);
			return 0;
		}
		/* The kernel reports an error once to each description, so this one may be what the
		 * heal has just mended: heal and sync again. Not where bytes without a record may be
		 * what was lost: those no heal brings back, and the program must hear of it. */
		if (keep || atomic_load_acquire(&f->needs_sync) != atomic_load_acquire(&f->synced))
			return rc;
	}
	return rc;
}

int file_fence(struct session *s, const struct caller *who, struct file_ref *r, bool heal,
	       const struct file_range *keep)
{
	struct ctl_file *f = r->f;
	/* Read before the sync: all records of this file below it were written before, under this
	 * lock, and none can come before we let go. */
	uint64_t below = control_head(&s->ctl).head;
	int rc;

	if (heal || atomic_load_seq(&f->degraded) || file_oldest_live(s, f) < r->open_head)
		rc = heal_and_sync(s, who, r, keep);
	else
		rc = file_real_sync(s, r, false);
	if (rc < 0)
		return rc;

	return append_fence(s, who, r, below);
}

/* Where nothing is live. The call may be made again: its bytes must not land in pages that a failed sync
 * has left behind, and that no sync brings to the disk. */
static int sync_alone(struct session *s, struct file_ref *r)
{
	int rc = file_real_sync(s, r, false);

	return rc == 0 && pages_unwritten(r->fd) ? drop_pages(s, r) : rc;
}

int file_put_right(struct session *s, const struct caller *who, struct file_ref *r)
{
	/* Relaxed: acquired with the lock from who is dead; stored in write_recorded. */
	const struct file_range cut = { atomic_load_relaxed(&r->f->write_offset),
					atomic_load_relaxed(&r->f->write_length) };
	const struct file_range *keep = NULL;
	struct stat st;
	uint64_t end;
	int rc;

	image_drop(s, r->f);
	rc = file_look(s, r, &st);
	if (rc < 0)
		return rc;
	/* Bytes of a write whose owner died before its record: newer than every record, if it came so
	 * far. Where a sync has failed, or may have before this description was opened, the page cache
	 * may hold less than what was acknowledged there: that comes first. */
	if (cut.length && !atomic_load_seq(&r->f->degraded) &&
	    file_oldest_live(s, r->f) >= r->open_head &&
	    !add_overflow(cut.offset, cut.length, &end))
		keep = &cut;
	/* Even with nothing live: the call in the middle may have been made and not been synced. */
	rc = file_live(s, r->f) ? file_fence(s, who, r, !keep, keep) : sync_alone(s, r);
	if (rc == 0) {
		atomic_store_relaxed(&r->f->write_length, 0);
		atomic_store_release(&r->f->op, 0);
	}
	return rc;
}

long file_fenced_locked(struct session *s, const struct caller *who, struct file_ref *r,
			file_call *call, void *arg)
{
	struct ctl_file *f = r->f;
	struct stat st;
	long result = 0;
	int rc;

	rc = file_look(s, r, &st);
	/* A write that failed may have left its pages behind, and no op. */
	if (rc == 0 && atomic_load_seq(&f->degraded) && !file_live(s, f))
		rc = sync_alone(s, r);
	if (rc < 0)
		return rc;

	/* Relaxed: append compares it under the lane lock, and our FENCE comes by the same lock. */
	atomic_add_relaxed(&s->ctl.hot->rule_f, 1);
	image_drop(s, f);
	/* Before anything: who takes the lock from our dead hands heals, syncs and fences. Release
	 * pairs with file_sync's look without the lock. */
	atomic_store_release(&f->op, 1);

	if (file_live(s, f)) {
		rc = file_fence(s, who, r, false, NULL);
		if (rc < 0) {
			/* Nothing was done yet, so nothing is left to put right. */
			atomic_store_release(&f->op, 0);
			return rc;
		}
	}
	if (call) {
		result = call(arg);
		rc = file_real_sync(s, r, false);
		if (rc < 0)
			return result < 0 ? result : rc; /* op stays set */
	}
	atomic_store_release(&f->op, 0);
	return result;
}

long file_fenced(struct session *s, const struct caller *who, struct file_ref *r, file_call *call,
		 void *arg)
{
	long result = file_lock(s, who, r);

	if (result < 0)
		return result;
	result = file_fenced_locked(s, who, r, call, arg);
	file_unlock(s, r);
	return result;
}

int file_bypass_locked(struct session *s, const struct caller *who, struct file_ref *r,
		       uint32_t reason, const struct file_range *keep)
{
	struct ctl_file *f = r->f;
	int rc = 0;

	/* Acquire pairs with the release below and in file_leave_bypass_locked; reason is under the lock. */
	if (atomic_load_acquire(&f->state) == FILE_BYPASS) {
		uint32_t old = atomic_load_relaxed(&f->reason);

		/* "For good" outlasts what the daemon takes the file back of. */
		if ((old == BYPASS_LANE_FULL || old == BYPASS_TOKEN) && reason != BYPASS_LANE_FULL)
			atomic_store_relaxed(&f->reason, reason);
		return 0;
	}

	/* Both as in file_fenced_locked. */
	atomic_add_relaxed(&s->ctl.hot->rule_f, 1);
	image_drop(s, f);
	atomic_store_release(&f->op, 1);
	if (file_live(s, f))
		rc = file_fence(s, who, r, false, keep);
	if (rc == 0) {
		/* Relaxed: for status, and ordered by the state's release. */
		atomic_store_relaxed(&f->reason, reason);
		atomic_store_relaxed(&f->bypass_ns, now_realtime_ns());
		/* Release pairs with file_sync: the FENCE is durable before any write goes without a
		 * record, and no fsync is skipped for one that did. */
		atomic_store_release(&f->state, FILE_BYPASS);
	}
	atomic_store_release(&f->op, 0);
	return rc;
}

int file_enter_bypass(struct session *s, const struct caller *who, struct file_ref *r,
		      uint32_t reason)
{
	struct stat st;
	int rc;

	rc = file_lock(s, who, r);
	if (rc < 0)
		return rc;
	rc = file_look(s, r, &st);
	if (rc == 0)
		rc = file_bypass_locked(s, who, r, reason, NULL);
	file_unlock(s, r);
	return rc;
}

void file_leave_bypass_locked(struct session *s, struct file_ref *r)
{
	struct ctl_file *f = r->f;

	(void)s;
	/* A write in bypass may still lie un-synced in the page cache: the next fsync must be real.
	 * Raised before the state is stored: pairs with file_sync, which reads the state first. */
	atomic_add_seq(&f->needs_sync, 1);
	atomic_store_relaxed(&f->reason, BYPASS_NONE);
	atomic_store_release(&f->state, FILE_LANE);
}

/* A TOUCH is due after the call: make sure that there is room for one, else have nothing live. */
static int room_for_touch(struct session *s, const struct caller *who, struct file_ref *r)
{
	int rc = file_touch_before(s, who, r);

	if (rc == 0 && file_live(s, r->f)) {
		rc = space_reserve(s, who, space_for(0));
		if (rc == SPACE_OK)
			return space_release(s, who, space_for(0));
		rc = rc == SPACE_FULL ? -ENOSPC : rc;
	}
	return rc == -ENOSPC ? file_fence(s, who, r, false, NULL) : rc;
}

long file_touched(struct session *s, const struct caller *who, struct file_ref *r, file_call *call,
		  void *arg)
{
	struct stat st;
	long result;
	int rc;

	rc = file_lock(s, who, r);
	if (rc < 0)
		return rc;
	rc = file_look(s, r, &st);
	if (rc == 0)
		rc = room_for_touch(s, who, r);
	if (rc < 0) {
		file_unlock(s, r);
		return rc;
	}

	/* Raised before and after: an fsync that begins between the two, or whose sync began before
	 * the call was made, must not count as having covered it. */
	atomic_add_seq(&r->f->needs_sync, 1);
	result = call(arg);
	atomic_add_seq(&r->f->needs_sync, 1);

	/* The ctime that the call has just set must not look like a stranger's. */
	if (result >= 0 && file_touch_now(s, who, r) == -ENOSPC)
		(void)file_fence(s, who, r, false, NULL);
	file_unlock(s, r);
	return result;
}

long file_unlinking_locked(struct session *s, const struct caller *who, struct file_ref *r,
			   file_call *call, void *arg)
{
	const struct append_request unlink = { .type = RECORD_UNLINK };
	struct ctl_file *f = r->f;
	struct stat st;
	bool last_name;
	long result;
	int rc;

	rc = file_look(s, r, &st);
	if (rc < 0)
		return rc;
	last_name = st.st_nlink == 1;

	if (file_live(s, f)) {
		if (last_name) {
			rc = append_record(s, who, f, 0, &unlink, NULL);
			/* Trimmed since we looked: recovery will not ask for its handle. */
			if (rc == APPEND_FULL)
				rc = file_live(s, f) ? file_fence(s, who, r, false, NULL) : 0;
		} else {
			rc = room_for_touch(s, who, r);
		}
		if (rc < 0)
			return rc;
	}
	/* Release: the record first. Pairs with the daemon's look (words_file, and after a restart). */
	if (last_name)
		atomic_store_release(&f->unlinked, 1);

	result = call(arg);
	if (result < 0) {
		/* Still there: a stale handle later on would be a surprise. */
		if (last_name)
			atomic_store_release(&f->unlinked, 0);
		return result;
	}
	if (!last_name && file_touch_now(s, who, r) == -ENOSPC)
		(void)file_fence(s, who, r, false, NULL);
	return result;
}
