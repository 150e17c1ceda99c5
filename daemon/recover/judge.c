/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/recover/judge.h"

#include "base/overflow.h"
#include "pool/dir/identity.h"

const struct judge_text judge_texts[ROW_COUNT] = {
	[ROW_UNKNOWN_FILE] = { "unknown-file", ACTION_QUARANTINE, false,
			       "records name a file that the catalog does not know for this domain" },
	[ROW_NOTHING_LIVE] = { "nothing-live", ACTION_NONE, false, "nothing to replay" },
	[ROW_NOT_MOUNTED] = { "not-mounted", ACTION_HOLD, false,
			      "the file's file system is not mounted, or two devices carry its UUID" },
	[ROW_IO_ERROR] = { "io-error", ACTION_HOLD, false, "the file cannot be read" },
	[ROW_STALE_UNLINKED] = { "stale-unlinked", ACTION_DROP, false,
				 "the file was deleted by its database: its records are given up" },
	[ROW_STALE] = { "stale", ACTION_QUARANTINE, false,
			"the file is gone, and its database did not delete it (replaced, restored, or "
			"deleted by somebody else)" },
	[ROW_MARK_MISSING] = { "mark-missing", ACTION_QUARANTINE, true,
			       "the file does not carry our owner mark any more" },
	[ROW_MARK_FOREIGN] = { "mark-foreign", ACTION_QUARANTINE, true,
			       "the file carries the owner mark of another pool, lane or machine" },
	[ROW_CTIME_OLDER] = { "ctime-older", ACTION_QUARANTINE, true,
			      "the file is older than when it was registered: its volume was rolled "
			      "back" },
	[ROW_CTIME_LATER] = { "ctime-later", ACTION_QUARANTINE, true,
			      "somebody else changed the file after our last sign of life" },
	[ROW_CLOCK] = { "clock", ACTION_WAIT, true, "the clock stands before the last record" },
	[ROW_REPLAY] = { "replay", ACTION_REPLAY, false, "replay" },
};

/* A file's time before 1970 is older than anything of ours. */
static uint64_t unsigned_ns(int64_t ns)
{
	return ns < 0 ? 0 : (uint64_t)ns;
}

static bool stale(const struct judge_facts *f)
{
	/* The handle leads to a file that was born at another time: another file under its number. */
	return f->found == FOUND_STALE || f->btime_ns != f->catalog_btime_ns;
}

static bool later_than_ours(const struct judge_facts *f)
{
	uint64_t ours = max_of(f->newest_record_ns, max_of(f->beat_ns, f->rewrite_until_ns));
	uint64_t ctime_ns = unsigned_ns(f->ctime_ns);

	/* Not touched since we registered it. */
	if (f->ctime_ns == f->catalog_ctime_ns)
		return false;
	return ctime_ns > ours && ctime_ns - ours > JUDGE_CTIME_SLACK_NS;
}

enum judge_row judge_file(const struct judge_facts *f)
{
	/* Where a FENCE covers everything, the file may have been let go: nothing is lost with it. */
	if (!f->known && f->named)
		return ROW_UNKNOWN_FILE;
	if (!f->live)
		return ROW_NOTHING_LIVE;
	if (f->found == FOUND_NOT_MOUNTED)
		return ROW_NOT_MOUNTED;
	if (f->found == FOUND_ERROR)
		return ROW_IO_ERROR;
	if (stale(f))
		return f->unlinked ? ROW_STALE_UNLINKED : ROW_STALE;
	if (f->mark == MARK_NONE)
		return ROW_MARK_MISSING;
	if (f->mark != MARK_OURS)
		return ROW_MARK_FOREIGN;
	if (f->ctime_ns < f->catalog_ctime_ns)
		return ROW_CTIME_OLDER;
	if (later_than_ours(f))
		return ROW_CTIME_LATER;
	if (f->now_ns < f->newest_record_ns)
		return ROW_CLOCK;
	return ROW_REPLAY;
}

enum judge_action judge_action(enum judge_row row, bool apply, bool applied)
{
	const struct judge_text *t = &judge_texts[row];

	if (t->overrulable && (apply || (applied && row != ROW_CTIME_LATER)))
		return ACTION_REPLAY;
	return t->action;
}
