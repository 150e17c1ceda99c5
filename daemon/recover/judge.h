/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * May this file's records be replayed? Pure: facts in, one row out. The first row that fits counts; the
 * order of the enum is the order of the questions. See ARCHITECTURE.md and pmemlogctl(1).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum judge_row {
	ROW_UNKNOWN_FILE = 0,	/* the catalog does not know the id, or for another lane */
	ROW_NOTHING_LIVE = 1,	/* no live record: nothing to decide */
	ROW_NOT_MOUNTED = 2,	/* its file system is not mounted, or mounted twice */
	ROW_IO_ERROR = 3,	/* it could not be looked at */
	ROW_STALE_UNLINKED = 4, /* handle stale, UNLINK seen */
	ROW_STALE = 5,		/* handle stale */
	ROW_MARK_MISSING = 6,
	ROW_MARK_FOREIGN = 7, /* of another pool, lane or machine, or a copy's */
	ROW_CTIME_OLDER = 8,  /* than the catalog's: volume rolled back */
	ROW_CTIME_LATER = 9,  /* than our last sign of life: somebody else wrote it */
	ROW_CLOCK = 10,	      /* the clock stands before the last record */
	ROW_REPLAY = 11,
	ROW_COUNT,
};

enum judge_action {
	ACTION_NONE,
	ACTION_HOLD,	   /* try again when it changes */
	ACTION_DROP,	   /* this file's records are given up, logged */
	ACTION_QUARANTINE, /* the whole domain */
	ACTION_WAIT,	   /* for the clock, then quarantine */
	ACTION_REPLAY,
};

struct judge_text {
	const char *name; /* in reports; stable */
	enum judge_action action;
	bool overrulable; /* by recover --apply */
	const char *text; /* for people */
};
extern const struct judge_text judge_texts[ROW_COUNT];

enum judge_found {
	FOUND_OPEN = 0, /* opened by handle; what follows was read from it */
	FOUND_NOT_MOUNTED = 1,
	FOUND_STALE = 2,
	FOUND_ERROR = 3,
};

#define JUDGE_CTIME_SLACK_NS UINT64_C(1000000000) /* the design's 1 s */

struct judge_facts {
	bool live;     /* it has records to replay */
	bool named;    /* it has a record of any kind that no FENCE covers */
	bool known;    /* the catalog knows the id for this lane */
	bool unlinked; /* UNLINK in the lane or the catalog */
	enum judge_found found;
	int error;		   /* FOUND_ERROR: negative errno */
	int mark;		   /* enum mark_outcome */
	int64_t btime_ns;	   /* as found; 0: none */
	int64_t ctime_ns;	   /* as found */
	int64_t catalog_btime_ns;  /* as registered */
	int64_t catalog_ctime_ns;  /* was durable in the file */
	uint64_t newest_record_ns; /* of the lane */
	uint64_t beat_ns;	   /* heartbeat; 0: never */
	uint64_t rewrite_until_ns; /* the daemon's own changes */
	uint64_t now_ns;	   /* CLOCK_REALTIME */
};

enum judge_row judge_file(const struct judge_facts *f);

/*
 * What to do with the row. apply: recover --apply was asked for now. applied: a replay that was begun by
 * --apply is taken up again after a crash: the same rows are overruled but CTIME_LATER, which would be a
 * change made since then (our own ones lie below rewrite_until).
 */
enum judge_action judge_action(enum judge_row row, bool apply, bool applied);
