/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * losefs keeps everything in memory: nodes with their content, names and attributes as the programs see
 * them. What a power cut would take away again lies in the undo log (undo.h). One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

struct node;
struct undo;

struct entry {
	struct entry *next;
	struct node *node;
	uint64_t cookie; /* rises along the list, for readdir */
	char name[];
};

struct xattr {
	struct xattr *next;
	char *name;
	void *value;
	size_t size;
};

struct attr {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec atime, mtime, ctime;
};

struct node {
	uint64_t id;		/* FUSE's number, st_ino and the handle; never reused */
	struct attr now, saved; /* saved: what is durable */
	bool attr_open;		/* they differ */
	bool size_open;		/* the size has changed since the last sync */
	struct timespec btime;
	uint8_t *data; /* content, or a symlink's target; zero from size to room */
	uint64_t size, room;
	struct entry *entries; /* of a directory */
	struct node *parent;
	struct xattr *xattrs;
	unsigned links;		/* names that lead here */
	unsigned held;		/* undo records that name it */
	uint64_t lookups;	/* the kernel's references */
	struct undo *data_undo; /* newest first */
	uint64_t
		sync_seq; /* of the last change of the journal that an fsync of it must make durable */
	uint64_t datasync_seq;
};

#define NODE_ROOT 1u

struct node *node_new(mode_t mode, uid_t uid, gid_t gid);
struct node *node_get(uint64_t id); /* NULL: never was or is gone */
void node_drop(struct node *n);	    /* frees it when nobody refers to it any more */
void node_each(void (*f)(struct node *n));
void node_forget_lookups(void); /* the kernel has gone */

/* Room for `size` bytes, zero from n->size on; n->size stays. */
void node_room(struct node *n, uint64_t size);
void node_resize(struct node *n, uint64_t size);
void node_touch(struct node *n, bool data);
void node_stat(const struct node *n, struct stat *st);

struct node *name_find(const struct node *dir, const char *name);
void name_add(struct node *dir, const char *name, struct node *n);
void name_remove(struct node *dir, const char *name);

struct xattr *xattr_find(const struct node *n, const char *name);
/* value NULL: removes it */
void xattr_put(struct node *n, const char *name, const void *value, size_t size);
