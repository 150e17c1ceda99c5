/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What dump shows: the walk (dump_walk.c) and how it is written (dump_print.c). */

#include <stdio.h>

#include "client/ctl/look.h"
#include "client/ctl/pool_copy.h"

struct dump {
	/* in */
	struct pool_copy *pool;
	struct lane lane;
	struct pool_domain domain; /* name "": the catalog names none for this lane */
	uint64_t file_id;	   /* 0: all */
	uint64_t from;		   /* position */
	bool json, data;
	FILE *out;
	/* out */
	struct look look;
	uint64_t records, bytes; /* shown; bytes: payload */
};

/* Shows the records. 0; -EBADMSG: the lane is damaged (d->look.why), what could be read was shown; -ENOENT:
 * no record at or after `from`. The caller guards nothing: all reads survive SIGBUS. */
int dump_walk(struct dump *d);

/* ---- dump_print.c */

/* Path of a file by its id in the catalog, printable; "" if it knows none for this lane. */
const char *dump_path(struct dump *d, uint64_t id, char *buf, size_t n);

void dump_print_begin(struct dump *d);
/* chained: the record's chain was checked. payload: h->length bytes that have its CRC, or NULL. */
void dump_print_record(struct dump *d, const struct record_header *h, bool chained,
		       const uint8_t *payload);
void dump_print_end(struct dump *d);
