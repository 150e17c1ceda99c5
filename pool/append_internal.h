/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The parts of an append, for those that store several records in one critical section (log.c). All
 * under the lane lock. */

#include "pool/append.h"

/* Where a record goes, decided under the lane lock. */
struct place {
	uint64_t head;	   /* where the record before ends */
	uint64_t drained;  /* published head: where the critical section began */
	uint64_t position; /* of the record: head, or the ring's start after a PAD */
	uint64_t end;
	uint32_t chain; /* CRC field of the record before head */
};

/* Finds room behind `cell` (the published head, or the end of a record that is stored already; then the caller
 * puts `drained` right). enum append_outcome; hostile words in the control file: -EPROTO. Nothing is
 * stored. */
int append_place(const struct session *s, const struct ctl_file *f, const struct append_request *r,
		 struct ctl_cell cell, struct place *ret);

/* [PAD header,] payload, then header: not durable before a drain by this thread. Returns the record's
 * CRC. */
uint32_t append_store(struct session *s, const struct append_request *r, uint64_t file_id,
		      const struct place *at, uint64_t now);

/* The entry's book-keeping, before head is published: a destager that sees a head sees `last`. */
void append_note(struct session *s, struct ctl_file *f, const struct append_request *r,
		 const struct place *at);

/* {head, chain} as one. The record is durable. */
void append_publish(struct ctl_hot *hot, const struct place *at, uint32_t crc);

/* After the lane lock is given back: wakes the destager if it sleeps and wants to hear of this head. */
void append_wake(const struct session *s, uint64_t head);
