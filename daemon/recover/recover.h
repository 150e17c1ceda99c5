/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Recovery of one domain without sessions: walk, judge every file, verdict, replay, sync, trim, new
 * incarnation. Used by the daemon (start, last session's end, gate) and by pmemlogctl gate without one.
 */

#include <json-c/json.h>

#include "pool/dir/catalog.h"
#include "pool/dir/identity.h"

struct recover_options {
	uint64_t clock_wait_ns; /* for a clock that stands before the last record */
	bool dry_run;		/* judge only, change nothing */
	bool apply;		/* replay in spite of the rows that apply may overrule */
	/* called now and then on long work, may be NULL: watchdog, progress */
	void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
	void *arg;
};

enum recover_outcome {
	RECOVER_CLEAN = 0,	 /* nothing is left over (replayed, or there was nothing) */
	RECOVER_HELD = 1,	 /* d->reason says what it waits for */
	RECOVER_QUARANTINED = 2, /* d->reason says why and what to do */
};

/*
 * The caller has made sure that no session lives (session lock exclusive, all bytes free, control file
 * closed) and has no description of the files open. index: of the catalog's domain. Updates the
 * catalog (verdict before the first replayed byte). On CLEAN the owner marks are gone, files dropped
 * from the catalog, the lane has a new incarnation and no live record. ret_report (may be NULL): JSON
 * {domain, uid, lane, outcome, reason, live_bytes, records, files:[{id,path,row,action,...}], left:[paths
 * whose mark could not be taken off]}; the caller puts it. Returns enum recover_outcome or a negative errno. Idempotent: killed anywhere and
 * run again gives the same.
 */
int recover_domain(struct pool *p, uint32_t index, const struct recover_options *o,
		   struct json_object **ret_report);

/*
 * Gives the records up, whatever the verdict is: keeps the lane's image and a report under
 * <state_dir>/quarantine/<domain>-<lane>-<time>/ (synced before anything changes), clears immutable
 * attributes and marks, trims, new incarnation. A lane whose memory or header is damaged is replaced: the
 * domain then has another lane number. Same conditions for the caller as above. ret_report (may be NULL):
 * as above, outcome "discarded", and "kept": the folder. 0 or a negative errno; to be repeated after an
 * error.
 */
int recover_discard(struct pool *p, uint32_t index, struct json_object **ret_report);
