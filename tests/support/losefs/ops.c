/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/support/losefs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/support/losefs/undo.h"

#define UUID_NAME  "trusted.losefs.uuid"
#define NAME_LIMIT 255u
#define GENERATION 1u /* ids are never used again, so one generation is enough */

struct ops_state ops_state;

/* The node of a request, or NULL after an error was answered. */
static struct node *enter(fuse_req_t req, fuse_ino_t id)
{
	struct node *n = node_get(id);

	if (ops_state.dead)
		fuse_reply_err(req, EIO);
	else if (!n)
		fuse_reply_err(req, ESTALE);
	else
		return n;
	return NULL;
}

static void fill_entry(struct fuse_entry_param *e, struct node *n)
{
	*e = (struct fuse_entry_param){ .ino = n->id, .generation = GENERATION };
	node_stat(n, &e->attr);
	n->lookups++;
}

static void reply_node(fuse_req_t req, struct node *n)
{
	struct fuse_entry_param e;

	fill_entry(&e, n);
	fuse_reply_entry(req, &e);
}

static void op_init(void *user, struct fuse_conn_info *conn)
{
	(void)user;
	/* Handles are resolved after the kernel has forgotten an inode, and after a new mount. */
	conn->want |= FUSE_CAP_EXPORT_SUPPORT;
	conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS;
	conn->time_gran = 1;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *dir = enter(req, parent), *n;

	if (!dir)
		return;
	if (strcmp(name, ".") == 0)
		n = dir->links || dir->id == NODE_ROOT ? dir : NULL;
	else if (strcmp(name, "..") == 0)
		n = dir->parent ? dir->parent : dir;
	else
		n = name_find(dir, name);
	if (n)
		reply_node(req, n);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_forget(fuse_req_t req, fuse_ino_t id, uint64_t count)
{
	struct node *n = node_get(id);

	if (n) {
		n->lookups -= count < n->lookups ? count : n->lookups;
		node_drop(n);
	}
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);
	struct stat st;

	(void)fi;
	if (!n)
		return;
	node_stat(n, &st);
	fuse_reply_attr(req, &st, 0);
}

static void resize(struct node *n, uint64_t size)
{
	if (size < n->size)
		undo_data(n, size, n->size - size, size);
	else if (size > n->size)
		undo_data(n, n->size, 0, size);
	node_resize(n, size);
	node_touch(n, true);
}

static void op_setattr(fuse_req_t req, fuse_ino_t id, struct stat *st, int what,
		       struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);

	if (!n)
		return;
	if (what & FUSE_SET_ATTR_SIZE)
		resize(n, (uint64_t)st->st_size);
	node_touch(n, false);
	if (what & FUSE_SET_ATTR_MODE)
		n->now.mode = (n->now.mode & S_IFMT) | (st->st_mode & 07777);
	if (what & FUSE_SET_ATTR_UID)
		n->now.uid = st->st_uid;
	if (what & FUSE_SET_ATTR_GID)
		n->now.gid = st->st_gid;
	if (what & FUSE_SET_ATTR_ATIME)
		n->now.atime = what & FUSE_SET_ATTR_ATIME_NOW ? n->now.ctime : st->st_atim;
	if (what & FUSE_SET_ATTR_MTIME)
		n->now.mtime = what & FUSE_SET_ATTR_MTIME_NOW ? n->now.ctime : st->st_mtim;
	if (what & ~FUSE_SET_ATTR_SIZE)
		undo_attr(n);
	op_getattr(req, id, fi);
}

/* ---- names ---- */

/* A new node under a free name, or NULL after an error was answered. */
static struct node *make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	const struct fuse_ctx *who = fuse_req_ctx(req);
	struct node *dir = enter(req, parent), *n;

	if (!dir)
		return NULL;
	if (strlen(name) > NAME_LIMIT || name_find(dir, name)) {
		fuse_reply_err(req, strlen(name) > NAME_LIMIT ? ENAMETOOLONG : EEXIST);
		return NULL;
	}
	n = node_new(mode, who->uid, who->gid);
	name_add(dir, name, n);
	undo_made(dir, name, n);
	return n;
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct node *n = make(req, parent, name, mode);
	struct fuse_entry_param e;

	if (!n)
		return;
	fill_entry(&e, n);
	fuse_reply_create(req, &e, fi);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	struct node *n = make(req, parent, name, mode);

	(void)dev;
	if (n)
		reply_node(req, n);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *n = make(req, parent, name, mode | S_IFDIR);

	if (n)
		reply_node(req, n);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct node *n = make(req, parent, name, S_IFLNK | 0777);

	if (!n)
		return;
	node_resize(n, strlen(target));
	memcpy(n->data, target, n->size);
	reply_node(req, n);
}

static void op_readlink(fuse_req_t req, fuse_ino_t id)
{
	struct node *n = enter(req, id);
	char target[2048];

	if (!n)
		return;
	if (n->size >= sizeof(target)) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	memcpy(target, n->data, n->size);
	target[n->size] = '\0';
	fuse_reply_readlink(req, target);
}

static void op_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t parent, const char *name)
{
	struct node *n = enter(req, id), *dir = n ? enter(req, parent) : NULL;

	if (!dir)
		return;
	if (name_find(dir, name)) {
		fuse_reply_err(req, EEXIST);
		return;
	}
	name_add(dir, name, n);
	undo_made(dir, name, n);
	reply_node(req, n);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, bool directory)
{
	struct node *dir = enter(req, parent), *n;

	if (!dir)
		return;
	n = name_find(dir, name);
	if (!n) {
		fuse_reply_err(req, ENOENT);
	} else if (directory && n->entries) {
		fuse_reply_err(req, ENOTEMPTY);
	} else {
		undo_removed(dir, name, n);
		name_remove(dir, name);
		fuse_reply_err(req, 0);
	}
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, false);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, true);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		      const char *to_name, unsigned flags)
{
	struct node *dir = enter(req, parent), *to = dir ? enter(req, to_parent) : NULL;
	struct node *n, *over;

	if (!to)
		return;
	n = name_find(dir, name);
	over = name_find(to, to_name);
	if (!n || (flags & ~(unsigned)RENAME_NOREPLACE)) {
		fuse_reply_err(req, n ? EINVAL : ENOENT);
	} else if (over && (flags & RENAME_NOREPLACE)) {
		fuse_reply_err(req, EEXIST);
	} else if (over && over->entries) {
		fuse_reply_err(req, ENOTEMPTY);
	} else if (n == over) {
		fuse_reply_err(req, 0); /* two names of one file: nothing happens */
	} else {
		undo_renamed(dir, name, n, to, to_name, over);
		if (over)
			name_remove(to, to_name);
		name_add(to, to_name, n);
		name_remove(dir, name);
		fuse_reply_err(req, 0);
	}
}

static void op_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t from,
		       struct fuse_file_info *fi)
{
	struct node *dir = enter(req, id);
	size_t used = 0;
	char *buf;

	(void)fi;
	if (!dir)
		return;
	buf = malloc(size);
	if (!buf)
		abort();
	for (const struct entry *e = dir->entries; e; e = e->next) {
		struct stat st;
		size_t n;

		if (e->cookie <= (uint64_t)from)
			continue;
		node_stat(e->node, &st);
		n = fuse_add_direntry(req, buf + used, size - used, e->name, &st, (off_t)e->cookie);
		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, buf, used);
	free(buf);
}

/* ---- content ---- */

static void op_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);

	if (!n)
		return;
	/* Part of the open, by libfuse's choice: no setattr comes for it. */
	if (fi->flags & O_TRUNC)
		resize(n, 0);
	/* No keep_cache: what the kernel kept of it before a cut is not true any more. */
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);
	uint64_t at = (uint64_t)off;

	(void)fi;
	if (!n)
		return;
	if (at >= n->size)
		size = 0;
	else if (size > n->size - at)
		size = (size_t)(n->size - at);
	fuse_reply_buf(req, size ? (const char *)n->data + at : NULL, size);
}

static void op_write(fuse_req_t req, fuse_ino_t id, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);
	uint64_t at = (uint64_t)off;
	uint64_t end = at + size;

	(void)fi;
	if (!n)
		return;
	undo_data(n, at, size, end > n->size ? end : n->size);
	if (end > n->size)
		node_resize(n, end);
	memcpy(n->data + at, buf, size);
	node_touch(n, true);
	ops_state.writes++;
	fuse_reply_write(req, size);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t off, off_t length,
			 struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);
	uint64_t at = (uint64_t)off;
	uint64_t end = at + (uint64_t)length;

	(void)fi;
	if (!n)
		return;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (!(mode & FALLOC_FL_KEEP_SIZE) && end > n->size)
		resize(n, end);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && at < n->size) {
		uint64_t bytes = (end < n->size ? end : n->size) - at;

		undo_data(n, at, bytes, n->size);
		memset(n->data + at, 0, bytes);
	}
	node_touch(n, true);
	fuse_reply_err(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t id, int data_only, struct fuse_file_info *fi)
{
	struct node *n = enter(req, id);

	(void)fi;
	if (!n)
		return;
	ops_state.syncs++;
	if (!ops_state.badsync)
		undo_sync(n, data_only);
	fuse_reply_err(req, ops_state.badsync ? EIO : 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t id)
{
	struct statvfs s = {
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_blocks = 1 << 22,
		.f_bfree = 1 << 21,
		.f_bavail = 1 << 21,
		.f_files = 1 << 20,
		.f_ffree = 1 << 19,
		.f_namemax = NAME_LIMIT,
	};

	(void)id;
	fuse_reply_statfs(req, &s);
}

/* ---- extended attributes ---- */

static void op_setxattr(fuse_req_t req, fuse_ino_t id, const char *name, const char *value,
			size_t size, int flags)
{
	struct node *n = enter(req, id);
	bool there;

	if (!n)
		return;
	there = xattr_find(n, name) != NULL;
	if (strcmp(name, UUID_NAME) == 0) {
		fuse_reply_err(req, EPERM);
	} else if ((there && (flags & 1)) || (!there && (flags & 2))) { /* XATTR_CREATE, _REPLACE */
		fuse_reply_err(req, there ? EEXIST : ENODATA);
	} else {
		undo_xattr(n, name);
		xattr_put(n, name, value, size);
		fuse_reply_err(req, 0);
	}
}

static void op_removexattr(fuse_req_t req, fuse_ino_t id, const char *name)
{
	struct node *n = enter(req, id);

	if (!n)
		return;
	if (!xattr_find(n, name)) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	undo_xattr(n, name);
	xattr_put(n, name, NULL, 0);
	fuse_reply_err(req, 0);
}

static void reply_xattr(fuse_req_t req, const void *value, size_t n, size_t room)
{
	if (room == 0)
		fuse_reply_xattr(req, n);
	else if (room < n)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, n);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t room)
{
	struct node *n = enter(req, id);
	const struct xattr *x;

	if (!n)
		return;
	x = xattr_find(n, name);
	if (strcmp(name, UUID_NAME) == 0)
		reply_xattr(req, ops_state.uuid, sizeof(ops_state.uuid), room);
	else if (x)
		reply_xattr(req, x->value, x->size, room);
	else
		fuse_reply_err(req, ENODATA);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t id, size_t room)
{
	struct node *n = enter(req, id);
	char names[2048];
	size_t used = 0;

	if (!n)
		return;
	for (const struct xattr *x = n->xattrs; x; x = x->next) {
		size_t bytes = strlen(x->name) + 1;

		if (used + bytes > sizeof(names))
			break;
		memcpy(names + used, x->name, bytes);
		used += bytes;
	}
	reply_xattr(req, names, used, room);
}

const struct fuse_lowlevel_ops losefs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fsyncdir = op_fsync,
	.readdir = op_readdir,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.create = op_create,
	.fallocate = op_fallocate,
};
