/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * libpmemlogd: what its files share. Two kinds of calls: those on the path of appending make no libc call that
 * could be cancelled and take only the locks in the control file; all others hold cancellation off and may take the
 * connection's mutex.
 */

#include <pmemlogd.h>
#include <pthread.h>
#include <stdbool.h>

#include "abi/log.h"
#include "abi/wire.h"
#include "client/mark.h"
#include "pool/log_read.h"
#include "pool/segment.h"
#include "pool/session.h"

struct pmemlogd {
	uint64_t key; /* of the process that made it */
	struct session s;
	int control_fd; /* of s.ctl; CLOEXEC, closed in a forked child */
	uint64_t timeout_ns;
	char socket[108];
	char domain[CTL_DOMAIN_MAX];
	struct pmemlogd *next; /* list of all: fork */

	pthread_mutex_t lock; /* the rest */
	int socket_fd;	      /* -1: none */
	uint64_t request_id;
	char text[WIRE_TEXT];
	struct pmemlogd_log *logs;
};

/* Where a reader stands in the segments and in the lane. */
struct reader {
	struct log_place place;
	struct log_buffer buffer;
	struct segment_reader segment;
	struct segment_frame frame; /* the last one of it; length 0: none */
	bool open;
};

struct pmemlogd_log {
	struct pmemlogd *c;
	struct log_ref ref;
	uint8_t *map; /* CTL_LOG_BYTES */
	uint32_t record_max;
	bool read_only;
	char name[CTL_LOG_NAME_MAX];
	struct pmemlogd_log *next; /* of the connection */

	pthread_mutex_t lock; /* reader */
	struct reader reader; /* of pmemlogd_read */
};

/* One record that was found; payload is the reader's. */
struct found {
	uint64_t lsn, time_ns;
	uint32_t length;
	const uint8_t *payload;
};

/* ---- process.c ---------------------------------------------------------------------------------- */

/* This process's key, made when it is first asked for; 0: no memory for it. */
uint64_t process_key(void);
/* 0, or -ECHILD: the connection was made by a parent of ours. */
int process_check(const struct pmemlogd *c);
void process_add(struct pmemlogd *c);
void process_remove(struct pmemlogd *c);
/* A call on the path of appending begins; lib_leave if it returned 0. */
int lib_enter(const struct pmemlogd *c, struct call_mark *m, struct caller *who);
void lib_leave(struct call_mark *m);

/* ---- attach.c ----------------------------------------------------------------------------------- */

/* Takes both descriptors over: maps control file and lane, takes a slot. 0 or a negative errno. */
int attach(struct pmemlogd *c, int control, int lane);
/* Finds them without a daemon. 0 and both descriptors, or a negative errno. */
int attach_find(const struct pmemlogd *c, int *ret_control, int *ret_lane);
/* Gives everything back; in a forked child only what it has. */
void detach(struct pmemlogd *c);

/* ---- link.c: under c->lock ------------------------------------------------------------------------- */

/* Connects and says HELLO. ret_fds (may be NULL: no descriptors wanted): control file and lane. 0, a negative errno of the
 * daemon's, -ETIMEDUT (none, or no answer). */
int link_hello(struct pmemlogd *c, int ret_fds[2]);
/* Sends a log's message and waits for its answer, on a connection that belongs to our session. ret_fd (may be
 * NULL): a descriptor, or -1. extra_ns: what the message itself may wait for. Errors as of link_hello; -ESTALE. */
int link_log(struct pmemlogd *c, uint16_t type, const struct wire_log *q,
	     struct wire_log_reply *ret, int *ret_fd, uint64_t extra_ns);
/* Connected, and to our session? As link_log. */
int link_check(struct pmemlogd *c);
void link_drop(struct pmemlogd *c);

/* ---- read.c -------------------------------------------------------------------------------------- */

/* The record that lsn lies in: 1; 0: lsn is the end; or a negative errno (pmemlogd_read's). */
int reader_find(struct pmemlogd_log *log, struct reader *r, uint64_t lsn, struct found *ret);
void reader_free(struct reader *r);

/* A message about this log. */
struct wire_log log_message(const struct pmemlogd_log *log);

/* Cancellation is off in the scope where this stands. */
struct no_cancel {
	int old;
};
static inline struct no_cancel no_cancel_begin(void)
{
	struct no_cancel n;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &n.old);
	return n;
}
static inline void no_cancel_end(const struct no_cancel *n)
{
	(void)pthread_setcancelstate(n->old, NULL);
}
#define no_cancel                                                                     \
	struct no_cancel no_cancel_ __attribute__((unused, cleanup(no_cancel_end))) = \
		no_cancel_begin()
