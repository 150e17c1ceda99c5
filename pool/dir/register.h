/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Making a file known to the catalog, and letting it go clean. These make slow calls on files: from a
 * domain's worker, never from the event loop.
 */

#include "pool/dir/catalog.h"
#include "pool/dir/identity.h"

/*
 * Registers the file behind fd (passed by a client; only looked at) for a lane.
 * Checks: regular, open for writing, supported file system (trust_fs as identity_of), reachable by its
 * handle from here. On 0: the mark is stamped and durable, file and directory are synced, the entry is
 * durable in the catalog; *ret_file and *ret_index are it, *ret_fd is an own open description (O_RDWR).
 * The file's former entry for this lane, if there is one, is used again with its id.
 * path: for messages only, cut off as needed; NULL: what /proc says.
 * Errors: -EINVAL (no regular file, not open for writing), -EOPNOTSUPP (file system, no handles, no
 * xattrs, not visible to the daemon), -EXDEV (mark of another pool, lane or machine: recover --adopt),
 * -EBUSY (another domain of this pool has it), -ENOSPC (catalog), -EIO and others of the calls. After an
 * error neither mark nor entry stays that was not there before. *e (may be NULL) says it in words.
 *
 * Persist order: a first entry, so that a cut leaves no mark that nobody knows of; mark; ctime read; fsync;
 * directory; the entry with that ctime, which is durable in the file by then.
 */
int register_stamp(struct pool *p, int fd, uint32_t lane, const char *path,
		   const char *const *trust_fs, struct pool_file *ret_file, uint32_t *ret_index,
		   int *ret_fd, struct pool_error *e);

/*
 * After a clock step, or on release: fsync, and the ctime that was read before it into the entry.
 * fd: an own description. 0 or a negative errno.
 */
int register_refresh(struct pool *p, int fd, uint32_t index);

/*
 * Lets a file go that has no live record (fd: an own description, O_RDWR). The mark is removed and
 * synced, then the entry dropped: a cut between leaves an entry without a mark, which recovery drops.
 * fd -1: the file is gone (unlinked); only the entry is dropped. 0 or a negative errno (entry stays).
 */
int register_release(struct pool *p, int fd, uint32_t index);

/*
 * `recover --adopt`: takes a mark that is not this pool's off the file and syncs it. -EBUSY: the mark is
 * that of a lane of this pool. 0 also when there is none.
 */
int register_adopt(struct pool *p, int fd, struct pool_error *e);

/*
 * Makes the name of an open file durable: fsync of its directory, found through /proc and verified to
 * hold this inode; where names change too fast or the path is not ours to see, syncfs. 0 or a negative
 * errno.
 */
int register_sync_parent(int fd);
