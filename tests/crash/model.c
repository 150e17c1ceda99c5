/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/model.h"

#include <string.h>

#include "base/overflow.h"

struct model model;

void model_clear(uint64_t size)
{
	memset(&model, 0, sizeof(model));
	for (int i = 0; i < DISK_FILES; i++)
		model.files[i].size = size;
	model.call.file = -1;
}

void model_begin_none(void)
{
	model.call.file = -1;
	model.call.unlinks = false;
	model.call.length = 0;
}

static void begin(int file, uint64_t offset, uint64_t length, uint64_t head)
{
	model.call.file = file;
	model.call.offset = offset;
	model.call.length = length;
	model.call.new_size = model.files[file].size;
	model.call.unlinks = false;
	model.call.head = head;
}

void model_begin_write(int file, uint64_t offset, const void *data, uint64_t n, uint64_t head)
{
	begin(file, offset, n, head);
	memcpy(model.call.data, data, n);
	model.call.new_size = max_of(model.files[file].size, offset + n);
}

void model_begin_truncate(int file, uint64_t size, uint64_t head)
{
	begin(file, 0, 0, head);
	model.call.new_size = size;
}

void model_begin_unlink(int file, uint64_t head)
{
	begin(file, 0, 0, head);
	model.call.unlinks = true;
}

/* n bytes of the call become what is wanted; the masks of `keep` alone stay on them. */
static void apply(uint64_t n)
{
	const struct model_call *c = &model.call;
	struct model_file *f = &model.files[c->file];
	uint64_t size = c->length ? max_of(f->size, c->offset + n) : c->new_size;

	memcpy(f->want + c->offset, c->data, n);
	memset(f->mask + c->offset, 0, n * sizeof(f->mask[0]));
	if (size < f->size) {
		memset(f->want + size, 0, f->size - size);
		memset(f->mask + size, 0, (DISK_BYTES - size) * sizeof(f->mask[0]));
	}
	/* An earlier "perhaps" of the size is settled by what now reaches further or cuts. */
	if (c->length == 0)
		f->nsizes = c->unlinks ? f->nsizes : 0;
	else if (n)
		for (unsigned i = 0; i < f->nsizes; i++) {
			f->sizes[i].low = max_of(f->sizes[i].low, c->offset + n);
			f->sizes[i].high = max_of(f->sizes[i].high, c->offset + n);
		}
	f->size = size;
	if (c->unlinks)
		f->gone = true;
}

void model_done(uint64_t n)
{
	if (model.call.file >= 0)
		apply(n);
	model_begin_none();
}

static bool remember(enum alt_kind kind, uint64_t n, const uint8_t *data)
{
	const struct model_call *c = &model.call;
	struct model_alt *a = &model.alts[model.nalts];

	if (model.nalts == MODEL_ALTS)
		return false;
	*a = (struct model_alt){ .kind = kind, .file = c->file, .offset = c->offset, .length = n };
	memcpy(a->data, data, n);
	for (uint64_t i = 0; i < n; i++)
		model.files[c->file].mask[c->offset + i] |= 1u << model.nalts;
	model.nalts++;
	return true;
}

static void other_size(struct model_file *f, uint64_t low, uint64_t high)
{
	if (f->nsizes < MODEL_SIZES)
		f->sizes[f->nsizes++] = (struct model_sizes){ low, high };
}

void model_done_unsynced(uint64_t n)
{
	const struct model_call *c = &model.call;
	struct model_file *f = &model.files[c->file];
	static uint8_t old[DISK_BYTES];
	static uint32_t masks[DISK_BYTES];
	uint64_t old_size = f->size;
	struct model_sizes sizes[MODEL_SIZES];

	memcpy(sizes, f->sizes, sizeof(sizes));
	memcpy(old, f->want + c->offset, n);
	memcpy(masks, f->mask + c->offset, n * sizeof(masks[0]));
	apply(n);
	memcpy(f->mask + c->offset, masks, n * sizeof(masks[0]));
	memcpy(f->sizes, sizes, sizeof(sizes));
	if (remember(ALT_UNSYNCED, n, old) && f->size != old_size)
		other_size(f, old_size, old_size);
	model_begin_none();
}

bool model_perhaps(void)
{
	const struct model_call *c = &model.call;
	bool room = true;

	if (c->file >= 0) {
		struct model_file *f = &model.files[c->file];

		if (c->length)
			room = remember(ALT_KILLED, c->length, c->data);
		if (c->length && c->new_size > f->size) /* a part of it, too */
			other_size(f, f->size, c->new_size);
		else
			other_size(f, c->new_size, c->new_size);
		if (c->unlinks)
			f->gone = true;
	}
	model_begin_none();
	return room;
}

void model_synced(int file)
{
	struct model_file *f = &model.files[file];
	uint32_t certain = 0;

	for (unsigned i = 0; i < model.nalts; i++)
		if (model.alts[i].file == file && model.alts[i].kind == ALT_UNSYNCED)
			certain |= 1u << i;
	for (unsigned i = 0; i < DISK_BYTES; i++)
		f->mask[i] &= ~certain;
	if (f->nsizes && disk.files[file].size == f->size)
		f->nsizes = 0;
}

void model_told(int file)
{
	for (unsigned i = 0; i < model.nalts; i++)
		if (model.alts[i].file == file && model.alts[i].kind == ALT_UNSYNCED)
			model.alts[i].kind = ALT_LOST;
}

bool model_was_killed(int file, uint64_t offset, uint64_t n, const void *data)
{
	for (unsigned i = 0; i < model.nalts; i++) {
		const struct model_alt *a = &model.alts[i];

		if (a->kind == ALT_KILLED && a->file == file && a->offset == offset &&
		    n <= a->length && memcmp(a->data, data, n) == 0)
			return true;
	}
	return false;
}

void model_settle(int file, bool bytes)
{
	struct model_file *f = &model.files[file];
	const struct disk_file *d = &disk.files[file];

	f->size = d->size;
	f->nsizes = 0;
	for (uint64_t i = 0; bytes && i < f->size; i++) {
		if (f->mask[i])
			f->want[i] = d->cache[i];
		f->mask[i] = 0;
	}
	memset(f->want + f->size, 0, DISK_BYTES - f->size);
	memset(f->mask + f->size, 0, (DISK_BYTES - f->size) * sizeof(f->mask[0]));
}

static bool allowed(int file, uint64_t at, uint8_t byte)
{
	const struct model_file *f = &model.files[file];
	const struct model_call *c = &model.call;

	if (byte == f->want[at])
		return true;
	if (c->file == file && at >= c->offset && at - c->offset < c->length &&
	    byte == c->data[at - c->offset])
		return true;
	for (uint32_t m = f->mask[at]; m; m &= m - 1) {
		const struct model_alt *a = &model.alts[__builtin_ctz(m)];

		if (byte == a->data[at - a->offset])
			return true;
	}
	return false;
}

static bool size_allowed(int file, uint64_t size)
{
	const struct model_file *f = &model.files[file];

	if (size == f->size)
		return true;
	if (model.call.file == file && size == model.call.new_size)
		return true;
	/* A short write, or half of one under way. */
	if (model.call.file == file && model.call.length && size > f->size &&
	    size < model.call.new_size)
		return true;
	for (unsigned i = 0; i < f->nsizes; i++) {
		uint64_t end =
			model.call.file == file && model.call.length ? model.call.new_size : 0;

		if (size >= f->sizes[i].low && size <= f->sizes[i].high)
			return true;
		/* The call under way on a file that may have been shorter. */
		if (end && size <= end && size >= f->sizes[i].low && size <= f->size)
			return true;
	}
	return false;
}

static const char *check_bytes(int file, const uint8_t *bytes, uint64_t size)
{
	const struct model_file *f = &model.files[file];

	if (!size_allowed(file, size))
		return size < f->size ? "the file is too short" : "the file is too long";
	if (memcmp(bytes, f->want, size) == 0)
		return NULL;
	for (uint64_t i = 0; i < size; i++)
		if (!allowed(file, i, bytes[i]))
			return "a byte is neither what was acknowledged nor what is under way";
	return NULL;
}

const char *model_check(int file, const struct disk_cut *found)
{
	const struct model_file *f = &model.files[file];
	bool may_be_gone = f->gone || (model.call.file == file && model.call.unlinks);

	if (!found->exists)
		return may_be_gone ? NULL : "the file is gone";
	/* Once unlinked its writes need no record, and nobody reads it after the cut. */
	if (f->gone)
		return NULL;
	return check_bytes(file, found->bytes, found->size);
}

const char *model_check_cache(int file)
{
	const struct disk_file *d = &disk.files[file];

	/* Pages that the kernel lost and dropped: readers see old bytes until the heal. */
	if (d->evicted)
		return NULL;
	return check_bytes(file, d->cache, d->size);
}
