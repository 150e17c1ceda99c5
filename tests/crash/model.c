/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/model.h"

#include <string.h>

#include "base/overflow.h"

struct model model;

static struct model_call *call_now(void)
{
	return &model.calls[model.who];
}

void model_clear(uint64_t size)
{
	memset(&model, 0, sizeof(model));
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		model.calls[i].file = -1;
	for (int i = 0; i < DISK_FILES; i++)
		if (i < DISK_AT_ONCE)
			model_create(i, size);
		else
			model.files[i].gone = true;
}

void model_create(int file, uint64_t size)
{
	struct model_file *f = &model.files[file];

	/* What was perhaps in the old one is of no interest any more. */
	for (unsigned i = 0; i < model.nalts; i++)
		if (model.alts[i].file == file)
			model.alts[i].file = -1;
	memset(f, 0, sizeof(*f));
	f->size = size;
	f->name = disk.files[file].name;
}

void model_begin_none(void)
{
	struct model_call *c = call_now();

	c->file = -1;
	c->state = CALL_NONE;
	c->unlinks = false;
	c->renames = -1;
	c->length = 0;
}

static bool open_on(const struct model_call *c, int file)
{
	return c->file == file && c->state != CALL_NONE;
}

static void begin(int file, uint64_t offset, uint64_t length, uint64_t head)
{
	struct model_call *c = call_now();

	c->file = file;
	c->state = CALL_RUNS;
	c->beside = false;
	c->offset = offset;
	c->length = length;
	c->new_size = model.files[file].size;
	c->unlinks = false;
	c->renames = -1;
	c->head = head;
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (&model.calls[i] != c && open_on(&model.calls[i], file))
			model.calls[i].beside = c->beside = true;
}

/* The call under way makes the file longer than a killed one perhaps left it, and nobody has looked in between: what
 * was perhaps cut off is perhaps zeros now. */
static void grows(uint64_t new_size)
{
	int file = call_now()->file;
	struct model_file *f = &model.files[file];

	for (unsigned i = 0; i < f->nsizes; i++) {
		struct model_alt *a = &model.alts[model.nalts];
		uint64_t low = f->sizes[i].low;

		if (low >= f->size || low >= new_size)
			continue;
		if (model.nalts == MODEL_ALTS) {
			f->loose = true;
			return;
		}
		*a = (struct model_alt){
			.kind = ALT_KILLED, .file = file, .offset = low, .length = f->size - low
		};
		for (uint64_t at = low; at < f->size; at++)
			f->mask[at] |= 1u << model.nalts;
		model.nalts++;
	}
}

void model_begin_write(int file, uint64_t offset, const void *data, uint64_t n, uint64_t head)
{
	struct model_call *c = call_now();

	begin(file, offset, n, head);
	memcpy(c->data, data, n);
	c->new_size = max_of(model.files[file].size, offset + n);
	grows(offset + n);
}

void model_begin_truncate(int file, uint64_t size, uint64_t head)
{
	begin(file, 0, 0, head);
	call_now()->new_size = size;
	grows(size);
}

void model_begin_unlink(int file, uint64_t head)
{
	begin(file, 0, 0, head);
	call_now()->unlinks = true;
}

void model_begin_rename(int file, int over, uint64_t head)
{
	begin(over >= 0 ? over : file, 0, 0, head);
	call_now()->unlinks = over >= 0;
	call_now()->renames = file;
	call_now()->new_name = disk.next_name + 1;
}

/* n bytes of the call become what is wanted; the masks of `keep` alone stay on them. */
static void apply(uint64_t n)
{
	const struct model_call *c = call_now();
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
		f->nsizes = c->unlinks || c->renames >= 0 ? f->nsizes : 0;
	else if (n)
		for (unsigned i = 0; i < f->nsizes; i++) {
			f->sizes[i].low = max_of(f->sizes[i].low, c->offset + n);
			f->sizes[i].high = max_of(f->sizes[i].high, c->offset + n);
		}
	f->size = size;
	if (c->unlinks)
		f->gone = true;
	if (c->renames >= 0) {
		model.files[c->renames].name = c->new_name;
		model.files[c->renames].other_high = 0;
	}
}

/* Both calls on a file are over: the page cache tells which of them came last. */
static void settle_beside(int file)
{
	struct model_file *f = &model.files[file];
	const struct disk_file *d = &disk.files[file];
	bool killed = false;

	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (open_on(&model.calls[i], file) && model.calls[i].state == CALL_KILLED &&
		    !model.calls[i].unlinks && model.calls[i].renames < 0)
			killed = true;
	if (killed)
		f->loose = true;
	for (unsigned i = 0; i < MODEL_CALLS; i++) {
		struct model_call *c = &model.calls[i];
		uint64_t end = c->length ? c->offset + c->length : DISK_BYTES;

		if (!open_on(c, file))
			continue;
		for (uint64_t at = c->length ? c->offset : 0; at < end && !killed; at++) {
			f->want[at] = at < d->size ? d->cache[at] : 0;
			f->mask[at] = 0;
		}
		if (!killed) {
			f->size = d->size;
			f->nsizes = 0;
		}
		c->state = CALL_NONE;
		c->file = -1;
	}
}

/* The call under way is over. Beside another one on the same file it is remembered. */
static void end_call(enum call_state state, uint64_t n)
{
	struct model_call *c = call_now();
	int file = c->file;

	if (!c->beside) {
		model_begin_none();
		return;
	}
	c->state = state;
	if (state == CALL_DONE && c->length)
		c->length = n;
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (open_on(&model.calls[i], file) && model.calls[i].state == CALL_RUNS)
			return;
	settle_beside(file);
}

void model_done(uint64_t n)
{
	if (call_now()->file >= 0)
		apply(n);
	end_call(CALL_DONE, n);
}

static bool remember(enum alt_kind kind, uint64_t n, const uint8_t *data)
{
	const struct model_call *c = call_now();
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
	const struct model_call *c = call_now();
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
	end_call(CALL_DONE, n);
}

void model_other_name(int file, unsigned name)
{
	struct model_file *f = &model.files[file];
	unsigned low = f->other_high ? f->other_low : f->name;

	f->other_low = name < low ? name : low;
	f->other_high = max_of(f->other_high, max_of(name, f->name));
}

bool model_perhaps(void)
{
	const struct model_call *c = call_now();
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
		if (c->renames >= 0)
			model_other_name(c->renames, c->new_name);
	}
	end_call(CALL_KILLED, 0);
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
	if (disk.files[file].safe_name == f->name)
		f->other_high = 0;
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

		/* changed lines begin anywhere in the write */
		if (a->kind == ALT_KILLED && a->file == file && a->offset <= offset &&
		    offset + n <= a->offset + a->length &&
		    memcmp(a->data + (offset - a->offset), data, n) == 0)
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
		if (f->mask[i] || f->loose)
			f->want[i] = d->cache[i];
		f->mask[i] = 0;
	}
	f->loose = f->loose && !bytes;
	memset(f->want + f->size, 0, DISK_BYTES - f->size);
	memset(f->mask + f->size, 0, (DISK_BYTES - f->size) * sizeof(f->mask[0]));
}

const struct model_call *model_only_call(void)
{
	const struct model_call *only = NULL;

	for (unsigned i = 0; i < MODEL_CALLS; i++) {
		if (model.calls[i].state == CALL_NONE || model.calls[i].file < 0)
			continue;
		if (only)
			return NULL;
		only = &model.calls[i];
	}
	return only;
}

static bool allowed_by(const struct model_call *c, uint64_t at, uint8_t byte)
{
	if (c->length)
		return at >= c->offset && at - c->offset < c->length &&
		       byte == c->data[at - c->offset];
	/* Cut off, and grown again by the other one. */
	return c->beside && !c->unlinks && at >= c->new_size && byte == 0;
}

static bool allowed(int file, uint64_t at, uint8_t byte)
{
	const struct model_file *f = &model.files[file];

	if (byte == f->want[at])
		return true;
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (open_on(&model.calls[i], file) && allowed_by(&model.calls[i], at, byte))
			return true;
	for (uint32_t m = f->mask[at]; m; m &= m - 1) {
		const struct model_alt *a = &model.alts[__builtin_ctz(m)];

		if (byte == a->data[at - a->offset])
			return true;
	}
	return false;
}

static bool size_allowed_by(const struct model_call *c, const struct model_file *f, uint64_t size)
{
	if (size == c->new_size)
		return true;
	/* A short write, or half of one under way. */
	if (c->length && size > f->size && size < c->new_size)
		return true;
	/* Beside a truncate. */
	if (c->length && c->beside && size <= c->offset + c->length)
		return true;
	for (unsigned i = 0; c->length && i < f->nsizes; i++)
		/* The call under way on a file that may have been shorter. */
		if (size <= c->new_size && size >= f->sizes[i].low && size <= f->size)
			return true;
	return false;
}

static bool size_allowed(int file, uint64_t size)
{
	const struct model_file *f = &model.files[file];

	if (size == f->size)
		return true;
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (open_on(&model.calls[i], file) && size_allowed_by(&model.calls[i], f, size))
			return true;
	for (unsigned i = 0; i < f->nsizes; i++)
		if (size >= f->sizes[i].low && size <= f->sizes[i].high)
			return true;
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

static bool name_allowed(int file, unsigned name)
{
	const struct model_file *f = &model.files[file];

	if (name == f->name || (f->other_high && name >= f->other_low && name <= f->other_high))
		return true;
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (model.calls[i].state != CALL_NONE && model.calls[i].renames == file &&
		    name == model.calls[i].new_name)
			return true;
	return false;
}

static bool may_be_gone(int file)
{
	for (unsigned i = 0; i < MODEL_CALLS; i++)
		if (open_on(&model.calls[i], file) && model.calls[i].unlinks)
			return true;
	return model.files[file].gone;
}

const char *model_check(int file, const struct disk_cut *found)
{
	const struct model_file *f = &model.files[file];

	if (!found->exists)
		return may_be_gone(file) ? NULL : "the file is gone";
	/* Once unlinked its writes need no record, and nobody reads it after the cut. */
	if (f->gone || f->loose)
		return NULL;
	if (!name_allowed(file, found->name))
		return "a rename that was acknowledged is undone";
	return check_bytes(file, found->bytes, found->size);
}

const char *model_check_cache(int file)
{
	const struct disk_file *d = &disk.files[file];

	/* Pages that the kernel lost and dropped: readers see old bytes until the heal. */
	if (d->evicted || model.files[file].loose)
		return NULL;
	return check_bytes(file, d->cache, d->size);
}
