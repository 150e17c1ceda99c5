/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/support/losefs/undo.h"

#include <stdlib.h>
#include <string.h>

#include "base/overflow.h"

#define SECTOR 512u
#define BLOCK \
	4096u /* a truncate zeroes the rest of its last block in place, and frees the others */

enum kind {
	DATA,
	MADE,
	REMOVED,
	RENAMED,
	XATTR,
};

struct undo {
	struct undo *older; /* DATA: of the same node; otherwise of the journal */
	uint64_t seq;
	enum kind kind;
	struct node *node;
	bool truncate;		     /* DATA: to less */
	uint64_t off, len, old_size; /* DATA */
	uint8_t *old; /* DATA: bytes before, zero beyond the old end; XATTR: value, NULL none */
	struct node *dir, *to_dir, *over;
	char *name, *to_name; /* XATTR: name */
};

bool undo_strict;
uint64_t undo_records;
static uint64_t seq;
static struct undo *journal; /* newest first */

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct node *hold(struct node *n)
{
	if (n)
		n->held++;
	return n;
}

static void let_go(struct node *n)
{
	if (!n)
		return;
	n->held--;
	node_drop(n);
}

static struct undo *push(enum kind kind, struct node *n)
{
	struct undo *u = need(calloc(1, sizeof(*u)));
	struct undo **head = kind == DATA ? &n->data_undo : &journal;

	u->kind = kind;
	u->seq = ++seq;
	u->node = hold(n);
	u->older = *head;
	*head = u;
	undo_records++;
	return u;
}

static void free_one(struct undo *u)
{
	let_go(u->node);
	let_go(u->dir);
	let_go(u->to_dir);
	let_go(u->over);
	free(u->old);
	free(u->name);
	free(u->to_name);
	free(u);
	undo_records--;
}

static void free_data(struct node *n)
{
	struct undo *u = n->data_undo;

	n->data_undo = NULL;
	n->size_open = false;
	while (u) {
		struct undo *older = u->older;

		free_one(u);
		u = older;
	}
}

void undo_data(struct node *n, uint64_t off, uint64_t len, uint64_t new_size)
{
	struct undo *u = push(DATA, n);

	u->off = off;
	u->len = len;
	u->old_size = n->size;
	u->truncate = new_size < n->size;
	if (len) {
		node_room(n, off + len);
		u->old = need(malloc(len));
		memcpy(u->old, n->data + off, len);
	}
	if (new_size != n->size) {
		n->size_open = true;
		n->sync_seq = n->datasync_seq = u->seq;
	}
}

static void name_changed(const struct undo *u, struct node *dir, struct node *n)
{
	dir->sync_seq = dir->datasync_seq = u->seq;
	n->sync_seq = u->seq;
	node_touch(dir, true);
	node_touch(n, false);
}

void undo_made(struct node *dir, const char *name, struct node *n)
{
	struct undo *u = push(MADE, n);

	u->dir = hold(dir);
	u->name = need(strdup(name));
	name_changed(u, dir, n);
	n->datasync_seq =
		u->seq; /* an inode that nobody has written yet is no data to come back to */
}

void undo_removed(struct node *dir, const char *name, struct node *n)
{
	struct undo *u = push(REMOVED, n);

	u->dir = hold(dir);
	u->name = need(strdup(name));
	name_changed(u, dir, n);
}

void undo_renamed(struct node *dir, const char *name, struct node *n, struct node *to_dir,
		  const char *to_name, struct node *over)
{
	struct undo *u = push(RENAMED, n);

	u->dir = hold(dir);
	u->name = need(strdup(name));
	u->to_dir = hold(to_dir);
	u->to_name = need(strdup(to_name));
	u->over = hold(over);
	name_changed(u, dir, n);
	name_changed(u, to_dir, over ? over : n);
}

void undo_xattr(struct node *n, const char *name)
{
	const struct xattr *x = xattr_find(n, name);
	struct undo *u = push(XATTR, n);

	u->name = need(strdup(name));
	if (x) {
		u->len = x->size;
		u->old = need(malloc(x->size + 1));
		memcpy(u->old, x->value, x->size);
	}
	n->sync_seq = u->seq;
	node_touch(n, false);
}

void undo_attr(struct node *n)
{
	n->sync_seq = ++seq;
	n->attr_open = true;
}

/* ---- syncs ---- */

static void save_attr(struct node *n)
{
	n->saved = n->now;
	n->attr_open = false;
}

/* Makes the journal durable up to `last`; only_xattrs_of: nothing but that node's attributes. */
static void commit(uint64_t last, const struct node *only_xattrs_of)
{
	struct undo **at = &journal;

	while (*at) {
		struct undo *u = *at;

		if (u->seq > last ||
		    (only_xattrs_of && (u->kind != XATTR || u->node != only_xattrs_of))) {
			at = &u->older;
			continue;
		}
		*at = u->older;
		free_one(u);
	}
}

void undo_sync(struct node *n, bool data_only)
{
	bool files_names = !undo_strict || S_ISDIR(n->now.mode);

	/* fdatasync leaves times alone, unless it has to write the inode for its size. */
	if (!data_only || n->size_open)
		save_attr(n);
	free_data(n);
	commit(data_only ? n->datasync_seq : n->sync_seq, files_names ? NULL : n);
}

static void settle(struct node *n)
{
	save_attr(n);
	free_data(n);
}

void undo_sync_all(void)
{
	node_each(settle);
	commit(seq, NULL);
}

/* ---- the cut ---- */

static struct {
	enum cut_kind kind;
	uint64_t seed;
	uint64_t oldest;  /* number before the oldest record */
	uint64_t journal; /* the journal lasts up to here */
} cut;

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x =
		cut.seed ^ (a * UINT64_C(0x9e3779b97f4a7c15)) ^ (b * UINT64_C(0xc2b2ae3d27d4eb4f));

	x = (x ^ (x >> 33)) * UINT64_C(0xff51afd7ed558ccd);
	x = (x ^ (x >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ (x >> 33);
}

/* What is newer than the point is lost. A third of them each: all lost, nothing lost, any moment. */
static uint64_t point(uint64_t a, uint64_t b)
{
	uint64_t chance = mix(a, b);

	if (cut.kind == CUT_NONE)
		return 0;
	if (cut.kind == CUT_ALL || chance % 3 == 0)
		return seq;
	return chance % 3 == 1 ? cut.oldest : cut.oldest + (chance >> 8) % (seq - cut.oldest + 1);
}

static void older_of(struct node *n)
{
	for (const struct undo *u = n->data_undo; u; u = u->older)
		if (u->seq <= cut.oldest)
			cut.oldest = u->seq - 1;
}

/* A truncate is an entry of the journal: it lasts if and only if the journal lasts up to it. */
static uint64_t size_point(const struct node *n)
{
	uint64_t p = point(n->id, UINT64_MAX), first_lost = UINT64_MAX, last_kept = 0;

	for (const struct undo *u = n->data_undo; u; u = u->older) {
		if (!u->truncate)
			continue;
		if (u->seq > cut.journal)
			first_lost = u->seq;
		else if (last_kept < u->seq)
			last_kept = u->seq;
	}
	if (p >= first_lost)
		p = first_lost - 1;
	return p < last_kept ? last_kept : p;
}

/* Brings back what record u kept of [from, end), sector by sector. */
static void restore(const struct undo *u, uint64_t from, uint64_t end)
{
	struct node *n = u->node;

	for (uint64_t at = from, next; at < end; at = next) {
		uint64_t sector = at / SECTOR;

		next = (sector + 1) * SECTOR < end ? (sector + 1) * SECTOR : end;
		if (u->seq > point(n->id, sector))
			memcpy(n->data + at, u->old + (at - u->off), next - at);
	}
}

static void cut_data(struct node *n)
{
	uint64_t p = size_point(n), size = n->size;
	uint64_t lasts_from = UINT64_MAX; /* older records bring nothing back from here on */

	for (const struct undo *u = n->data_undo; u; u = u->older) {
		uint64_t block = (u->off + BLOCK - 1) / BLOCK * BLOCK;
		uint64_t end;

		if (u->seq > p)
			size = u->old_size;
		else if (u->len && !u->truncate && u->off + u->len > u->old_size)
			lasts_from = min_of(lasts_from, u->old_size / SECTOR * SECTOR);
		end = min_of(u->off + u->len, lasts_from);
		restore(u, u->off, u->truncate ? min_of(block, end) : end);
		if (!u->truncate)
			continue;
		if (u->seq <= p)
			lasts_from = min_of(lasts_from, block);
		else if (block < end)
			memcpy(n->data + block, u->old + (block - u->off), end - block);
	}
	if (n->data) {
		node_room(n, size);
		memset(n->data + size, 0, n->room - size);
	}
	n->size = size;
	if (n->attr_open && (cut.kind == CUT_NONE || (cut.kind == CUT_RAND && mix(n->id, 5) & 1)))
		n->now = n->saved;
	save_attr(n);
	free_data(n);
}

static void cut_journal(const struct undo *u)
{
	switch (u->kind) {
	case MADE:
		name_remove(u->dir, u->name);
		break;
	case REMOVED:
		name_add(u->dir, u->name, u->node);
		break;
	case RENAMED:
		name_remove(u->to_dir, u->to_name);
		name_add(u->dir, u->name, u->node);
		if (u->over)
			name_add(u->to_dir, u->to_name, u->over);
		break;
	case XATTR:
		xattr_put(u->node, u->name, u->old, u->len);
		break;
	case DATA:
		break;
	}
}

void undo_cut(enum cut_kind kind, uint64_t seed)
{
	cut.kind = kind;
	cut.seed = 0;
	cut.seed = mix(seed, 1);
	cut.oldest = seq;
	node_each(older_of);
	for (const struct undo *u = journal; u; u = u->older)
		if (u->seq <= cut.oldest)
			cut.oldest = u->seq - 1;
	cut.journal = point(0, 0);
	for (const struct undo *u = journal; u && u->seq > cut.journal; u = u->older)
		cut_journal(u);
	node_each(cut_data);
	commit(seq, NULL);
}
