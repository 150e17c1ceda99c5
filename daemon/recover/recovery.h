/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One recovery under way: shared by the files of this folder, not by others. */

#include "daemon/log.h"
#include "daemon/logs/store.h"
#include "daemon/recover/judge.h"
#include "daemon/recover/plan.h"
#include "daemon/recover/recover.h"

#define REWRITE_NS UINT64_C(200000000) /* the design's 200 ms */

/* One file that the lane names. */
struct recovery_file {
	const struct plan_file *plan;
	bool known;		/* entry and index are valid */
	uint32_t index;		/* in the catalog */
	struct pool_file entry; /* private copy; put back when it changes */
	struct judge_facts facts;
	enum judge_row row;
	enum judge_action action;
	int fd; /* O_RDWR during replay; else -1 */
	bool wrote;
	struct log_store store; /* of a native log, during replay: if store_open */
	bool store_open;
};

struct recovery {
	struct pool *pool;
	uint32_t index;
	struct pool_domain domain; /* private copy; put back when it changes */
	const struct recover_options *options;
	struct lane lane; /* base NULL: could not be opened */
	int lane_fd;
	struct plan plan;
	struct recovery_file *files; /* plan.n_files, same order; owned */
	struct json_object *left; /* array of paths that could not be reached at the end; or NULL */
};

/* facts.c */

/* Looks every file of the plan up in the catalog. 0 or -ENOMEM. */
int facts_files(struct recovery *r);

/* Looks at every file with live records (opened read only by handle, nothing changed) and judges it
 * into row and action. The clock is read once, before the first file. */
void facts_judge(struct recovery *r);

/* replay.c */

enum replay_outcome {
	REPLAY_DONE = 0,      /* all records are durable in their files */
	REPLAY_NOT_BEGUN = 1, /* failed before the first byte: hold */
	REPLAY_BROKEN = 2,    /* failed after it: quarantine */
};

/*
 * Writes the live records of every file whose action is REPLAY in lane order, then fdatasync of each.
 * The verdict REPLAY is durable already. rewrite_until of each file is durable before its first byte and
 * renewed as needed. why (n bytes): what failed. Descriptors are closed on return.
 */
enum replay_outcome replay_run(struct recovery *r, char *why, size_t n);

/* log.c: native logs */

bool recovery_is_log(const struct pool_file *f);
/* Fills f->facts for one with live records. Changes nothing. */
void recovery_log_look(struct recovery *r, struct recovery_file *f);
/* Opens its store for writing (anew, if it is open): what the catalog does not know as durable is cut off. 0 or a
 * negative errno. */
int recovery_log_open(struct recovery *r, struct recovery_file *f);
void recovery_log_close(struct recovery_file *f);
/* What was put is durable, and the catalog knows it. 0 or a negative errno. */
int recovery_log_sync(struct recovery *r, struct recovery_file *f);
/* Lets a log without live records go: its meta says where it ends, then its entry is dropped. One that is removed or
 * damaged has no end to be told. */
int recovery_log_release(struct recovery *r, const struct pool_file *f, uint32_t index);

/* quarantine.c */

/* Sets or clears the immutable attribute of every file that the catalog has for the lane. Best effort:
 * returns how many could not be reached. Where the file system has no such attribute, nothing happens. */
unsigned quarantine_seal(struct pool *p, uint32_t lane, bool immutable);

/*
 * Keeps a copy of the lane's file (unreadable pages as zeros) and the report (may be NULL) under
 * <state_dir>/quarantine/<domain>-<lane>-<time>/, synced. dir (n bytes): where. ret_unreadable: bytes.
 * Returns 0 or a negative errno.
 */
int quarantine_keep(struct pool *p, const struct pool_domain *d, struct json_object *report,
		    char *dir, size_t n, uint64_t *ret_unreadable);

/* report.c */

/* The document that recover.h describes; owned by the caller, NULL without memory. */
struct json_object *report_make(const struct recovery *r, int outcome, const char *reason);

/* The end of a path into buf, which tells more than its beginning and leaves room for what to do. */
#define REPORT_PATH_BYTES 84u
void report_path(const char *path, char buf[REPORT_PATH_BYTES]);

/* One line about the domain's files for d->reason: the first file with that action. */
void report_reason(const struct recovery *r, enum judge_action action, char *buf, size_t n);

/* finish.c */

/*
 * Ends a domain whose live records are durable in their files, or given up: trim, new incarnation,
 * marks, catalog's files, verdict. 0 or a negative errno; may be repeated from the start at any point.
 */
int recovery_finish(struct recovery *r, uint64_t tail, uint32_t chain);

/*
 * Ends a domain whose records are given up by command. replace: the lane's memory or header is damaged, so
 * it gets a new file. Same result and errors.
 */
int recovery_give_up(struct recovery *r, bool replace);
