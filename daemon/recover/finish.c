/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "daemon/log.h"
#include "daemon/recover/recovery.h"
#include "pool/dir/register.h"
#include "pool/guard.h"

static int trim(struct lane *l, uint64_t tail, uint32_t chain)
{
	lane_tail_write(l, tail, chain);
	return 0;
}

static int reset_beat(struct lane *l, uint64_t head)
{
	lane_beat_write(l, 0, head);
	return 0;
}

/* The jump of a guard may not run over locals of the caller. */
static int trim_guarded(struct lane *l, uint64_t tail, uint32_t chain)
{
	return GUARD(trim(l, tail, chain)) < 0 ? -EIO : 0;
}

static int renew_incarnation(struct recovery *r)
{
	return pool_lane_renew(r->pool, r->index, &r->domain, &r->lane) < 0 ? -EIO : 0;
}

static int beat_guarded(struct lane *l, uint64_t head)
{
	return GUARD(reset_beat(l, head)) < 0 ? -EIO : 0;
}

static void note_left(struct recovery *r, const char *path)
{
	log_event(
		LOG_WARNING, NULL, r->domain.name, path,
		"could not be reached: it still has our owner mark (recover --adopt takes it off) and, if "
		"it was quarantined, the immutable attribute (chattr -i)");
	if (!r->left)
		r->left = json_object_new_array();
	if (r->left)
		json_object_array_add(r->left, json_object_new_string(path));
}

/*
 * Marks off, entries out. A file that cannot be reached keeps its mark, which is ours and does no harm: the
 * next registration stamps it anew. It is told, since without a daemon the file is not opened for writing.
 */
static int release_files(struct recovery *r)
{
	struct pool_file entry;
	uint32_t from = 0;
	int index;

	while ((index = catalog_file_next(r->pool, r->domain.lane, from, &entry)) >= 0) {
		cleanup_close int fd = -1;
		bool log = recovery_is_log(&entry);
		int found = log ? -EIO : identity_open(&entry, O_RDONLY, &fd);
		int result = -EIO;

		from = (uint32_t)index + 1;
		if (log) {
			/* Its meta says where it ends once its entry is gone: without that, another time. */
			result = recovery_log_release(r, &entry, (uint32_t)index);
			if (result < 0)
				return result;
			continue;
		}
		if (found == IDENTITY_OK)
			result = register_release(r->pool, fd, (uint32_t)index);
		if (result < 0) {
			if (found != IDENTITY_STALE)
				note_left(r, entry.path);
			result = catalog_file_drop(r->pool, (uint32_t)index);
		}
		if (result < 0)
			return result;
	}
	return 0;
}

static int clear_verdict(struct recovery *r)
{
	struct pool_domain *d = &r->domain;
	int index;

	d->verdict = VERDICT_NONE;
	d->flags = 0;
	memset(d->reason, 0, sizeof(d->reason));
	/* No control file belongs to the lane any more. */
	memset(d->boot_id, 0, sizeof(d->boot_id));
	d->incarnation = 0;
	if (r->lane.base)
		pool_lane_renewed(d, &r->lane);
	index = catalog_domain_put(r->pool, r->index, d);
	return index < 0 ? index : 0;
}

/*
 * Everything is durable in the files when this begins. Persist order, and what a cut after each step leaves:
 * 1. tail = head: an empty lane with the old incarnation. Run again: nothing live, goes on with 2. A cut
 *    before it replays all records once more, with the same bytes.
 * 2. new incarnation, first in the domain's entry beside the old one: an empty lane, whatever the ring holds.
 * 3. immutable attributes off (after --apply only): a cut leaves the verdict REPLAY with its flag, so they
 *    are taken off again.
 * 4. for each file the mark, synced, then its entry: a cut leaves an entry without mark, no live records.
 *    Marks go after the trim, since a file without mark may be opened without a daemon.
 * 5. verdict, and the new incarnation alone: the domain is clean; until then `gate` keeps its database down.
 */
int recovery_finish(struct recovery *r, uint64_t tail, uint32_t chain)
{
	int result = 0;

	if (tail != r->plan.tail || chain != r->plan.tail_chain)
		result = trim_guarded(&r->lane, tail, chain);
	if (result == 0)
		result = renew_incarnation(r);
	if (result == 0 && (r->domain.flags & POOL_DOMAIN_APPLIED))
		(void)quarantine_seal(r->pool, r->domain.lane, false);
	if (result == 0)
		result = release_files(r);
	if (result == 0)
		result = clear_verdict(r);
	return result;
}

static int tails_guarded(const struct lane *l, struct lane_tail_found found[2])
{
	return GUARD(lane_tail_read(l, found));
}

/* A tail behind everything that may have been given out. False: the tails make no sense, or cannot be read. */
static bool tail_beyond(const struct recovery *r, uint64_t *ret)
{
	struct lane_tail_found found[2] = { 0 };
	int n = tails_guarded(&r->lane, found);

	if (n <= 0)
		return false;
	*ret = max_of(r->plan.head, max_of(found[0].tail, found[n - 1].tail));
	/* Positions are never reused, so no lane ever gets there: a damaged word. */
	return *ret >> 62 == 0;
}

static int give_up_in_place(struct recovery *r, uint64_t tail)
{
	int result = renew_incarnation(r);

	if (result == 0)
		result = trim_guarded(&r->lane, tail, 0);
	if (result == 0)
		result = beat_guarded(&r->lane, tail);
	return result;
}

/*
 * Persist order. In place: 1. new incarnation: no record is valid any more; 2. tail; 3. heartbeat, whose head
 * could lie beyond it; 4. immutable attributes, marks, entries; 5. verdict. Until 5 the domain is quarantined,
 * and discarding again does the rest (the first copy stays). Replaced: files first, since their entries are
 * found by the old lane's number; then the new lane; then the verdict.
 */
int recovery_give_up(struct recovery *r, bool replace)
{
	uint64_t tail;
	int result = 0;

	if (!replace && !tail_beyond(r, &tail))
		replace = true;
	if (!replace)
		result = give_up_in_place(r, tail);
	if (result < 0)
		return result;
	(void)quarantine_seal(r->pool, r->domain.lane, false);
	result = release_files(r);
	if (result == 0 && replace) {
		pool_lane_close(&r->lane, r->lane_fd);
		r->lane_fd = -1;
		result = pool_lane_replace(r->pool, r->index, &r->domain, NULL);
	}
	return result < 0 ? result : clear_verdict(r);
}
