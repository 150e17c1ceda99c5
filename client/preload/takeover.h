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

/* True if the file carries an owner mark, or may: an error that hides it counts. */
bool mark_present(int fd);
/* The same for an O_PATH descriptor. */
bool mark_present_at(int fd);
