/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * One native log on disk: <state_dir>/logs/<uid>-<domain>/<log>/ with `meta` and segments (abi/log.h). Written by
 * the daemon and by recovery alone, one at a time. Calls go through libc, so that tests can make them fail.
 *
 * `meta` is text, replaced whole: made, first, and an end that all segments reached when it was written. What lies
 * beyond the end that is known to be durable (the catalog's, else meta's) is not believed, whatever the
 * page cache shows of it: the lane still has it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/log.h"
#include "pool/segment.h"

#define LOG_STORE_UNKNOWN UINT64_MAX

struct log_name {
	const char *state_dir;
	uint32_t uid;
	const char *domain, *name;
};

struct log_store {
	char path[512]; /* of the folder */
	char name[CTL_LOG_NAME_MAX];
	char domain[CTL_DOMAIN_MAX];
	uint32_t uid;
	int dir_fd;
	uint8_t log[16];
	uint32_t mode;
	uint64_t capacity;
	uint64_t first;	    /* LSN of the oldest record kept; durable */
	uint64_t disk;	    /* all below is durable in segments */
	uint64_t end;	    /* all below was written or lies in the buffer */
	uint64_t *segments; /* first LSNs, ascending; owned */
	uint32_t n_segments;
	int fd;		   /* newest segment, read-write; -1: none yet */
	uint64_t fd_bytes; /* written to it, or lying in the buffer */
	bool folder_dirty; /* a segment was made since the folder was synced */
	uint8_t *buffer;   /* owned */
	size_t buffered;
	char why[200]; /* of the last failure, for people */
};

/* True if it may be a log's name: 1 to 63 of A-Z a-z 0-9 _ . @ -, the first no dot; n bytes are there. */
bool log_name_ok(const char *name, size_t n);

/*
 * Makes a log's folder and its meta, durable with all folders above. mode, capacity: abi. 0, -EEXIST, or a negative
 * errno of the calls.
 */
int log_store_create(const struct log_name *n, uint32_t mode, uint64_t capacity);

/*
 * Opens a log. known: the end that is durable in its segments, from the catalog, or LOG_STORE_UNKNOWN. For writing
 * everything beyond it (or, not known, beyond the last whole frame) is cut off, durably; read only: nothing
 * is changed. Returns 0 (free it with log_store_close), -ENOENT, -EBADMSG (damaged, or ends below what is known:
 * ret->why), or a negative errno.
 */
int log_store_open(struct log_store *ret, const struct log_name *n, uint64_t known, bool write);
void log_store_close(struct log_store *s);

/*
 * Adds a record. One that is there already is passed over. -EBADMSG: it does not follow. After any error the
 * store is to be closed and opened anew. Not durable before log_store_sync.
 */
int log_store_put(struct log_store *s, uint64_t lsn, uint64_t time_ns, const void *payload,
		  uint32_t length);

/* Everything put is durable: disk == end. Persist order: frames, fdatasync of each segment, then their
 * folder where one is new. */
int log_store_sync(struct log_store *s);

/* Writes meta with today's first and end (disk). Durable on return. */
int log_store_meta(struct log_store *s);

/*
 * first becomes the LSN of the record that lsn lies in (lsn at most disk); segments wholly below go.
 * Persist order: meta, then the segments, then their folder: a cut leaves segments that nobody reads, and the
 * next opening removes them.
 */
int log_store_trim(struct log_store *s, uint64_t lsn);

/* A new read-only descriptor of the segment that lsn (below disk, at or above the oldest segment) lies in, and its first LSN; or a
 * negative errno (-ENXIO: none). */
int log_store_segment(const struct log_store *s, uint64_t lsn, uint64_t *ret_first);

/* Deletes the folder, whatever is in it: meta first, so that a cut leaves no log. Again after a failure. 0, -ENOENT
 * (there is none), or a negative errno. */
int log_store_remove(const struct log_name *n);

/* Calls each() with the name of every log of the domain that is on disk. 0 or a negative errno. */
int log_store_list(const char *state_dir, uint32_t uid, const char *domain,
		   void (*each)(void *arg, const char *name), void *arg);

/* Name of the file of a segment. */
#define SEGMENT_NAME_BYTES 24u
void segment_name(uint64_t lsn, char buf[SEGMENT_NAME_BYTES]);
