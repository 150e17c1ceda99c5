/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What the files of a log's store share. */

#include "daemon/logs/store.h"

/* What `meta` says. */
struct log_meta {
	uint8_t log[16];
	uint32_t mode;
	uint64_t capacity, first, end;
};

/* Reads and checks DIR/meta: 0, -ENOENT, -EBADMSG, or a negative errno. */
int log_meta_read(const char *path, struct log_meta *ret);
/* Durable on return. */
int log_meta_write(const char *path, const struct log_meta *m);

/* Words for s->why; returns r. */
int log_store_fail(struct log_store *s, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Folder of a log. -ENAMETOOLONG, -EINVAL (names). */
int log_store_path(const struct log_name *n, char buf[512]);

/* Deletes the segments wholly below `first`, never the newest. 0 or a negative errno. */
int log_store_drop(struct log_store *s);
