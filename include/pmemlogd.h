/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PMEMLOGD_H
#define PMEMLOGD_H
/*
 * Native logs: named append-only logs whose records are durable in persistent memory, in about a
 * microsecond and without a system call, and in files a moment later. Link with -lpmemlogd.
 *
 *	struct pmemlogd *c;
 *	struct pmemlogd_log *log;
 *	uint64_t lsn;
 *	int r = pmemlogd_connect(&c, NULL);
 *
 *	if (r == 0)
 *		r = pmemlogd_open(c, "wal", PMEMLOGD_CREATE, 0600, 0, &log);
 *	if (r == 0)
 *		r = pmemlogd_append(log, "hello", 5, &lsn);
 *
 * A log is a stream of bytes, written in records. An LSN is a byte offset in that stream: the first
 * record has LSN 0, and a record of n bytes at LSN x is followed by one at x + n; there is no hole, and no
 * LSN is used twice. When the byte at an LSN is durable, all bytes below it are.
 *
 * A log belongs to a domain: (user, name), as the preload library's files do. All processes of the domain
 * may write it at once; the order of their records is one. Its records and the files of the same domain
 * share one order (pmemlogd(8), G3).
 *
 * Errors: functions return 0 or more, or a negative errno; none of them touches errno for the
 * caller's use. What each one may return besides what it lists: -EINVAL (an argument is NULL, out of range, or
 * a structure's size is not known), -ENOMEM, -ECHILD (see Fork), -EDEADLK (see Signals), -EBADMSG (what
 * lies in control file, lane or segment is damaged; nothing was done with it), -ESTALE (the session was ended, see
 * pmemlogd_reconnect, or the log was removed); and where the daemon is needed -EPROTO (it is of another version) and
 * -EMFILE (no descriptor is left).
 * An append that returned an error has left no record and never will.
 *
 * Ownership: what a function hands out is freed by the function that is named there, and not before
 * everything made from it has been freed: cursors, then logs, then the connection. Buffers that are passed in
 * stay the caller's and are not looked at after the call. A NULL to a freeing function is fine.
 *
 * Threads: any function may be called by any number of threads on the same connection and the same log; a
 * cursor serves one thread at a time. Freeing something that another thread still uses is the
 * caller's error.
 *
 * Signals: no function may be called in a signal handler that interrupted another one of them on the
 * same thread: pmemlogd_append and its relatives and pmemlogd_wait notice that and return -EDEADLK, the others
 * may hang. Calls that wait go on after a handler has run; none returns -EINTR. A handler may leave
 * pmemlogd_append, its relatives and pmemlogd_wait by longjmp, not the others; such a call then counts as killed
 * (see Death), and what it was doing is there or not. The others go on once this thread has made its next call on
 * that log, or has ended.
 *
 * Cancellation: pmemlogd_append and its relatives and pmemlogd_wait are cancellation points only at
 * their beginning, before anything is done. All other functions hold cancellation off until they return.
 *
 * Fork: a child has none of its parent's connections: everything but the freeing functions
 * returns -ECHILD there. It may connect for itself. A process image replaced by exec has nothing.
 *
 * Death: a process may be killed at any instruction. A record whose append had not returned is there whole or
 * not at all; the other processes go on within 0.2 s, the daemon's absence or restart does not matter to
 * them. A process that is *stopped* inside an append holds the others up.
 *
 * The preload library in the same process is fine as long as the two use different domains; else
 * pmemlogd_connect returns -EBUSY.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PMEMLOGD_API __attribute__((visibility("default")))

/* Bytes of a log's name with its terminating zero. 1 to 63 of A-Z a-z 0-9 _ . @ -, the first no dot. */
#define PMEMLOGD_NAME_MAX 64

/* Logs that are open in one domain at the same time, by whichever processes. */
#define PMEMLOGD_LOGS_MAX 64

/* Buffers of one append. */
#define PMEMLOGD_IOV_MAX 1024

struct pmemlogd;	/* a connection to one domain */
struct pmemlogd_log;	/* one open log */
struct pmemlogd_cursor; /* a place in a log, moving forward */

/* May grow at its end: size is sizeof(struct pmemlogd_options), the rest zero. */
struct pmemlogd_options {
	uint32_t size;
	uint32_t timeout_ms; /* for each answer of the daemon; 0: 5000 */
	const char *socket;  /* NULL: PMEMLOGD_SOCKET, else /run/pmemlogd/pmemlogd.sock */
	const char *domain;  /* NULL: PMEMLOGD_DOMAIN, else "default" */
};

/* The library's version, for people: static text. Async-signal-safe. */
PMEMLOGD_API const char *pmemlogd_version(void);

/*
 * Connects to a domain of the calling user and makes it if it is not there. options may be NULL: all
 * defaults; the two environment variables are not looked at in a set-user-ID program. *ret: pmemlogd_disconnect.
 * A process may have several connections; those to one domain share what they can.
 * Without a daemon it succeeds while another process of the domain is connected.
 * Errors: -ETIMEDOUT (no daemon, or no answer), -EACCES (not an allowed user), -EBUSY (the domain is held or
 * quarantined; or the preload library has it in this process), -ENOSPC (no room in the pool), -EPROTO
 * (the daemon is of another version), -EMFILE (1023 processes are connected already, or no descriptors).
 */
PMEMLOGD_API int pmemlogd_connect(struct pmemlogd **ret, const struct pmemlogd_options *options);

/*
 * Looks whether the daemon can be reached, and connects anew where it was restarted. The other
 * functions do that by themselves when they need the daemon; appends need none. Nothing is lost or
 * doubled by it: the logs stay open and appends that others make meanwhile go on.
 * 0; -ETIMEDOUT: there is none now; -ESTALE: the domain's session was ended under us (its control file was
 * damaged, or `pmemlogctl recover` ran): close everything, connect and open anew; what was acknowledged is
 * there, and pmemlogd_stat says where the log ends.
 */
PMEMLOGD_API int pmemlogd_reconnect(struct pmemlogd *c);

/* Frees a connection; returns NULL. Its logs are closed before. */
PMEMLOGD_API struct pmemlogd *pmemlogd_disconnect(struct pmemlogd *c);

/* What the daemon said last about a failure on this connection, in words, into buf (n > 0 bytes, always
 * terminated): "" if nothing. Returns buf. */
PMEMLOGD_API char *pmemlogd_message(struct pmemlogd *c, char *buf, size_t n);

enum pmemlogd_open_flags {
	PMEMLOGD_CREATE = 1,	/* make the log if it is not there */
	PMEMLOGD_EXCLUSIVE = 2, /* with CREATE: -EEXIST if it is there */
	PMEMLOGD_READ_ONLY = 4, /* appends and trims return -EBADF */
};

/*
 * Opens a log. flags: of enum pmemlogd_open_flags. mode, used when it is made: 0600, or 0400 for a log that
 * only the one who made it, through the handle that made it, may write; other bits are kept for later and
 * are -EINVAL now. capacity in bytes, used when it is made: appends return -ENOSPC while the
 * untrimmed part would grow above it; 0: no such limit. Else at least 65536.
 * Needs the daemon. When it returns, the log's existence is durable. *ret: pmemlogd_close.
 * Errors: -ENOENT, -EEXIST, -EACCES (mode), -EMFILE (PMEMLOGD_LOGS_MAX), -ENOSPC (state directory, catalog),
 * -EIO, -EBUSY (domain held), -EBADMSG (its segments are damaged: pmemlogd_message says where),
 * -ETIMEDOUT (no daemon), -ESTALE (see pmemlogd_reconnect), -EOPNOTSUPP (a daemon without logs).
 */
PMEMLOGD_API int pmemlogd_open(struct pmemlogd *c, const char *name, unsigned flags, mode_t mode,
			       uint64_t capacity, struct pmemlogd_log **ret);

/* Makes everything that was appended without waiting durable as far as that is possible, and frees the
 * handle; returns NULL. The log stays. */
PMEMLOGD_API struct pmemlogd_log *pmemlogd_close(struct pmemlogd_log *log);

/* Deletes a log with all its records. Handles that are open, in whichever process, give -ESTALE from then on.
 * Needs the daemon. Durable on return. -ENOENT; -EBUSY (records of it cannot be let go of now: the disk
 * fails); -ETIMEDOUT; -EIO. */
PMEMLOGD_API int pmemlogd_remove(struct pmemlogd *c, const char *name);

/*
 * Appends one record of n bytes, 1 to pmemlogd_stat's record_max. On 0 it is durable: it survives the
 * death of process, daemon and machine; so is every record before it, whoever appended it. *ret_lsn (may
 * be NULL) is its LSN. Reads buf once. No system call, except where there is contention, no room, or somebody
 * who sleeps has to be woken.
 * Without room it waits for the daemon to make some. -ENOSPC: there is none, and the daemon is gone, or its
 * disk full or failing, for the domain's reconnect_timeout (1 s; 10 s if the daemon tries and fails); or the
 * log's capacity is reached. -EMSGSIZE: longer than record_max. -EBADF: opened read-only. -EOVERFLOW:
 * the log would pass 2^63 - 1.
 */
PMEMLOGD_API int pmemlogd_append(struct pmemlogd_log *log, const void *buf, size_t n,
				 uint64_t *ret_lsn);

/* The same of several buffers as one record; iovcnt 1 to PMEMLOGD_IOV_MAX. */
PMEMLOGD_API int pmemlogd_appendv(struct pmemlogd_log *log, const struct iovec *iov, int iovcnt,
				  uint64_t *ret_lsn);

/*
 * Appends one record that is not durable yet: it gets its LSN and its place in the order, and survives the
 * death of this process (the others of the domain make it durable with their own), not of the machine. The next
 * pmemlogd_wait, pmemlogd_append, pmemlogd_sync or pmemlogd_close by anybody on this log makes it durable;
 * until then no reader sees it. Should every process of the domain end before that, it is gone. Same
 * arguments, limits and errors as pmemlogd_append.
 */
PMEMLOGD_API int pmemlogd_append_nowait(struct pmemlogd_log *log, const void *buf, size_t n,
					uint64_t *ret_lsn);
PMEMLOGD_API int pmemlogd_appendv_nowait(struct pmemlogd_log *log, const struct iovec *iov,
					 int iovcnt, uint64_t *ret_lsn);

/*
 * Waits until the record at lsn is durable, and with it all before it. Whoever comes first makes all that were
 * appended without waiting durable in one go, for all threads and processes (group commit).
 * 0; -ENOSPC as for pmemlogd_append: the record is still in its place and may become durable later; -ENXIO: no
 * such record was appended.
 */
PMEMLOGD_API int pmemlogd_wait(struct pmemlogd_log *log, uint64_t lsn);

/*
 * Waits until the record at lsn, and all before it, are on disk: in the log's segments, synced. Makes them
 * durable first. timeout_ms: below 0 without limit. Needs the daemon.
 * 0; -ETIMEDOUT (in time: it may come later; or no daemon); -EBUSY (the disk fails or is full:
 * pmemlogd_message says so; the records are safe in the pool and are tried again); -ENXIO; and those of
 * pmemlogd_wait.
 */
PMEMLOGD_API int pmemlogd_sync(struct pmemlogd_log *log, uint64_t lsn, int timeout_ms);

/*
 * Reads up to n bytes of the stream from lsn on, whatever the records' bounds are, into buf. Reads what is
 * durable, in the pool or on disk. Returns how many bytes (less than n only at the log's end; 0: lsn is the
 * end), or -ERANGE (lsn was trimmed), -ENXIO (beyond the end), -ETIMEDOUT (it is on disk, in a segment that
 * this process has not opened yet, and there is no daemon), -EIO, -EBADMSG (a CRC does not hold).
 */
PMEMLOGD_API ssize_t pmemlogd_read(struct pmemlogd_log *log, uint64_t lsn, void *buf, size_t n);

/* One record as it was appended. data is the cursor's and stands until its next use. */
struct pmemlogd_record {
	uint64_t lsn;
	uint64_t time_ns; /* CLOCK_REALTIME, of appending, at the resolution of a timer tick */
	const void *data;
	size_t length; /* bytes */
};

/* lsn for pmemlogd_cursor_new: the log's first record; behind its last one (follow from now on). */
#define PMEMLOGD_FIRST UINT64_MAX
#define PMEMLOGD_END   (UINT64_MAX - 1)

/*
 * A cursor that stands at a record: lsn is the LSN of one, or of a byte inside one (then that record), the log's
 * end, PMEMLOGD_FIRST or PMEMLOGD_END. *ret: pmemlogd_cursor_free. Errors as of pmemlogd_read.
 */
PMEMLOGD_API int pmemlogd_cursor_new(struct pmemlogd_log *log, uint64_t lsn,
				     struct pmemlogd_cursor **ret);

/*
 * The next record, into *ret, and the cursor moves behind it: 1. 0: there is none (timeout_ms 0), or none came
 * in time (above 0), below 0: waits for ever (follow). A record is seen once it is durable; a waiter
 * sees it within a millisecond. Each record comes exactly once, in order, whatever is
 * killed or restarted meanwhile. -ERANGE: the records where the cursor stood were trimmed; the cursor stays
 * there. Other errors as of pmemlogd_read; the cursor stays, and the call may be repeated.
 */
PMEMLOGD_API int pmemlogd_next(struct pmemlogd_cursor *cursor, struct pmemlogd_record *ret,
			       int timeout_ms);

/* LSN of the record that pmemlogd_next would give next. */
PMEMLOGD_API uint64_t pmemlogd_cursor_lsn(const struct pmemlogd_cursor *cursor);

/* Frees a cursor; returns NULL. */
PMEMLOGD_API struct pmemlogd_cursor *pmemlogd_cursor_free(struct pmemlogd_cursor *cursor);

/*
 * Gives up all records that end at or below lsn: they are not read any more, and their segments are deleted as
 * soon as no record in them is left. lsn inside a record keeps that record. Durable on return: what was
 * given up does not come back. Needs the daemon, and waits until the records below lsn are on disk.
 * *ret_first (may be NULL): LSN of the first record that is left. -ENXIO (beyond the end); -EBADF (opened
 * read-only); others as of pmemlogd_sync.
 */
PMEMLOGD_API int pmemlogd_trim(struct pmemlogd_log *log, uint64_t lsn, uint64_t *ret_first);

enum pmemlogd_stat_flags {
	PMEMLOGD_NOT_DURABLE = 1, /* the pool is emulated: a power cut loses what is not on disk */
	PMEMLOGD_FAILING = 2,	  /* the disk fails or is full: records stay in the pool for now */
	PMEMLOGD_NO_DAEMON = 4,	  /* none serves the domain now */
};

/* May grow at its end: set size to sizeof(struct pmemlogd_stat) before the call. All are LSNs or bytes. */
struct pmemlogd_stat {
	uint32_t size;
	uint32_t flags;	     /* enum pmemlogd_stat_flags */
	uint64_t first;	     /* LSN of the oldest record; == durable: the log is empty */
	uint64_t disk;	     /* all below is on disk */
	uint64_t durable;    /* all below is durable: the end for readers */
	uint64_t appended;   /* all below has been appended: the next LSN */
	uint64_t capacity;   /* 0: none */
	uint64_t record_max; /* bytes of the longest record */
	uint64_t pool_bytes; /* of the domain's lane */
	uint64_t pool_used;  /* of it */
};

/* What the log is like now. No system call but for PMEMLOGD_NO_DAEMON (one); needs no daemon. */
PMEMLOGD_API int pmemlogd_stat(struct pmemlogd_log *log, struct pmemlogd_stat *ret);

#ifdef __cplusplus
}
#endif

#endif
