/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/recover/recover.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sys.h"
#include "daemon/log.h"
#include "daemon/recover/recovery.h"
#include "pool/guard.h"

#define CLOCK_POLL_NS 100000000L

static int save_domain(struct recovery *r)
{
	int index = catalog_domain_put(r->pool, r->index, &r->domain);

	return index < 0 ? index : 0;
}

/* Persists a verdict with its reason (printf). Nothing of it in a dry run, but the reason is filled. */
static int verdict(struct recovery *r, enum pool_verdict v, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int verdict(struct recovery *r, enum pool_verdict v, const char *format, ...)
{
	struct pool_domain *d = &r->domain;
	va_list args;

	memset(d->reason, 0, sizeof(d->reason));
	va_start(args, format);
	(void)vsnprintf(d->reason, sizeof(d->reason), format, args);
	va_end(args);
	if (r->options->dry_run)
		return 0;
	/*
	 * A new quarantine asks again. A hold keeps the word that --apply was given, so that the next replay
	 * covers and takes off the attributes that this one left; but only under VERDICT_REPLAY does that
	 * word overrule a row (facts_judge): after a hold every file has to pass by itself.
	 */
	if (v == VERDICT_QUARANTINED)
		d->flags &= ~POOL_DOMAIN_APPLIED;
	d->verdict = v;
	return save_domain(r);
}

/*
 * Verdict first, then the attribute: a cut between leaves the verdict, and the next run sets it. The other
 * way round, the change of ctime would be taken for somebody else's.
 */
static int quarantine(struct recovery *r, const char *why, const char *what_to_do)
{
	int result = verdict(r, VERDICT_QUARANTINED, "%s. %s", why, what_to_do);

	if (result < 0)
		return result;
	if (!r->options->dry_run) {
		(void)quarantine_seal(r->pool, r->domain.lane, true);
		log_event(LOG_ERR, LOG_ID_QUARANTINED, r->domain.name, NULL, "quarantined: %s",
			  r->domain.reason);
	}
	return RECOVER_QUARANTINED;
}

static int hold(struct recovery *r, const char *why)
{
	int result;

	/* A quarantine is not lifted by an attempt that could not be made. */
	if (r->domain.verdict == VERDICT_QUARANTINED)
		return quarantine(r, why, "Put that right, then: pmemlogctl recover --apply");
	result = verdict(r, VERDICT_HELD, "%s. Tried again when it changes", why);
	return result < 0 ? result : RECOVER_HELD;
}

#define DO_EITHER                                                                             \
	"See recover --dry-run; --apply replays in spite of it, --discard gives the records " \
	"up (then restore this instance)"
#define DO_DISCARD \
	"It cannot be replayed: restore this instance, then: pmemlogctl recover --discard"

static int open_lane(struct recovery *r)
{
	struct pool_error e = { "" };
	int result;

	result = pool_lane_open(r->pool, &r->domain, &r->lane, &r->lane_fd, &e);
	if (result == 0)
		return 0;
	r->lane.base = NULL;
	r->lane_fd = -1;
	if (result == -ENOMEM || result == -EMFILE || result == -ENFILE)
		return result;
	/* -EIO and the like may pass; a file that is gone, cut off or has no header will not. */
	if (result != -EBADMSG && result != -ENXIO && result != -ENOENT)
		return hold(r, e.text);
	return quarantine(r, e.text, DO_DISCARD);
}

static int make_plan(struct recovery *r)
{
	char text[200];
	const char *why;
	int result = plan_make(&r->plan, &r->lane, &why);

	/* An entry of an earlier version knows what the control file's was: of an empty lane that says nothing. */
	if (result == 0 && (!pool_lane_is(&r->domain, &r->lane) ||
			    (r->plan.walked > 0 && r->domain.incarnation != 0 &&
			     r->domain.incarnation != r->lane.incarnation))) {
		(void)snprintf(
			text, sizeof(text),
			"lane %u is not the one that its domain wrote last: an older copy, or "
			"another pool's",
			r->domain.lane);
		return quarantine(
			r, text,
			"Put the right file back, then: pmemlogctl recover --apply; if it is "
			"lost, restore this instance, then: recover --discard");
	}
	if (result == 0)
		return facts_files(r);
	if (result != -EBADMSG)
		return result;
	(void)snprintf(text, sizeof(text), "lane %u is damaged at position %llu: %s",
		       r->domain.lane, (unsigned long long)r->plan.head, why);
	return quarantine(r, text, DO_DISCARD);
}

static bool any(const struct recovery *r, enum judge_action action)
{
	for (size_t i = 0; i < r->plan.n_files; i++) {
		if (r->files[i].action == action)
			return true;
	}
	return false;
}

static bool all_overrulable(const struct recovery *r)
{
	for (size_t i = 0; i < r->plan.n_files; i++) {
		if (r->files[i].action == ACTION_QUARANTINE &&
		    !judge_texts[r->files[i].row].overrulable)
			return false;
	}
	return true;
}

/* Waits for the clock; the facts are gathered anew afterwards, since a file may change meanwhile. */
static void judge_with_clock(struct recovery *r)
{
	const struct recover_options *o = r->options;
	uint64_t end_ns = now_monotonic_ns() + o->clock_wait_ns;

	facts_judge(r);
	if (o->dry_run || !any(r, ACTION_WAIT) || any(r, ACTION_QUARANTINE) || any(r, ACTION_HOLD))
		return;
	log_msg(LOG_WARNING, r->domain.name,
		"the clock stands before the last record: waiting for time synchronisation");
	while (now_realtime_ns() < r->plan.newest_ns && now_monotonic_ns() < end_ns) {
		const struct timespec poll = { .tv_nsec = CLOCK_POLL_NS };

		if (o->progress)
			o->progress(o->arg, 0, r->plan.bytes);
		(void)nanosleep(&poll, NULL);
	}
	facts_judge(r);
}

/* RECOVER_CLEAN: every file may be replayed or has nothing; others as decided and persisted. */
static int judge(struct recovery *r)
{
	char why[240];

	judge_with_clock(r);
	if (any(r, ACTION_QUARANTINE)) {
		report_reason(r, ACTION_QUARANTINE, why, sizeof(why));
		return quarantine(r, why, all_overrulable(r) ? DO_EITHER : DO_DISCARD);
	}
	if (any(r, ACTION_HOLD)) {
		report_reason(r, ACTION_HOLD, why, sizeof(why));
		return hold(r, why);
	}
	if (any(r, ACTION_WAIT)) {
		report_reason(r, ACTION_WAIT, why, sizeof(why));
		return quarantine(r, why, DO_EITHER);
	}
	return RECOVER_CLEAN;
}

static void log_dropped(const struct recovery *r)
{
	for (size_t i = 0; i < r->plan.n_files; i++) {
		const struct recovery_file *f = &r->files[i];

		if (f->action == ACTION_DROP)
			log_event(LOG_NOTICE, LOG_ID_RECOVERED, r->domain.name, f->entry.path,
				  "%llu records given up: its database deleted the file",
				  (unsigned long long)f->plan->records);
	}
}

/*
 * Persist order: the verdict REPLAY (with the word that --apply was given), so that a crash in the middle
 * is known as ours; attributes off; bytes (rewrite_until before them, in replay.c); fdatasync of each.
 * rewrite_until of every file goes before the verdict where the attribute will be taken off: that too
 * changes its ctime.
 */
static int replay(struct recovery *r)
{
	bool applied = r->options->apply || (r->domain.flags & POOL_DOMAIN_APPLIED);
	char why[240];
	int result;

	if (!any(r, ACTION_REPLAY))
		return RECOVER_CLEAN;
	if (applied) {
		for (size_t i = 0; i < r->plan.n_files; i++) {
			struct recovery_file *f = &r->files[i];

			if (f->action != ACTION_REPLAY)
				continue;
			f->entry.rewrite_until_ns = now_realtime_ns() + REWRITE_NS;
			result = catalog_file_put(r->pool, f->index, &f->entry);
			if (result < 0)
				return result;
		}
		r->domain.flags |= POOL_DOMAIN_APPLIED;
	}
	result = verdict(r, VERDICT_REPLAY, "replaying %llu records",
			 (unsigned long long)r->plan.records);
	if (result < 0)
		return result;
	if (applied)
		(void)quarantine_seal(r->pool, r->domain.lane, false);

	switch (replay_run(r, why, sizeof(why))) {
	case REPLAY_DONE:
		return RECOVER_CLEAN;
	case REPLAY_NOT_BEGUN:
		return hold(r, why);
	case REPLAY_BROKEN:
	default:
		return quarantine(
			r, why,
			"The replay had begun, so the file may be half new: put that right, "
			"then: pmemlogctl recover --apply");
	}
}

/* The whole sequence; enum recover_outcome or a negative errno. */
static int run(struct recovery *r)
{
	bool stands = r->domain.verdict == VERDICT_QUARANTINED && !r->options->apply;
	char reason[sizeof(r->domain.reason)];
	int result;

	/* A quarantine stands until --apply or --discard; a dry run still says how each file is. */
	if (stands && !r->options->dry_run) {
		(void)quarantine_seal(r->pool, r->domain.lane, true);
		return RECOVER_QUARANTINED;
	}
	memcpy(reason, r->domain.reason, sizeof(reason));
	result = open_lane(r);
	if (result == 0)
		result = make_plan(r);
	if (result == 0 && !r->options->dry_run && r->domain.verdict == VERDICT_NONE &&
	    r->plan.walked > 0)
		result = verdict(r, VERDICT_UNDECIDED, "recovery has begun and has not ended");
	if (result == 0)
		result = judge(r);
	if (r->options->dry_run) {
		if (stands && result >= 0) {
			memcpy(r->domain.reason, reason, sizeof(reason));
			return RECOVER_QUARANTINED;
		}
		return result;
	}
	if (result != RECOVER_CLEAN)
		return result;
	log_dropped(r);
	result = replay(r);
	if (result == RECOVER_CLEAN)
		result = recovery_finish(r, r->plan.head, r->plan.head_chain);
	return result;
}

static int begin(struct recovery *r, struct pool *p, uint32_t index,
		 const struct recover_options *o)
{
	*r = (struct recovery){ .pool = p, .index = index, .options = o, .lane_fd = -1 };
	if (p->read_only && !o->dry_run)
		return -EROFS;
	(void)guard_install();
	return catalog_domain_get(p, index, &r->domain);
}

static void end(struct recovery *r)
{
	if (r->lane.base)
		pool_lane_close(&r->lane, r->lane_fd);
	plan_free(&r->plan);
	free(r->files);
	json_object_put(r->left);
}

int recover_domain(struct pool *p, uint32_t index, const struct recover_options *o,
		   struct json_object **ret_report)
{
	struct recovery r;
	int result = begin(&r, p, index, o);

	if (ret_report)
		*ret_report = NULL;
	if (result < 0)
		return result;
	result = run(&r);
	if (ret_report && result >= 0)
		*ret_report = report_make(&r, result, r.domain.reason);
	end(&r);
	return result;
}

int recover_discard(struct pool *p, uint32_t index, struct json_object **ret_report)
{
	const struct recover_options o = { .dry_run = true };
	struct json_object *report;
	uint64_t unreadable = 0;
	struct recovery r;
	char dir[512] = "";
	int result;

	if (ret_report)
		*ret_report = NULL;
	result = begin(&r, p, index, &o);
	if (result < 0)
		return result;
	if (p->read_only)
		return -EROFS;
	/* As a dry run: what can be said about it goes into the report, whatever it is. */
	result = run(&r);
	if (result < 0)
		goto out;
	report = report_make(&r, result, r.domain.reason);
	result = report ? quarantine_keep(p, &r.domain, report, dir, sizeof(dir), &unreadable)
			: -ENOMEM;
	if (result == 0) {
		json_object_object_add(report, "outcome", json_object_new_string("discarded"));
		json_object_object_add(report, "kept", json_object_new_string(dir));
		json_object_object_add(report, "unreadable_bytes",
				       json_object_new_uint64(unreadable));
		result = recovery_give_up(&r, !r.lane.base || unreadable > 0);
	}
	if (result == 0 && r.left)
		json_object_object_add(report, "left", json_object_get(r.left));
	if (result == 0)
		log_event(LOG_WARNING, LOG_ID_RECOVERED, r.domain.name, NULL,
			  "records given up by command and kept in %s: restore this instance", dir);
	if (ret_report && result == 0)
		*ret_report = report;
	else
		json_object_put(report);
out:
	end(&r);
	return result;
}
