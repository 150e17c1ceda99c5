/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/catalog.h"

#include <errno.h>
#include <string.h>

#include "pool/dir/twin.h"

enum entry_state {
	ENTRY_FREE = 0,
	ENTRY_USED = 1,
	ENTRY_DAMAGED = 2, /* kept as evidence, never given out */
};

static const struct twin_layout entry_layout = {
	.bytes = POOL_ENTRY_BYTES,
	.crc_offset = offsetof(struct pool_domain, crc),
	.sequence_offset = offsetof(struct pool_domain, sequence),
};

static_assert(offsetof(struct pool_domain, crc) == offsetof(struct pool_file, crc), "one layout");
static_assert(offsetof(struct pool_domain, used) == offsetof(struct pool_file, used), "one layout");
static_assert(offsetof(struct pool_domain, sequence) == offsetof(struct pool_file, sequence),
	      "one layout");

/* One of the two tables: both have entries of one size, so the code is the same. */
struct table {
	uint32_t offset;
	uint32_t entries;
	uint8_t *state;
};

static struct table domains_of(struct pool *p)
{
	return (struct table){ POOL_DOMAINS_OFFSET, POOL_DOMAINS, p->domain_state };
}

static struct table files_of(struct pool *p)
{
	return (struct table){ POOL_FILES_OFFSET, POOL_FILES, p->file_state };
}

static uint8_t *copy_at(const struct pool *p, const struct table *t, uint32_t index, unsigned copy)
{
	return p->map + t->offset + ((size_t)index * 2 + copy) * POOL_ENTRY_BYTES;
}

static int entry_read(struct pool *p, const struct table *t, uint32_t index, void *ret)
{
	uint8_t scratch[POOL_ENTRY_BYTES];
	uint32_t used;
	int r;

	if (index >= t->entries)
		return -EINVAL;
	r = twin_read(&entry_layout, copy_at(p, t, index, 0), copy_at(p, t, index, 1), ret, scratch,
		      NULL);
	if (r < 0)
		return r;
	memcpy(&used, (uint8_t *)ret + offsetof(struct pool_file, used), sizeof(used));
	return used ? 0 : -ENOENT;
}

static int entry_write(struct pool *p, const struct table *t, uint32_t index, void *image,
		       uint32_t used)
{
	uint8_t scratch[2 * POOL_ENTRY_BYTES];
	int r;

	if (p->read_only)
		return -EROFS;
	memcpy((uint8_t *)image + offsetof(struct pool_file, used), &used, sizeof(used));
	r = twin_write(&entry_layout, copy_at(p, t, index, 0), copy_at(p, t, index, 1), image,
		       scratch);
	if (r == 0)
		t->state[index] = used ? ENTRY_USED : ENTRY_FREE;
	return r;
}

static int entry_get(struct pool *p, const struct table *t, uint32_t index, void *ret)
{
	int r;

	if (index >= t->entries)
		return -EINVAL;
	pthread_mutex_lock(&p->lock);
	/* Whoever has the pool for writing is alone with it: what it knows to be free is not read. */
	if (!p->read_only && t->state[index] == ENTRY_FREE)
		r = -ENOENT;
	else
		r = entry_read(p, t, index, ret);
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int entry_put(struct pool *p, const struct table *t, uint32_t index, const void *entry)
{
	uint8_t image[POOL_ENTRY_BYTES] __attribute__((aligned(64)));
	int r = -ENOSPC;

	if (index != UINT32_MAX && index >= t->entries)
		return -EINVAL;
	memcpy(image, entry, sizeof(image));
	pthread_mutex_lock(&p->lock);
	if (index == UINT32_MAX) {
		for (uint32_t i = 0; i < t->entries; i++) {
			if (t->state[i] == ENTRY_FREE) {
				index = i;
				break;
			}
		}
	}
	if (index != UINT32_MAX)
		r = entry_write(p, t, index, image, 1);
	pthread_mutex_unlock(&p->lock);
	return r < 0 ? r : (int)index;
}

static int entry_drop(struct pool *p, const struct table *t, uint32_t index)
{
	uint8_t image[POOL_ENTRY_BYTES] __attribute__((aligned(64)));
	int r;

	pthread_mutex_lock(&p->lock);
	r = entry_read(p, t, index, image);
	/* What is free already stays as it is: a drop repeated after a crash succeeds. */
	if (r == 0)
		r = entry_write(p, t, index, image, 0);
	else if (r == -ENOENT)
		r = 0;
	pthread_mutex_unlock(&p->lock);
	return r;
}

int catalog_domain_get(struct pool *p, uint32_t index, struct pool_domain *ret)
{
	struct table t = domains_of(p);
	int r = entry_get(p, &t, index, ret);

	if (r == 0) {
		ret->name[sizeof(ret->name) - 1] = '\0';
		ret->reason[sizeof(ret->reason) - 1] = '\0';
	}
	return r;
}

static void file_sane(struct pool_file *f)
{
	f->path[sizeof(f->path) - 1] = '\0';
	if (f->handle_bytes > CTL_HANDLE_MAX)
		f->handle_bytes = 0;
}

int catalog_file_get(struct pool *p, uint32_t index, struct pool_file *ret)
{
	struct table t = files_of(p);
	int r = entry_get(p, &t, index, ret);

	if (r == 0)
		file_sane(ret);
	return r;
}

int catalog_domain_put(struct pool *p, uint32_t index, const struct pool_domain *d)
{
	struct table t = domains_of(p);

	return entry_put(p, &t, index, d);
}

int catalog_file_put(struct pool *p, uint32_t index, const struct pool_file *f)
{
	struct table t = files_of(p);

	return entry_put(p, &t, index, f);
}

int catalog_domain_drop(struct pool *p, uint32_t index)
{
	struct table t = domains_of(p);

	return entry_drop(p, &t, index);
}

int catalog_file_drop(struct pool *p, uint32_t index)
{
	struct table t = files_of(p);

	return entry_drop(p, &t, index);
}

int catalog_domain_find(struct pool *p, uint32_t uid, const char *name)
{
	struct pool_domain d;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d) == 0 && d.uid == uid && strcmp(d.name, name) == 0)
			return (int)i;
	}
	return -ENOENT;
}

int catalog_file_next(struct pool *p, uint32_t lane, uint32_t from, struct pool_file *ret)
{
	struct table t = files_of(p);
	int found = -ENOENT;

	pthread_mutex_lock(&p->lock);
	for (uint32_t i = from; i < t.entries && found < 0; i++) {
		if (t.state[i] != ENTRY_USED || entry_read(p, &t, i, ret) < 0)
			continue;
		if (ret->lane == lane)
			found = (int)i;
	}
	pthread_mutex_unlock(&p->lock);
	if (found >= 0)
		file_sane(ret);
	return found;
}

static uint32_t load(struct pool *p, const struct table *t)
{
	uint8_t image[POOL_ENTRY_BYTES];
	uint32_t damaged = 0;

	for (uint32_t i = 0; i < t->entries; i++) {
		int r = entry_read(p, t, i, image);

		t->state[i] = ENTRY_FREE;
		if (r == 0) {
			t->state[i] = ENTRY_USED;
		} else if (r != -ENOENT) {
			t->state[i] = ENTRY_DAMAGED;
			damaged++;
		}
	}
	return damaged;
}

int catalog_load(struct pool *p)
{
	struct table domains = domains_of(p), files = files_of(p);

	p->damaged_files = load(p, &files);
	return load(p, &domains) > 0 ? -EBADMSG : 0;
}
