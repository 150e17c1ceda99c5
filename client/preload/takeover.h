/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* How a file of a rule becomes ours: registered with the daemon, or in bypass with a token. */

#include "client/preload/call.h"

/*
 * Takes over an open descriptor of a rule file (regular, open for writing, opened without sync flags
 * unless they could not be taken off). asked: flags as the program gave them. inherit: it did not ask
 * for close-on-exec. who: of the mark that the caller has entered.
 * Returns 0 with fd in the table, or a negative errno: -EIO (its commits may lie in a pool that cannot
 * be reached: the caller closes fd), -EMFILE.
 */
int takeover(int fd, const struct stat *st, const char *path, int asked, bool inherit,
	     const struct caller *who);

/* Once a second at most: tries to register a file that is in bypass with a token. */
void takeover_retry(struct call *c);

/* The entry has gone (-ESTALE): finds it again, registers anew, or bypass. 0 or a negative errno. */
long takeover_renew(struct call *c);

/* The last call of DESC_TOKEN kind has ended: closes the token if the file is registered by now. */
void takeover_token_unused(struct desc *d);

/* token.c: a shared lock on the file's token. The descriptor (hidden), or a negative errno. */
int token_take(uint64_t dev, uint64_t ino);

enum mark_look {
	MARK_ABSENT = 0, /* or a copy's: with another file's handle in it */
	MARK_THERE = 1,
	MARK_UNSURE = 2, /* an error hides it, or it is damaged */
};

/* Does the file carry an owner mark? fd may be an O_PATH descriptor. */
enum mark_look mark_look(int fd);

/* True if the mark is gone by now, or names the lane of a session that this process lives in: then a file
 * without an entry in its control file has no record in the lane. */
bool mark_harmless(int fd);
