/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A database's process as far as the daemon can tell: forked, with a slot of its own, writing through
 * pool/ alone. It obeys one command at a time. */

#include <stdint.h>
#include <sys/types.h>

enum client_op {
	CLIENT_ATTACH = 1, /* control and lane descriptor go along */
	CLIENT_OPEN,	   /* path; the descriptor comes back (it keeps its own) */
	CLIENT_BIND,	   /* a: entry, b: id */
	CLIENT_WRITE,	   /* a: offset, b: length, c: byte */
	CLIENT_WRITE_HELD, /* the same, up to the real call: its result; any next command has the record
			      appended, and its result is the write's */
	CLIENT_SYNC,
	CLIENT_FENCE,	    /* RULE F around nothing */
	CLIENT_UNLINK,	    /* path */
	CLIENT_UNLINK_DIES, /* is killed between the UNLINK record and the call: no reply */
	CLIENT_FENCED_DIES, /* is killed inside RULE F: no reply */
	CLIENT_CUT_CONTROL,
	CLIENT_CUT_LANE,
	CLIENT_FULL_BYPASS, /* enters bypass as a writer does that finds the lane full and no daemon */
	CLIENT_MAPPED,	    /* enters bypass as for a writable shared mapping */
	CLIENT_LOOP,	    /* writes for ever, without a reply */
	CLIENT_FORGE_HEAD, /* a: a head that no lane can have */
	CLIENT_FORGE_ID,   /* of its own entry */
	CLIENT_DEGRADE,	   /* what a failed sync of its own does */
	CLIENT_EXIT,
};

struct client_command {
	enum client_op op;
	uint64_t a, b, c;
	char path[512];
};

struct client {
	pid_t pid;
	int sock;
};

void client_start(struct client *c);
/* Sends, waits for the reply: the operation's result (negative errno on failure). fds: two, or NULL;
 * ret_fd: a descriptor that comes back, or NULL. */
int64_t client_do(struct client *c, const struct client_command *command, const int *fds,
		  int *ret_fd);
/* SIGKILL (hard) or a clean exit; waits until it is gone. */
void client_end(struct client *c, int hard);
