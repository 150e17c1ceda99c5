/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * All domains at run time: one worker thread each, which makes every call on a file of its domain. The
 * event loop only submits requests and never blocks on a file.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "abi/log.h"
#include "abi/wire.h"
#include "daemon/config.h"
#include "pool/dir/pool.h"

struct domain_set;

enum domain_request_kind {
	DOMAIN_HELLO = 1, /* attach: creates the domain and its lane if they are missing */
	DOMAIN_REGISTER,
	DOMAIN_FLUSH,
	DOMAIN_GATE,
	DOMAIN_RECOVER,
	DOMAIN_LOG, /* a LOG_ message but LOG_LIST: mode is its enum wire_type */
	DOMAIN_LOG_LIST,
};

/* One request. The submitter owns it and keeps it alive until done() was called. */
struct domain_request {
	enum domain_request_kind kind;
	/* in */
	int fd; /* REGISTER, RECOVER with ADOPT: taken over and closed by the worker; else -1 */
	uint32_t mode; /* RECOVER: enum wire_recover_mode. HELLO: WIRE_WANT_* */
	char path[WIRE_TEXT];
	/* out */
	int status;	    /* 0 or a negative errno, as wire.h documents for the message */
	uint32_t exit_code; /* for pmemlogctl */
	char text[WIRE_TEXT];
	int control_fd, lane_fd; /* HELLO: duplicates, owned by the submitter; else -1 */
	uint32_t lane;
	uint64_t incarnation;
	uint32_t entry, state;	    /* REGISTER */
	uint64_t id;		    /* REGISTER */
	struct json_object *report; /* RECOVER, LOG_LIST: owned by the submitter */
	/* LOG: */
	struct wire_log log;
	struct wire_log_reply log_reply;
	struct wire_log_data log_data; /* LOG_READ */
	void *data; /* LOG_APPEND: payload; LOG_READ: what was read. Owned by the submitter, malloc */
	uint32_t data_length; /* bytes */
	int out_fd;	      /* LOG_SEGMENT: owned by the submitter; else -1 */
	/* called exactly once, in the worker's thread: hands the request back to the event loop */
	void (*done)(struct domain_request *r);
	void *arg;
	/* the worker's own: */
	struct domain_request *next;
	uint64_t goal;	      /* FLUSH: done when the tail is there. REGISTER: tries */
	uint64_t deadline_ns; /* FLUSH: given up when it fails for so long */
	uint64_t until_ns; /* LOG: CLOCK_MONOTONIC of the client's patience; UINT64_MAX: for ever */
	bool gone;	   /* the submitter's, atomic: nobody wants the answer any more */
};

/*
 * Loads the catalog and makes a worker for each domain in it. p and c outlive the set. pool_error text
 * on failure. notify (may be NULL) is called from workers when a domain was decided or its state
 * changed (STATUS line, readiness).
 */
int domain_set_new(struct domain_set **ret, struct pool *p, const struct config *c,
		   void (*notify)(void *arg), void *arg, struct pool_error *ret_error);

/* True when every domain is decided: readiness. */
bool domain_set_decided(const struct domain_set *set);

/* Queues a request to the domain (uid, name). Never blocks. Unknown domain: HELLO makes it, GATE
 * succeeds, others complete with -ENOENT at once. */
void domain_submit(struct domain_set *set, uint32_t uid, const char *name,
		   struct domain_request *r);

/* A connection that uses the domain's logs by messages is a session without a slot: it counts while one of these
 * is outstanding. -1: what it waited for is looked at, too. Unknown domain: nothing happens. */
void domain_log_user(struct domain_set *set, uint32_t uid, const char *name, int change);

/*
 * Appends to a log that is open, at once and in the caller's thread: for the event loop. Waits for nobody. False: it
 * has to go to the worker (a lock that is taken, no room, not open). True: r is filled in, not done().
 */
bool domain_log_append(struct domain_set *set, uint32_t uid, const char *name,
		       struct domain_request *r);

/* A client connection of the domain ended: look at its slots soon. */
void domain_hangup(struct domain_set *set, uint32_t uid, const char *name);

/* Calls each(arg, uid, name) for every domain that `filter` ("", NAME, USER/NAME) names; returns how
 * many, or -EINVAL (unknown user). */
int domain_set_each(struct domain_set *set, const char *filter,
		    void (*each)(void *arg, uint32_t uid, const char *name), void *arg);

/*
 * The document of `pmemlogctl status --json` for the domains that filter names; never blocks on a file
 * or a client's lock. Owned by the caller. ret_exit: 0, or 1 (degraded, bypassed, held, quarantined,
 * or not durable).
 */
struct json_object *domain_set_status(struct domain_set *set, const char *filter,
				      uint32_t *ret_exit);

/* One line for sd_notify STATUS=. */
void domain_set_summary(struct domain_set *set, char *buf, size_t n);

/* Clean stop: destages everything, ends the workers; sessions go on without us. Blocks up to
 * timeout_ns; then gives up waiting for destage (the data is safe in the pool). */
struct domain_set *domain_set_stop(struct domain_set *set, uint64_t timeout_ns);
