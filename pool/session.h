/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * One attached lane as a process sees it (a database's process, or the daemon): control file, lane,
 * slot. Everything that appends or changes a registered file takes this.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "pool/control.h"
#include "pool/lane.h"
#include "pool/lock.h"

/* Real calls on backing files. Each returns >= 0 or a negative errno. The crash simulator has its
 * own filling; session_sys_io is raw system calls. */
struct session_io {
	ssize_t (*pwritev)(int fd, const struct iovec *iov, int iovcnt, int64_t offset,
			   int rwf_flags);
	int (*fsync)(int fd);
	int (*fdatasync)(int fd);
	int (*fstat)(int fd, struct stat *ret);
	int64_t (*lseek)(int fd, int64_t offset, int whence);
	/* Sets or clears O_APPEND on the description (heal: pwrite appends while it is set). */
	int (*set_append)(int fd, bool on);
};
extern const struct session_io session_sys_io;

struct session {
	struct control ctl;
	struct lane lane;
	const struct session_io *io;
	struct ctl_head head_copy; /* the checked constant part */
	struct holder me;	   /* slot; in the shim kept equal to the wipe-on-fork page's */
	bool is_daemon;		   /* locks time out after 1 s; no space waits */
	uint64_t lock_ns;	   /* instead of that second; 0: as it is */
	/* The daemon as a wait for room gave it up, until it moves: the other files' writers need not
	 * find out again. Atomic, relaxed: a torn look costs a wait or a bypass. */
	uint64_t stalled_ns;   /* daemon_ns + 1; 0: not given up */
	uint32_t stalled_seq;  /* daemon_seq */
	uint32_t stalled_trim; /* trim_seq */
};

#define SESSION_DAEMON_LOCK_NS \
	UINT64_C(1000000000) /* a hostile peer delays the daemon by no more */

/* How long a lock is waited for. */
static inline uint64_t session_lock_ns(const struct session *s)
{
	if (s->lock_ns)
		return s->lock_ns;
	return s->is_daemon ? SESSION_DAEMON_LOCK_NS : LOCK_FOREVER;
}

/* Per call: which thread, and whether it is known to be inside of no other call, so that a lock with its own word
 * was left by a longjmp. */
struct caller {
	uint32_t tid;
	int stale_self;
};
