/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "pool/crc.h"

#define LENGTH_MAX (1u << 30) /* no lane has a record that long */

/* Whole, or as far as the file goes. Bytes, or a negative errno. */
static int64_t read_at(int fd, void *to, size_t n, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		long got =
			sys_call4(SYS_pread64, fd, (uint8_t *)to + done, n - done, offset + done);

		if (got == -EINTR)
			continue;
		if (got < 0)
			return got;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (int64_t)done;
}

int segment_begin(struct segment_reader *r, int fd, uint64_t lsn)
{
	struct segment_header h;
	int64_t n;
	uint32_t crc;

	*r = (struct segment_reader){ .fd = fd };
	n = read_at(fd, &h, sizeof(h), 0);
	if (n < 0)
		return (int)n;
	if (n != (int64_t)sizeof(h))
		return -EBADMSG;
	crc = h.crc;
	h.crc = 0;
	if (memcmp(h.magic, SEGMENT_MAGIC, sizeof(h.magic)) != 0 || h.version != SEGMENT_VERSION ||
	    crc32c(0, &h, sizeof(h)) != crc || h.lsn != lsn)
		return -EBADMSG;
	h.crc = crc;
	r->header = h;
	r->offset = sizeof(h);
	r->lsn = lsn;
	return 0;
}

/* n: bytes that are there, of the payload alone or with what pads it. */
static uint32_t frame_crc(const struct segment_frame *f, const void *payload, uint32_t n)
{
	uint32_t crc = crc32c(0, &f->length, sizeof(*f) - offsetof(struct segment_frame, length));

	return crc32c(crc, payload, n);
}

void segment_seal(struct segment_frame *f, const void *payload)
{
	static const uint8_t zeros[8];

	f->crc = crc32c(frame_crc(f, payload, f->length), zeros, -f->length & 7u);
}

static int payload_room(struct segment_reader *r, uint32_t length)
{
	uint8_t *more;

	if (length <= r->room)
		return 0;
	more = realloc(r->payload, length);
	if (!more)
		return -ENOMEM;
	r->payload = more;
	r->room = length;
	return 0;
}

int segment_next(struct segment_reader *r, struct segment_frame *ret)
{
	struct segment_frame f;
	int64_t n = read_at(r->fd, &f, sizeof(f), r->offset);
	uint32_t padded;
	int rc;

	if (n <= 0)
		return (int)n;
	if (n != (int64_t)sizeof(f) || f.length == 0 || f.length > LENGTH_MAX || f.lsn != r->lsn ||
	    f.reserved != 0 || memcmp(&f.log, r->header.log, sizeof(f.log)) != 0)
		return -EBADMSG;
	padded = (f.length + 7u) & ~7u;
	rc = payload_room(r, padded);
	if (rc < 0)
		return rc;
	n = read_at(r->fd, r->payload, padded, r->offset + sizeof(f));
	if (n < 0)
		return (int)n;
	if (n != (int64_t)padded || frame_crc(&f, r->payload, padded) != f.crc)
		return -EBADMSG;
	r->offset += segment_frame_bytes(f.length);
	r->lsn += f.length;
	*ret = f;
	return 1;
}

void segment_end(struct segment_reader *r)
{
	free(r->payload);
	r->payload = NULL;
	r->room = 0;
}
