/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/twin.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "pool/crc.h"
#include "pool/guard.h"
#include "pool/ops.h"

enum copy_state {
	COPY_VALID,
	COPY_ZERO,
	COPY_DAMAGED,
};

static uint64_t sequence_of(const struct twin_layout *t, const void *image)
{
	uint64_t sequence;

	memcpy(&sequence, (const uint8_t *)image + t->sequence_offset, sizeof(sequence));
	return sequence;
}

/* CRC with the field itself read as zero; the image is private. */
static uint32_t crc_of(const struct twin_layout *t, const void *image)
{
	static const uint8_t zero[4];
	const uint8_t *p = image;
	uint32_t crc = crc32c(0, p, t->crc_offset);

	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, p + t->crc_offset + 4, t->bytes - t->crc_offset - 4);
}

static int copy_guarded(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
	return 0;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static enum copy_state copy_read(const struct twin_layout *t, const uint8_t *from, void *ret)
{
	uint32_t crc;

	if (GUARD(copy_guarded(ret, from, t->bytes)) < 0)
		return COPY_DAMAGED;
	if (all_zero(ret, t->bytes))
		return COPY_ZERO;
	memcpy(&crc, (const uint8_t *)ret + t->crc_offset, sizeof(crc));
	return crc == crc_of(t, ret) ? COPY_VALID : COPY_DAMAGED;
}

int twin_read(const struct twin_layout *t, const uint8_t *a, const uint8_t *b, void *ret,
	      void *scratch, int *ret_first)
{
	enum copy_state sa = copy_read(t, a, ret);
	enum copy_state sb = copy_read(t, b, scratch);
	bool newer_b = sb == COPY_VALID &&
		       (sa != COPY_VALID || sequence_of(t, scratch) > sequence_of(t, ret));

	if (ret_first)
		*ret_first = newer_b ? 0 : 1;
	if (newer_b)
		memcpy(ret, scratch, t->bytes);
	if (newer_b || sa == COPY_VALID)
		return 0;
	return sa == COPY_ZERO || sb == COPY_ZERO ? -ENOENT : -EBADMSG;
}

static int store(uint8_t *to, const void *image, size_t n)
{
	pool_ops->copy(to, image, n);
	/* Afterwards this copy is durable. */
	pool_ops->drain();
	return 0;
}

/* What somebody stored who was killed before the drain reads well and is not durable; afterwards it is. */
static int settle(const uint8_t *p, size_t n)
{
	pool_ops->flush(p, n);
	pool_ops->drain();
	return 0;
}

/* Unreadable memory is settled by the store that follows, or fails there. */
static void settle_guarded(const uint8_t *p, size_t n)
{
	(void)GUARD(settle(p, n));
}

int twin_write(const struct twin_layout *t, uint8_t *a, uint8_t *b, void *image, void *scratch)
{
	uint8_t *old = scratch;
	uint64_t sequence = 0;
	uint32_t crc;
	int first, r;

	settle_guarded(a, t->bytes);
	settle_guarded(b, t->bytes);
	if (twin_read(t, a, b, old, old + t->bytes, &first) == 0)
		sequence = sequence_of(t, old);
	sequence++;
	memcpy((uint8_t *)image + t->sequence_offset, &sequence, sizeof(sequence));
	crc = crc_of(t, image);
	memcpy((uint8_t *)image + t->crc_offset, &crc, sizeof(crc));

	r = GUARD(store(first ? b : a, image, t->bytes));
	if (r == 0)
		r = GUARD(store(first ? a : b, image, t->bytes));
	return r;
}
