/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/support/losefs/node.h"

#include <stdlib.h>
#include <string.h>

static struct node **nodes; /* by id */
static uint64_t nodes_n = NODE_ROOT, nodes_room;
static uint64_t cookies;

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

/* As the kernel's file systems take it: of the last tick. */
static struct timespec tick(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return t;
}

struct node *node_new(mode_t mode, uid_t uid, gid_t gid)
{
	struct node *n = need(calloc(1, sizeof(*n)));

	if (nodes_n >= nodes_room) {
		nodes_room = nodes_n * 2 + 1024;
		nodes = need(realloc(nodes, nodes_room * sizeof(*nodes)));
		nodes[0] = NULL;
	}
	n->id = nodes_n++;
	nodes[n->id] = n;
	n->btime = tick();
	n->now = (struct attr){ mode, uid, gid, n->btime, n->btime, n->btime };
	n->saved = n->now;
	return n;
}

struct node *node_get(uint64_t id)
{
	return id < nodes_n ? nodes[id] : NULL;
}

void node_drop(struct node *n)
{
	if (n->links || n->held || n->lookups || n->id == NODE_ROOT)
		return;
	while (n->xattrs)
		xattr_put(n, n->xattrs->name, NULL, 0);
	nodes[n->id] = NULL;
	free(n->data);
	free(n);
}

void node_each(void (*f)(struct node *n))
{
	for (uint64_t i = NODE_ROOT; i < nodes_n; i++)
		if (nodes[i])
			f(nodes[i]);
}

static void forget(struct node *n)
{
	n->lookups = 0;
	node_drop(n);
}

void node_forget_lookups(void)
{
	node_each(forget);
}

void node_room(struct node *n, uint64_t size)
{
	uint64_t room = n->room;

	if (size <= room)
		return;
	room = size + size / 2 + 4096;
	n->data = need(realloc(n->data, room));
	memset(n->data + n->room, 0, room - n->room);
	n->room = room;
}

void node_resize(struct node *n, uint64_t size)
{
	node_room(n, size);
	if (size < n->size)
		memset(n->data + size, 0, n->size - size);
	n->size = size;
}

void node_touch(struct node *n, bool data)
{
	n->now.ctime = tick();
	if (data)
		n->now.mtime = n->now.ctime;
	n->attr_open = true;
}

void node_stat(const struct node *n, struct stat *st)
{
	*st = (struct stat){
		.st_ino = n->id,
		.st_mode = n->now.mode,
		.st_nlink = S_ISDIR(n->now.mode) ? 2 : n->links,
		.st_uid = n->now.uid,
		.st_gid = n->now.gid,
		.st_size = (off_t)n->size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)((n->size + 511) / 512),
		.st_atim = n->now.atime,
		.st_mtim = n->now.mtime,
		.st_ctim = n->now.ctime,
	};
}

static struct entry **find(struct node *dir, const char *name)
{
	struct entry **e = &dir->entries;

	while (*e && strcmp((*e)->name, name) != 0)
		e = &(*e)->next;
	return e;
}

struct node *name_find(const struct node *dir, const char *name)
{
	for (const struct entry *e = dir->entries; e; e = e->next)
		if (strcmp(e->name, name) == 0)
			return e->node;
	return NULL;
}

void name_add(struct node *dir, const char *name, struct node *n)
{
	size_t bytes = strlen(name) + 1;
	struct entry *e = need(malloc(sizeof(*e) + bytes)), **at = find(dir, name);

	if (*at)
		abort(); /* the caller has looked */
	*e = (struct entry){ .node = n, .cookie = ++cookies };
	memcpy(e->name, name, bytes);
	*at = e;
	n->links++;
	if (S_ISDIR(n->now.mode))
		n->parent = dir;
}

void name_remove(struct node *dir, const char *name)
{
	struct entry **at = find(dir, name), *e = *at;

	if (!e)
		abort();
	*at = e->next;
	e->node->links--;
	node_drop(e->node);
	free(e);
}

struct xattr *xattr_find(const struct node *n, const char *name)
{
	struct xattr *x = n->xattrs;

	while (x && strcmp(x->name, name) != 0)
		x = x->next;
	return x;
}

void xattr_put(struct node *n, const char *name, const void *value, size_t size)
{
	struct xattr **at = &n->xattrs, *x;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	x = *at;
	if (!value) {
		if (!x)
			return;
		*at = x->next;
		free(x->name);
		free(x->value);
		free(x);
		return;
	}
	if (!x) {
		x = *at = need(calloc(1, sizeof(*x)));
		x->name = need(strdup(name));
	}
	free(x->value);
	x->value = need(malloc(size + 1));
	memcpy(x->value, value, size);
	x->size = size;
}
