/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/image.h"

#include <emmintrin.h>
#include <string.h>

#include "base/atomic.h"
#include "base/overflow.h"

/* In write_offset while its length is 0: no write of a version without images came after the image. No
 * file offset is so large. */
#define NO_OLDER_WRITE UINT64_MAX

/* Picked: a file that goes on for so many writes without rewriting anything is an append-only one. */
#define REWRITES_REMEMBERED 16u

static struct ctl_image *image_of(const struct session *s, const struct ctl_file *f,
				  uint8_t **ret_bytes)
{
	ptrdiff_t i = f - s->ctl.files;

	if (!s->ctl.images || i >= (ptrdiff_t)CTL_IMAGES)
		return NULL;
	*ret_bytes = s->ctl.image_bytes + i * CTL_IMAGE_BYTES;
	return &s->ctl.images[i];
}

/* Should we die in what comes next, the image is gone first: a dead thread's stores are seen in the order
 * in which it made them, so this only has to be kept in its place among them. */
static void strike_out(struct ctl_image *image)
{
	atomic_store_relaxed(&image->valid, 0);
	__asm__ volatile("" ::: "memory");
}

void image_drop(const struct session *s, const struct ctl_file *f)
{
	uint8_t *bytes;
	struct ctl_image *image = image_of(s, f, &bytes);

	if (image)
		strike_out(image);
}

/* Copies one line from src, reading it once, and says whether it differs from what dst had. */
static bool take_line(uint8_t *dst, const uint8_t *src)
{
	__m128i differ = _mm_setzero_si128();

	for (unsigned i = 0; i < LINES_LINE; i += sizeof(__m128i)) {
		__m128i fresh = _mm_loadu_si128((const void *)(src + i));

		/* what is compared is what is stored, not a second read of the caller's memory */
		__asm__ volatile("" : "+x"(fresh));
		differ = _mm_or_si128(
			differ, _mm_xor_si128(fresh, _mm_load_si128((const void *)(dst + i))));
		_mm_store_si128((void *)(dst + i), fresh);
	}
	return _mm_movemask_epi8(_mm_cmpeq_epi8(differ, _mm_setzero_si128())) != 0xffff;
}

/* Brings the write into the image; the lines that it changes become the payload. */
static void take_lines(struct image_write *w, uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	struct iovec *run = NULL;

	memset(w->map, 0, sizeof(w->map));
	w->payload[0] = (struct iovec){ w->map, sizeof(w->map) };
	w->payload_count = 1;
	w->payload_bytes = sizeof(w->map);
	for (uint32_t i = 0; i < bytes / LINES_LINE; i++) {
		if (!take_line(to + i * LINES_LINE, from + i * LINES_LINE)) {
			run = NULL;
			continue;
		}
		w->map[i / 8] |= (uint8_t)(1u << (i % 8));
		w->payload_bytes += LINES_LINE;
		if (run) {
			run->iov_len += LINES_LINE;
			continue;
		}
		run = &w->payload[w->payload_count++];
		*run = (struct iovec){ to + i * LINES_LINE, LINES_LINE };
	}
	w->lines = w->payload_bytes < bytes;
}

/* The end of the write, as much as an image holds, is the new image. */
static void take_whole(struct image_write *w, uint8_t *to, const uint8_t *from, uint64_t offset,
		       uint64_t total)
{
	uint64_t bytes = min_of(total, (uint64_t)CTL_IMAGE_BYTES);
	uint64_t before = total - bytes;

	memcpy(to, from + before, bytes);
	__asm__ volatile("" ::: "memory"); /* the caller's memory is not read again */
	w->iovcnt = 0;
	if (before)
		w->iov[w->iovcnt++] = (struct iovec){ (void *)(uintptr_t)from, before };
	w->iov[w->iovcnt++] = (struct iovec){ to, bytes };
	w->lines = false;
	w->image->offset = offset + before;
	w->image->length = (uint32_t)bytes;
}

/* Are the file's blocks rewritten? Remembered for a while, so that an append-only file copies nothing. */
static bool rewrites(struct ctl_image *image, uint64_t offset, uint64_t end)
{
	if (offset >= image->last_start && offset < image->last_end)
		image->rewrites = REWRITES_REMEMBERED;
	else if (image->rewrites)
		image->rewrites--;
	image->last_start = offset;
	image->last_end = end;
	return image->rewrites != 0;
}

/* Does it still tell the truth about [offset, end)? */
static bool covers(const struct session *s, const struct ctl_file *f, const struct ctl_image *image,
		   uint64_t offset, uint64_t end, uint64_t file_size)
{
	uint64_t image_end = image->offset + image->length;

	/* Relaxed: rule_f is compared again under the lane lock, by append; write_offset is under the
	 * file's. */
	return image->valid == 1 && image->id == f->id && image->length <= CTL_IMAGE_BYTES &&
	       image->offset <= offset && end <= image_end && image_end <= file_size &&
	       image->rule_f == atomic_load_relaxed(&s->ctl.hot->rule_f) &&
	       atomic_load_relaxed(&f->write_offset) == NO_OLDER_WRITE;
}

bool image_begin(const struct session *s, const struct ctl_file *f, const struct iovec *iov,
		 int iovcnt, uint64_t offset, uint64_t total, uint64_t file_size,
		 struct image_write *ret)
{
	uint8_t *bytes;
	struct ctl_image *image = image_of(s, f, &bytes);
	struct ctl_image
		was; /* another process may write anything there: checked and used is a copy */
	bool again;

	if (!image)
		return false;
	was = *image;
	strike_out(image);
	if (was.id != f->id)
		*image = (struct ctl_image){ .id = f->id };

	again = rewrites(image, offset, offset + total);
	if (iovcnt != 1 || (offset | total) % LINES_LINE != 0)
		return false;
	ret->image = image;
	ret->rule_f = was.rule_f;
	if (covers(s, f, &was, offset, offset + total, file_size)) {
		uint8_t *to = bytes + (offset - was.offset);

		take_lines(ret, to, iov->iov_base, (uint32_t)total);
		ret->iov[0] = (struct iovec){ to, total };
		ret->iovcnt = 1;
		return true;
	}
	if (!again)
		return false;
	/* Relaxed, and before the record: a step that begins in between only costs the image. */
	ret->rule_f = atomic_load_relaxed(&s->ctl.hot->rule_f);
	take_whole(ret, bytes, iov->iov_base, offset, total);
	return true;
}

void image_keep(struct ctl_file *f, const struct image_write *w)
{
	struct ctl_image *image = w->image;

	image->rule_f = w->rule_f;
	/* Relaxed: before valid, which is released below. */
	atomic_store_relaxed(&f->write_offset, NO_OLDER_WRITE);
	/* Release: all of the image, and the record that it stands on, come first. Pairs with the next
	 * owner's acquire of the file's lock. */
	atomic_store_release(&image->valid, 1);
}
