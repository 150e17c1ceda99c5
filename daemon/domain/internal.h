/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What the files of daemon/domain and daemon/destage share: one domain at run time.
 *
 * Threads: the domain's worker makes every call on a file and is the only one that changes the
 * mapping, the file table and the state. Others (event loop, heartbeat) see a domain through two
 * mutexes, neither of which is held over a call that could block:
 *	lock	  queue, flags, words for people, the file table's pointers
 *	map_lock  the mapped control file and lane, so that nobody looks at what is being unmapped
 * Order: set->lock, then lock, then map_lock. The worker reads its own data without them.
 */

#include <pthread.h>

#include "daemon/domain/domain.h"
#include "daemon/logs/store.h"
#include "pool/dir/catalog.h"
#include "pool/dir/identity.h"
#include "pool/file.h"
#include "pool/log_read.h"
#include "pool/session.h"

#define SECOND_NS      UINT64_C(1000000000)
#define MILLISECOND_NS UINT64_C(1000000)

#define TICK_NS		 (1 * SECOND_NS)	/* DESIGN 6: a file is dropped within it */
#define BEAT_NS		 (100 * MILLISECOND_NS) /* DESIGN 4 */
#define HELD_RETRY_NS	 (5 * SECOND_NS)	/* picked: a mount is noticed soon enough */
#define HELLO_GRACE_NS	 (1 * SECOND_NS)	/* from HELLO to taking a slot; picked */
#define FLUSH_GIVE_UP_NS (2 * SECOND_NS)	/* picked: several tries of a failing sync */
#define RETRY_MIN_NS	 (100 * MILLISECOND_NS)
#define RETRY_MAX_NS	 (1 * SECOND_NS)
#define REWRITE_NS	 (200 * MILLISECOND_NS) /* DESIGN 6: rewrite_until */

enum domain_state {
	STATE_UNDECIDED = 0,
	STATE_OK = 1,
	STATE_HELD = 2,	       /* tried again by itself */
	STATE_QUARANTINED = 3, /* until recover --apply or --discard */
};

/*
 * Opened, and the file's lock not held since. A head that is read without it may lie below the record of a
 * write that is under way: its bytes are in the page cache, may be lost to a write-back that fails, and
 * others may hear of that before we open; the record comes later. Nothing is trusted, the first step heals.
 */
#define OPEN_HEAD_NONE UINT64_MAX

/* One registered file. The control file's entry is the client's: only its dynamic words are read. */
struct domain_file {
	uint64_t id;
	uint32_t index;		/* in the control file */
	uint32_t catalog;	/* in the catalog */
	int fd;			/* our own description; -1: not to be had, found says why */
	int found;		/* identity_open's last answer */
	uint64_t open_head;	/* head at the first lock since it was opened; or OPEN_HEAD_NONE */
	uint64_t durable_below; /* the file's records below are durable in it, by our own sync */
	uint64_t retry_ns;	/* CLOCK_MONOTONIC; not tried before, after a failure */
	uint64_t backoff_ns;
	bool failing;		/* the last sync failed and no later one was good */
	bool gone;		/* st_nlink was 0 */
	bool bypassed;		/* as it was told last */
	bool token_wait;	/* in bypass until the token is free */
	bool foreign;		/* another domain has it too: in bypass while either has it */
	struct pool_file entry; /* as the catalog has it */
};

/* One native log that is open in this life of the domain. The control file's words are the clients'. */
struct domain_log {
	char name[CTL_LOG_NAME_MAX];
	uint64_t id;
	uint32_t index, slot;	/* in the control file */
	uint32_t catalog;	/* in the catalog */
	struct pool_file entry; /* as the catalog has it */
	struct log_ref ref;
	struct log_store store;
	uint8_t log[16];	/* its store's, once it was open */
	bool store_open;	/* else opened at the next destage */
	uint64_t durable_below; /* position: its records below are in the segments */
	uint64_t retry_ns;	/* CLOCK_MONOTONIC; not tried before, after a failure */
	uint64_t backoff_ns;
	bool failing;
	/* See log_remove.c. The mark: position + 1 that the tail has to reach before its entry goes; 0: not known. */
	bool removing; /* no word of it is left in the control file; under map_lock, too */
	bool deleted;  /* nor on disk */
	uint64_t removed;
	/* for LOG_READ: where the last one stood */
	struct segment_reader reader;
	struct segment_frame frame; /* the last one that reader gave; length 0: none */
	bool reading;
	struct log_place place;
	struct log_buffer buffer;
};

/* Another domain registers a file of ours: we take it into bypass, then its request goes on. */
struct yield {
	struct yield *next;
	struct pool_file who; /* the file */
	struct domain *from;
	struct domain_request *request;
};

#define REFUSED_MAX \
	16u /* picked: more than a database has logs open; later ones are in the journal */

/* A file that could not be registered: written to the disk, outside the control file. */
struct refused {
	char path[320]; /* as in the catalog */
	char why[160];
};

struct domain {
	struct domain_set *set;
	struct domain *next; /* constant once the domain is in the list */
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
	pthread_t thread;
	bool exited; /* the worker is done; under set->lock */

	pthread_mutex_t lock;
	struct domain_request *queue, **queue_end;
	struct yield *yields;
	bool stop, look, clock_step, fault; /* what the worker is asked for */
	bool claims;			    /* a registration is under way: */
	struct pool_file claim;		    /* of this file */
	enum domain_state state;
	char reason[WIRE_TEXT];
	char last_error[WIRE_TEXT];
	uint64_t destages, destage_errors;
	uint64_t live_since; /* CLOCK_MONOTONIC of the oldest live record, about; 0: none */
	struct domain_file *file[CTL_FILES];
	uint32_t files_end;		  /* one above the highest used index */
	struct domain_log *log[CTL_LOGS]; /* by slot */
	int log_users;			  /* connections that use logs by messages */
	struct refused refused[REFUSED_MAX];
	uint32_t refused_n;

	pthread_mutex_t map_lock;
	bool attached; /* s is mapped */
	bool quick;    /* the event loop may append: the last step has not begun */
	uint8_t *
		logs; /* mapping of the control file from CTL_LOGS_OFFSET; NULL: no log was opened */
	bool beating; /* heartbeats are written */
	uint32_t own_sleep;
	uint32_t *sleep_word; /* what the worker sleeps on: own_sleep or the control file's word */

	/* The worker's own. */
	struct session s;
	struct caller who;
	int lane_fd;
	uint32_t catalog;  /* index of the domain, UINT32_MAX: none yet */
	uint32_t lane;	   /* number */
	uint64_t tail;	   /* persisted */
	bool publish;	   /* persisted and not yet published to the clients */
	bool blocked;	   /* the last step could not trim: some file fails */
	bool stepping;	   /* inside a step: nothing that it works on may go */
	bool mend;	   /* a degraded file waits for a heal, live or not */
	uint64_t retry_ns; /* earliest next step while blocked */
	uint64_t step_ns;  /* of the last step */
	uint64_t tick_ns;  /* of the next look at files and slots */
	uint64_t grace_ns; /* no session's end before (a HELLO was answered) */
	uint64_t held_ns;  /* next try of a held domain */
	struct domain_request *flushes;
	struct domain_request *log_waits; /* LOG messages that wait */
	uint64_t seen_head;		  /* as of the last look for those who wait for records */
	struct domain_file *changing;	  /* whose rewrite_until io.c renews */
};

struct domain_set {
	struct pool *pool;
	const struct config *config;
	uint8_t boot_id[16];
	int control_fd, bypass_fd; /* folders */
	void (*notify)(void *arg);
	void *notify_arg;

	pthread_mutex_t lock; /* list */
	struct domain *first, **end;
	unsigned count;
	bool stopping;
	pthread_cond_t exited; /* with lock: a worker is done */

	pthread_mutex_t pool_lock; /* lane creation */

	pthread_mutex_t beat_lock;
	pthread_cond_t beat_cond;
	pthread_t beat_thread;
	bool beat_started, beat_stop;
	unsigned beat_wanted; /* raised when a domain begins to beat */
};

/* ---- worker.c --------------------------------------------------------------------------------- */

void *domain_worker(void *arg);
/* Queues a request; after a stop it is answered at once. Any thread. */
void domain_push(struct domain *d, struct domain_request *r);
/* Wakes the worker, wherever it sleeps. Any thread. */
void domain_wake(struct domain *d);
/* Answers the registrations (and reconnections for them) that wait: between two files of a long destage
 * step. A database that opens its next log goes to bypass rather than wait for all of them. Worker. */
void domain_serve_light(struct domain *d);
/* Answers a request: text may be NULL. */
void request_done(struct domain_request *r, int status, uint32_t exit_code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Status has changed: tells whoever asked to be told. */
void domain_notify(const struct domain *d);
/* New state with words; notifies and logs when it changed. */
void domain_state_set(struct domain *d, enum domain_state state, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void domain_error_set(struct domain *d, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The control file or lane cannot be used as it is: let go of it, the domain is held. */
void domain_fault(struct domain *d, const char *why);

/* ---- set.c ------------------------------------------------------------------------------------ */

/* NULL: none. It stays until the set is stopped. */
struct domain *domain_find(struct domain_set *set, uint32_t uid, const char *name);
/* A condition whose time-outs are CLOCK_MONOTONIC. */
void cond_init(pthread_cond_t *c);
int domain_filter_each(struct domain_set *set, const char *filter,
		       void (*each)(void *arg, struct domain *d), void *arg);

/* ---- decide.c --------------------------------------------------------------------------------- */

/* Resume, recover, hold or nothing to do. Any state but QUARANTINED without a verdict may follow. */
void domain_decide(struct domain *d);
/* recover_domain with the lane and our descriptions closed; sets the state; report may be NULL. */
/* Takes the control file's name away. */
void control_remove(struct domain *d);
int domain_recover(struct domain *d, bool dry_run, bool apply, struct json_object **ret_report);
#define CONTROL_NAME_BYTES 24u
/* Name of the control file of a lane in set->control_fd. */
void control_name(uint32_t lane, char buf[CONTROL_NAME_BYTES]);

/* ---- attach.c --------------------------------------------------------------------------------- */

/* A new control file over the domain's clean lane (made if missing). 0 or a negative errno. */
int attach_new(struct domain *d, struct pool_error *ret_error);
/* What attach_new and resuming share: the mapping becomes visible to other threads. */
void attach_publish(struct domain *d);
/* Lets go of control file (kept on disk) and lane; our slot ends with it. Files stay as they are. */
void detach(struct domain *d);
void request_hello(struct domain *d, struct domain_request *r);

/* ---- end.c ------------------------------------------------------------------------------------ */

/* Ends the sessions' time if none lives: everything destaged, files released. True when it ended. */
bool sessions_end(struct domain *d, bool at_once);
void request_gate(struct domain *d, struct domain_request *r);
void request_recover(struct domain *d, struct domain_request *r);

/* ---- registry.c ------------------------------------------------------------------------------- */

void request_register(struct domain *d, struct domain_request *r);
void registry_yield(struct domain *d, struct yield *y);
/* Puts a file into the table; owns df from then on. */
void registry_add(struct domain *d, struct domain_file *df);
/* Closes and forgets one; all. The catalog is not touched. */
void registry_forget(struct domain *d, struct domain_file *df);
void registry_forget_all(struct domain *d);
/* ---- watch.c ---------------------------------------------------------------------------------- */

/* Each second: unlinked files go, tokens, files that may leave bypass. 0 or -EFAULT. */
int registry_tick(struct domain *d);
/* What identity_open's answer means, for people. */
const char *identity_words(int found);
/* ctime of every file anew, after the clock was set. */
void registry_clock_step(struct domain *d);
/* ---- registry.c again ------------------------------------------------------------------------- */

/* The mark stands: is anybody writing the file without a session? Held: mark and entry go again. */
bool registry_token_held(struct domain *d, struct domain_file *df, const struct stat *st);
/* The same; a token that was free is kept until *ret_fd is closed. */
bool registry_token_claim(struct domain *d, struct domain_file *df, const struct stat *st,
			  int *ret_fd);
/* Releases every file clean: mark, catalog entry. 0 or a negative errno. */
int registry_release_all(struct domain *d);
/* Replaces the file's entry, durably in the catalog where it has one, then in memory. 0 or a negative
 * errno (memory unchanged). */
int registry_entry_put(struct domain *d, struct domain_file *df, const struct pool_file *e);
bool file_same(const struct pool_file *a, const struct pool_file *b);

/* ---- logs.c ------------------------------------------------------------------------------------ */

/* The log of that name, opened if it is on disk. create: made if it is not. *ret_made (may be NULL). 0, -ENOENT, or as
 * pmemlogd_open documents; why (n bytes) in words. */
int logs_get(struct domain *d, const struct wire_log *q, bool create, struct domain_log **ret,
	     bool *ret_made, char *why, size_t n);
struct domain_log *logs_find(const struct domain *d, const char *name);
/* Also one that is being removed. */
struct domain_log *logs_find_any(const struct domain *d, const char *name);
struct log_name logs_name(const struct domain *d, const char *name);
/* Closes its files; it stays. */
void logs_close(struct domain_log *l);
/* Takes it out of the table and frees it. */
void logs_forget(struct domain *d, struct domain_log *l);
/* One log of the catalog, after a restart with living sessions. 0, or a negative errno: the control file. */
int logs_resume(struct domain *d, uint32_t catalog, const struct pool_file *e);
/* Opens its store if it is not: 0 or a negative errno. */
int logs_store(struct domain *d, struct domain_log *l);
/*
 * Its store to read from what is on disk, also while nothing can be written: *ret is l's own or *view, until
 * logs_view_end. 0 or a negative errno.
 */
int logs_view(struct domain *d, struct domain_log *l, struct log_store *view,
	      struct log_store **ret);
void logs_view_end(const struct domain_log *l, struct log_store *s);
/* Each log's end into its meta, its entry dropped, forgotten: the last session's end. 0 or a negative errno. */
int logs_release_all(struct domain *d);
/* Forgotten, with the mapping; nothing on disk is touched. */
void logs_forget_all(struct domain *d);
/* The end of its durable records; or -EFAULT, -ESTALE (an entry of another id). */
int logs_end(const struct domain *d, const struct domain_log *l, uint64_t *ret);

/* ---- log_remove.c ------------------------------------------------------------------------------ */

/* Nobody finds it any more, then its folder is deleted, and when its records are trimmed it is forgotten: 0 (l is
 * gone), -EAGAIN (not yet: goes on by itself), or a negative errno (goes on by itself if l->removing). */
int logs_remove(struct domain *d, struct domain_log *l);
/* One that is not open: no record of it is live. 0, -ENOENT, or a negative errno. */
int logs_remove_closed(struct domain *d, const char *name);
/* Goes on with those that are under way. */
void logs_remove_tick(struct domain *d);
/* Whether an entry that says so is being removed: 1; 0 (it was not begun: put back); or a negative errno. */
int logs_remove_resumed(struct domain *d, struct domain_log *l);

/* ---- log_requests.c ---------------------------------------------------------------------------- */

void request_log(struct domain *d, struct domain_request *r);
void request_log_list(struct domain *d, struct domain_request *r);
/* Answers those that wait and need not any longer. all: every one, with that status. */
void log_waits_answer(struct domain *d);
void log_waits_end(struct domain *d, int status, const char *why);
/* True if one waits whose submitter is there still. */
bool log_waits_any(const struct domain *d);
/* True if one waits for records to be on disk. */
bool log_waits_step(const struct domain *d);
/* True if one waits for new records; *ret_until becomes the earliest end of patience. */
bool log_waits_records(const struct domain *d, uint64_t *ret_until);

/* ---- log_data.c ------------------------------------------------------------------------------------- */

/* Appends r's payload; fills r. 0, -EAGAIN (no room now), or a negative errno. */
int log_data_append(struct domain *d, struct domain_log *l, struct domain_request *r);
/* What every answer tells about a log. Any thread, under map_lock or the worker's. 0 or -EFAULT. */
int log_data_words(const struct domain *d, const struct domain_log *l, struct wire_log_reply *ret);
/* Reads from lsn into r->data. 1; 0: nothing there yet; or a negative errno. */
int log_data_read(struct domain *d, struct domain_log *l, struct domain_request *r);

/* ---- refused.c: any thread ---------------------------------------------------------------------- */

/* A session writes this file without the lane for that reason; status tells so, until the file is
 * registered after all or the domain's sessions are over. */
void refused_add(struct domain *d, const char *path, const char *why);
void refused_drop(struct domain *d, const char *path);
void refused_clear(struct domain *d);

/* ---- words.c: the control file's words, bounds-checked, SIGBUS survived -------------------------- */

struct file_words {
	uint64_t id, first, last, fence;
	uint32_t state, reason, op, degraded, unlinked;
};
/* 0, -EFAULT (cut short), -EBADMSG (head out of bounds, entry of another id). */
int words_head(const struct domain *d, struct ctl_cell *ret);
/* The same at the beginning of a step that may trim to it (space_mark). Also -EAGAIN: a process stands inside
 * an append, nothing may be trimmed. */
int words_mark(struct domain *d, struct ctl_cell *ret);
int words_file(const struct domain *d, const struct domain_file *df, struct file_words *ret);
static inline struct ctl_file *words_entry(const struct domain *d, const struct domain_file *df)
{
	return &d->s.ctl.files[df->index];
}
/* A reference to a registered file as the lock functions of pool/ take it, and what they have noted in it
 * taken over again: both sides of each call that takes the lock. */
struct file_ref words_ref(const struct domain *d, const struct domain_file *df);
void words_noted(struct domain_file *df, const struct file_ref *ref);
/* Locks a registered file as the daemon; persists rewrite_until first. file_lock's errors, -EFAULT. */
int words_lock(struct domain *d, struct domain_file *df, struct file_ref *ret);
/* The same for a file whose inode is gone: what a dead owner left (`op`, a write without its record) is
 * not put right, since there is nothing that could be. */
int words_lock_gone(struct domain *d, const struct domain_file *df, struct file_ref *ret);
void words_unlock(struct domain *d, struct domain_file *df, struct file_ref *ref);

/* ---- io.c ------------------------------------------------------------------------------------- */

/* libc calls (tests interpose them); a write renews rewrite_until of the file that it changes. */
extern const struct session_io domain_io;
/* rewrite_until of df at least REWRITE_NS/2 ahead, durable. 0 or a negative errno. */
int rewrite_renew(struct domain *d, struct domain_file *df);
/* Which domain this worker thread serves, for domain_io. */
void domain_io_enter(struct domain *d);
/* A new open description of what fd names, O_RDWR; or a negative errno. */
int fd_reopen(int fd);

/* ---- token.c ---------------------------------------------------------------------------------- */

enum token_outcome {
	TOKEN_FREE = 0,
	TOKEN_HELD = 1, /* somebody writes the file without a session */
};
/* Tries the bypass token of a file exclusively and lets it go. Or a negative errno. */
int token_try(int bypass_fd, uint32_t dev_major, uint32_t dev_minor, uint64_t ino);
/* The same, and keeps it: *ret_fd (on TOKEN_FREE, owned by the caller) gives it back when closed. */
int token_claim(int bypass_fd, uint32_t dev_major, uint32_t dev_minor, uint64_t ino, int *ret_fd);

/* ---- beat.c ----------------------------------------------------------------------------------- */

int beat_start(struct domain_set *set);
void beat_stop(struct domain_set *set);
/* d->beating as wanted; a stop returns only when no beat is under way. */
void beat_set(struct domain *d, bool on);
