/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes of every kind. */

#include <string.h>

#include "base/overflow.h"
#include "tests/crash/check.h"
#include "tests/crash/fiber.h"
#include "tests/crash/ops_internal.h"

#define FILL_WRITES 24u
#define RING_LINES  (MEDIUM_RING / LANE_ALIGN)
#define WRAP_LINES \
	((WORLD_BYPASS_SIZE + RECORD_HEADER_BYTES) / LANE_ALIGN) /* of the largest record */

static void fill_random(struct ops *o, uint8_t *data, uint64_t n)
{
	uint64_t v = rng_next(&o->rng) | 1;

	/* never zero: a hole must look different */
	for (uint64_t i = 0; i < n; i++)
		data[i] = (uint8_t)(1 + ((v >> (i % 7 * 8)) + i * 31) % 255);
}

/* Somebody else appends as soon as our write has looked at the size. Returns where ours will go. */
static uint64_t foreign_first(struct ops *o, uint64_t at)
{
	uint8_t bytes[DISK_FOREIGN];

	memset(bytes, DISK_FOREIGN_BYTE, sizeof(bytes));
	model_begin_write(o->file, at, bytes, sizeof(bytes), UINT64_MAX);
	model_done_unsynced(sizeof(bytes));
	return at + sizeof(bytes);
}

/*
 * The block as it was written last, a few bytes of it new: a database writes what it has in memory. Whatever
 * came over it in the file meanwhile, an image that is too old has the same bytes and would leave them out.
 */
static void fill_rewritten(struct ops *o, uint8_t *data, uint64_t at, uint64_t n)
{
	uint8_t *block = o->block[o->file] + (at - OPS_BLOCK_AT);

	for (uint64_t i = 0; i < n; i++)
		if (block[i])
			data[i] = block[i];
	for (uint32_t i = rng_below(&o->rng, 4); i > 0; i--)
		data[rng_below(&o->rng, (uint32_t)n)] ^= 0x80 | 1;
	memcpy(block, data, n);
}

/* offset: bytes, or -1 for the description's position. */
static void do_write(struct ops *o, enum open_kind kind, int64_t offset, uint64_t n)
{
	static uint8_t buffers[WORLD_PROCESSES][DISK_BYTES];
	struct process *p = ops_process(o);
	uint8_t *data = buffers[o->process];
	struct file_ref *r = &p->ref[o->file][kind];
	struct disk_file *d = &disk.files[o->file];
	struct iovec iov[2];
	uint64_t at;
	ssize_t rc;

	if (kind == OPEN_APPEND)
		at = d->size;
	else
		at = offset < 0 ? (uint64_t)disk.fds[r->fd].position : (uint64_t)offset;
	if (at + n + DISK_FOREIGN > DISK_BYTES)
		return;
	if (kind == OPEN_APPEND && disk.foreign_next)
		at = foreign_first(o, at);
	fill_random(o, data, n);
	if (o->rewrite)
		fill_rewritten(o, data, at, n);
	iov[0] = (struct iovec){ data, o->rewrite ? n : n / 3 };
	iov[1] = (struct iovec){ data + iov[0].iov_len, n - iov[0].iov_len };

	model_begin_write(o->file, at, data, n, control_head(&world.ctl).head);
	if (!OPS_CALL(o)) {
		ops_killed(o, p, r->f->op != 0);
		return;
	}
	rc = file_write(&p->s, &p->who, r, iov, o->rewrite ? 1 : 2, offset, 0);
	ops_disarm();
	ops_judge(o, rc);
	if (rc < 0) {
		(void)model_perhaps();
		if (r->f->op)
			ops_unsettled(o->file);
		return;
	}
	if (offset < 0 && kind != OPEN_APPEND && disk.fds[r->fd].position != (int64_t)at + rc)
		check_fail("the position did not move with the write", o->file);
	if (r->f->state == FILE_BYPASS && kind == OPEN_PLAIN)
		model_done_unsynced((uint64_t)rc);
	else
		model_done((uint64_t)rc);
	o->last_offset[o->file] = at;
}

static uint64_t some_offset(struct ops *o, uint64_t n)
{
	uint64_t size = disk.files[o->file].size;
	uint64_t top = min_of(size + 200, (uint64_t)GROW_MAX - n);

	return top ? rng_below(&o->rng, (uint32_t)top) : 0;
}

static uint64_t some_length(struct ops *o)
{
	if (rng_one_in(&o->rng, 8))
		return WORLD_BYPASS_SIZE - rng_below(&o->rng, 3);
	return 1 + rng_below(&o->rng, SMALL);
}

static void op_write(struct ops *o, enum open_kind kind)
{
	uint64_t n = some_length(o);

	if (kind == OPEN_APPEND && disk.files[o->file].size + n > GROW_MAX)
		return;
	do_write(o, kind, (int64_t)some_offset(o, n), n);
}

static void op_overlap(struct ops *o)
{
	uint64_t n = 1 + rng_below(&o->rng, SMALL);

	do_write(o, OPEN_DSYNC, (int64_t)o->last_offset[o->file], n);
}

/* A block written so often that the file has an image of it. */
void ops_make_image(struct ops *o)
{
	uint64_t kill = o->kill_step;
	bool kill_next = o->kill_next, beside_next = o->beside_next;

	if (world_entry(o->file)->id == 0)
		return;
	o->kill_step = 0;
	o->kill_next = o->beside_next = false;
	o->rewrite = true;
	check_sparse(true);
	for (unsigned i = 0; i < 3 && !o->died && !world.ctl.images[o->file].valid; i++)
		do_write(o, OPEN_DSYNC, OPS_BLOCK_AT, OPS_BLOCK);
	check_sparse(false);
	o->rewrite = false;
	o->kill_step = kill;
	o->kill_next = kill_next;
	o->beside_next = beside_next;
}

/* The write that may be killed, and that the daemon may work in: a part of that block once more. */
static void op_rewrite(struct ops *o)
{
	uint64_t n = LANE_ALIGN * (1 + rng_below(&o->rng, 16));
	int64_t at = (int64_t)(LANE_ALIGN * (16 + rng_below(&o->rng, 8)));

	/* One of two calls at once is one call. */
	if (!fibers_active())
		ops_make_image(o);
	o->rewrite = true;
	do_write(o, OPEN_DSYNC, at, n);
	o->rewrite = false;
}

static void op_next(struct ops *o)
{
	struct process *p = ops_process(o);
	int fd = p->ref[o->file][OPEN_DSYNC].fd;

	if (disk.fds[fd].position > 8000)
		disk.fds[fd].position = 0;
	do_write(o, OPEN_DSYNC, -1, 1 + rng_below(&o->rng, SMALL));
	do_write(o, OPEN_DSYNC, -1, 1 + rng_below(&o->rng, SMALL));
}

void ops_fill(struct ops *o)
{
	if (world_entry(o->file)->id == 0)
		return;
	check_sparse(true);
	for (unsigned i = 0; i < FILL_WRITES; i++) {
		uint64_t n = 2000 + rng_below(&o->rng, 1000);

		/* few distinct offsets: records in layers */
		do_write(o, OPEN_DSYNC, (int64_t)(rng_below(&o->rng, 4) * 1500), n);
		ops_make_room();
	}
	check_sparse(false);
}

/* A record of so many lines, header included, anywhere in the file. */
static void write_lines(struct ops *o, unsigned lines)
{
	uint64_t n = lines * (uint64_t)LANE_ALIGN - RECORD_HEADER_BYTES;

	if (n > 1)
		n -= rng_below(&o->rng, 2); /* padded or not */
	do_write(o, OPEN_DSYNC, (int64_t)rng_below(&o->rng, 4000), n);
}

/* Head is brought to where `left` lines remain before the ring's end; then a record of `lines`. */
static void op_wrap(struct ops *o)
{
	unsigned left = o->wrap_lines ? o->wrap_lines : 1 + rng_below(&o->rng, WRAP_LINES);
	unsigned lines = o->wrap_record ? o->wrap_record : left + rng_below(&o->rng, 3);
	uint64_t kill = o->kill_step;
	bool kill_next = o->kill_next;

	o->kill_step = 0;
	o->kill_next = false;
	check_sparse(true);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t head = control_head(&world.ctl).head;
		uint64_t to_end = (MEDIUM_RING - head % MEDIUM_RING) / LANE_ALIGN;
		uint64_t gap = (to_end + RING_LINES - left) % RING_LINES;

		ops_make_room();
		if (gap == 0)
			break;
		/* two lines at least: a record without payload is no write */
		if (gap == 1 || o->died)
			write_lines(o, 2);
		else
			write_lines(o,
				    gap == WRAP_LINES + 1 ? 2 : (unsigned)min_of(gap, WRAP_LINES));
	}
	check_sparse(false);
	o->kill_step = kill;
	o->kill_next = kill_next;
	write_lines(o, max_of(2u, min_of(lines, WRAP_LINES)));
}

void ops_write(struct ops *o, enum op op)
{
	switch (op) {
	case OP_OVERLAP:
		op_overlap(o);
		break;
	case OP_REWRITE:
		op_rewrite(o);
		break;
	case OP_APPEND:
		op_write(o, OPEN_APPEND);
		break;
	case OP_PLAIN:
		op_write(o, OPEN_PLAIN);
		break;
	case OP_NEXT:
		op_next(o);
		break;
	case OP_BIG:
		do_write(o, rng_one_in(&o->rng, 2) && !fibers_active() ? OPEN_PLAIN : OPEN_DSYNC,
			 rng_below(&o->rng, 3000),
			 WORLD_BYPASS_SIZE + 1 + rng_below(&o->rng, 3000));
		break;
	case OP_WRAP:
		op_wrap(o);
		break;
	default:
		op_write(o, OPEN_DSYNC);
		break;
	}
}
