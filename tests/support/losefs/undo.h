/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * The undo log. Everything is applied at once, and what it replaced is kept until a sync makes it durable; a
 * cut plays back the rest. Changes are numbered, so that a point in time is a number:
 *
 *   content     each 512-byte sector of each file goes back to a point of its own
 *   size        to a point of the file's; what a lasting truncate took away does not come back, and a
 *               file that has grown by a write holds what was written there (data before size: ext4, xfs)
 *   names, xattrs, truncates: one journal, of which a prefix lasts
 *   owner, mode, times: as they are, or as they were at the last sync
 *
 * Two rules for the journal. `journal`: an fsync makes all durable up to the last change of that file's own
 * (ext4, xfs). `strict`: an fsync of a file makes its attributes durable and no name; names are durable by
 * an fsync of a directory alone.
 */

#include "tests/support/losefs/node.h"

enum cut_kind {
	CUT_NONE, /* all that was not synced is lost */
	CUT_ALL,  /* nothing is: a mere kill */
	CUT_RAND,
};

extern bool undo_strict;
extern uint64_t undo_records; /* kept now */

/* Before the content changes: [off, off + len), the size afterwards. */
void undo_data(struct node *n, uint64_t off, uint64_t len, uint64_t new_size);
/* After a name was made, before one goes, before a rename. `over`: the node that b leads to, or NULL. */
void undo_made(struct node *dir, const char *name, struct node *n);
void undo_removed(struct node *dir, const char *name, struct node *n);
void undo_renamed(struct node *dir, const char *name, struct node *n, struct node *to_dir,
		  const char *to_name, struct node *over);
/* Before it changes. */
void undo_xattr(struct node *n, const char *name);
/* After owner or mode have changed. */
void undo_attr(struct node *n);

/* fsync, fdatasync. */
void undo_sync(struct node *n, bool data_only);
void undo_sync_all(void);

void undo_cut(enum cut_kind kind, uint64_t seed);
