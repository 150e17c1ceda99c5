/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Histories of one native log: what logs.c does and logs_check.c looks at. */

#include <stdbool.h>
#include <stdint.h>

#include "pool/log.h"
#include "tests/crash/medium.h"

#define LOGS_ID	     7001u /* of the log */
#define LOGS_RECORDS 400u  /* of one run */

/* What is known of a record; its number is its first word. */
struct known {
	uint32_t length;
	bool returned, acked;
	uint64_t lsn;	/* if returned */
	uint64_t above; /* what had an LSN before it was called */
};

/* A log's records in their order. */
struct stream {
	uint32_t number[LOGS_RECORDS];
	uint64_t lsn[LOGS_RECORDS];
	uint32_t n;
	uint64_t end;
};

struct logs_stats {
	uint64_t states, failures, replayed;
	uint64_t seed, steps; /* where we are */
};
extern struct logs_stats logs_stats;

extern struct medium logs_medium;
extern struct log_ref logs_ref;

extern struct known logs_known[LOGS_RECORDS];
extern uint32_t logs_n;
extern uint64_t logs_given;	   /* end of all that was returned */
extern struct stream logs_on_disk; /* in synced segments */
extern struct rng logs_looks;

/* One more failure; the first ones are told. */
void logs_fail(const char *what, const char *image);
/* A record's byte i behind its first eight: number and length. */
uint8_t logs_byte(uint32_t number, uint32_t i);
/* Puts a record behind the last one; one that is there is passed over. NULL or what is wrong with it. */
const char *logs_put(struct stream *s, uint64_t lsn, const uint8_t *payload, uint32_t length);
/* Is all there that has to be, once, in its order? NULL or what is wrong. */
const char *logs_judge(const struct stream *s);
/* This moment: each kind of image, recovered. */
void logs_look(void);
