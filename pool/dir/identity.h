/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Who a backing file is: handle, birth time, file system, ctime; and its owner mark. */

#include "pool/dir/pool.h"

/*
 * Fills the identity part of *ret (fs_uuid, handle, btime, ctime, ino) from a descriptor. trust_fs: list
 * of further file system type names, NULL-terminated, may be NULL. -EOPNOTSUPP: file system not
 * supported, or no handles, or no user xattrs; -EINVAL: no regular file.
 */
int identity_of(int fd, const char *const *trust_fs, struct pool_file *ret);

/*
 * Birth time (0: the file system has none), ctime, inode number and link count of a regular file; the
 * last two may be NULL. Times in ns since 1970. 0, -EINVAL (no regular file) or a negative errno.
 */
int identity_times(int fd, int64_t *ret_btime_ns, int64_t *ret_ctime_ns, uint64_t *ret_ino,
		   uint32_t *ret_nlink);

/*
 * UUID of the file system behind a descriptor: 0 or a negative errno. Where it has none (all zero):
 * "fsid" and what statfs gives, which may change at the next mount.
 */
int identity_fs_uuid(int fd, uint8_t ret_uuid[16]);

enum identity_outcome {
	IDENTITY_OK = 0,
	IDENTITY_NOT_MOUNTED = 1, /* no mount of that file system, or two different ones */
	IDENTITY_STALE = 2,	  /* handle names no file, or one without a name, any more */
};

/* Opens the file by handle on the mount found by UUID (mountinfo). flags: O_RDONLY, O_RDWR. Returns
 * enum identity_outcome with *ret_fd on OK, or a negative errno. */
int identity_open(const struct pool_file *f, int flags, int *ret_fd);

/* Owner mark, xattr user.pmemlogd.owner: pool uuid, lane, machine id, handle, birth time. */
enum mark_outcome {
	MARK_OURS = 0,
	MARK_NONE = 1,
	MARK_FOREIGN = 2, /* another pool, lane or machine */
	MARK_COPY = 3,	  /* its handle is not this file's: came along with a copy */
};
/* f: identity (handle, birth time) and lane. Returns enum mark_outcome or a negative errno. */
int mark_read(int fd, const struct pool *p, const struct pool_file *f);
/* Stamps the mark (not synced: the caller fsyncs file and directory). */
int mark_write(int fd, const struct pool *p, const struct pool_file *f);
/* 0 too when there is none. */
int mark_remove(int fd);
