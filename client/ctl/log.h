/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What the log verbs share: a connection that stays, and one log of one domain at its other end. */

#include "abi/log.h"
#include "client/ctl/ctl.h"

struct json_object;

struct log_link {
	const char *socket; /* path */
	const char *name;   /* of the log, as given */
	char domain[128];   /* USER/NAME; "" in messages where the domain is that of HELLO */
	char hello[CTL_DOMAIN_MAX]; /* the domain of one's own to say HELLO for; "": none */
	int fd;			    /* -1: not connected */
	uint64_t id;		    /* of the last request */
};

/* A final reply. */
struct log_answer {
	int status; /* 0 or a negative errno */
	union {
		struct wire_log_reply reply;
		struct wire_log_data data; /* LOG_READ */
	};
	int fd;		  /* LOG_SEGMENT: owned by the caller; -1: none */
	uint8_t *payload; /* in the link's buffer, until the next request */
	uint32_t length;
};

/* ---- log_link.c */

/* Connects, asks for FEATURES, says HELLO if l->hello is set. 0, or a negative errno: nobody there (nothing told);
 * or an exit code > 0 (told). */
int link_open(struct log_link *l);
void link_close(struct log_link *l);

/*
 * One request and its final reply, as long as it takes; n bytes of payload follow the body (LOG_APPEND). Returns 0
 * or a negative errno: the daemon went away (nothing told; the link is closed).
 */
int link_ask(struct log_link *l, uint16_t type, const void *body, size_t n, const void *payload,
	     size_t payload_n, struct log_answer *ret);

/* ---- log_place.c */

/* --domain, PMEMLOGD_DOMAIN, or "default". */
const char *log_domain_option(const char *option);

/*
 * Finds the log in what the daemon lists, and connects: 0, or an exit code (told). make: it need not be there; a
 * domain of one's own is made then.
 */
int log_begin(struct ctl *c, const char *domain, const char *name, bool make, struct log_link *ret);

/* A struct wire_log request about the log of l, filled in by the caller but for the names. */
int log_ask(struct log_link *l, uint16_t type, struct wire_log *q, struct log_answer *ret);

/* Tells what a refused request of that type says: an exit code. error < 0: the daemon went away; else a->status
 * says. */
int log_refused(const struct log_link *l, uint16_t type, int error, const struct log_answer *a);

/* The daemon's list of logs in a domain (USER/NAME, NAME, "" all): 0 and *ret (json_object_put; an array), or an
 * exit code (told). */
int log_list(struct ctl *c, const char *domain, struct json_object **ret);
const char *log_json_text(struct json_object *o, const char *name);
uint64_t log_json_number(struct json_object *o, const char *name);

/* ---- log_read.c */

/* An LSN, or "first", "end". False: told. */
bool log_parse_lsn(const char *text, const struct wire_log_reply *stat, uint64_t *ret);

struct log_record {
	uint64_t lsn;
	uint64_t time_ns; /* 0: not told (longer than an answer) */
	const uint8_t *data;
	uint32_t length;
};

/* Called for each record; false ends the walk. */
typedef bool log_record_fn(void *arg, const struct log_record *r);

/*
 * Records from the one that *lsn is in, up to `to`; *lsn is where it ended. timeout_ms > 0: where there is none yet,
 * waits so long for the first. 0; a negative errno (the daemon went away; -EIO with a->status set: refused).
 */
int log_walk(struct log_link *l, uint64_t *lsn, uint64_t to, uint32_t timeout_ms, log_record_fn *fn,
	     void *arg, struct log_answer *a);

/* Prints a record as `dump` does. json: one object on a line. */
void log_print_record(const struct log_record *r, bool json);
