/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Calls that name a registered file by its path: rename, unlink, chmod, truncate ... */

#include <stdbool.h>
#include <stdint.h>

#include "client/preload/handle.h"
#include "pool/file.h"

struct named {
	int dir;
	const char *path;
	int flags; /* AT_SYMLINK_FOLLOW or 0; AT_EMPTY_PATH */
	uint32_t session;
	uint32_t entry;
	uint64_t id;
	bool shut; /* its commits may lie in a pool that cannot be reached: the call is refused, EIO */
	/* while it is in use: */
	struct file_ref r;
	bool own_fd; /* opened for this call: closed afterwards where no record lock can depend on it */
};

/*
 * True if the file of that name is registered in this process's domain: *ret then says where. A path
 * of a rule whose file carries our mark makes the process attach first; if there is no session to be
 * had for it, ret->shut is set: such a file is not changed, just as it is not opened for writing.
 */
bool named_find(int dir, const char *path, int flags, struct named *ret);

/* The name still means the same entry: to be asked under its lock. */
bool named_still(const struct named *n);

/* A descriptor for the entry: one that the program has, one that an earlier call kept, or one of our own
 * (O_PATH where it may not be opened). Fills n->r. 0 or a negative errno. */
int named_open(struct named *n);
/* Closes one of our own, unless the program has another descriptor of the file: closing any of them ends
 * all record locks that the process holds on it, so ours is kept, and taken again by the next call. */
void named_close(struct named *n);

/* Before the file of a rule is read: what a dead process left half written in it is put right, or not there any
 * more afterwards. errno stays. Nothing for a file that carries no mark. */
void named_settle(int dir, const char *path);

enum named_how {
	NAMED_TOUCHED, /* size-neutral metadata */
	NAMED_FENCED,  /* RULE F */
	NAMED_BYPASS,  /* bypass for good, then the call */
};

/* Makes the call on the named file; shut: EIO. libc's result convention. */
long named_make(struct named *n, enum named_how how, file_call *call, void *arg);
