/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Frames into segments; trimming. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/overflow.h"
#include "base/sys.h"
#include "daemon/logs/store_internal.h"
#include "pool/crc.h"

#define BUFFER_BYTES (256u * 1024u) /* picked: few calls, and a record of 1 MiB goes around it */
#define LIMITED_MIN  65536u

/* A log with a capacity gives space back in pieces that are smaller than it. */
static uint64_t segment_limit(const struct log_store *s)
{
	if (s->capacity == 0)
		return SEGMENT_BYTES;
	return min_of(max_of(s->capacity / 4, LIMITED_MIN), SEGMENT_BYTES);
}

static int write_out(struct log_store *s, const void *from, size_t n, uint64_t offset)
{
	const uint8_t *p = from;

	while (n > 0) {
		ssize_t w = pwrite(s->fd, p, n, (off_t)offset);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return log_store_fail(s, w < 0 ? -errno : -EIO, "write: %s",
					      strerror(w < 0 ? errno : EIO));
		p += w;
		n -= (size_t)w;
		offset += (uint64_t)w;
	}
	return 0;
}

static int flush(struct log_store *s)
{
	int r = 0;

	if (s->buffered)
		r = write_out(s, s->buffer, s->buffered, s->fd_bytes - s->buffered);
	if (r == 0)
		s->buffered = 0;
	return r;
}

static int sync_newest(struct log_store *s)
{
	int r = flush(s);

	if (r < 0)
		return r;
	while (fdatasync(s->fd) < 0)
		if (errno != EINTR)
			return log_store_fail(s, -errno, "fdatasync: %s", strerror(errno));
	return 0;
}

static int new_segment(struct log_store *s)
{
	struct segment_header h = {
		.version = SEGMENT_VERSION,
		.lsn = s->end,
		.time_ns = now_realtime_ns(),
		.uid = s->uid,
	};
	char name[SEGMENT_NAME_BYTES];
	uint64_t *more;
	int r = 0;

	if (s->fd >= 0) {
		r = sync_newest(s);
		(void)close(s->fd);
		s->fd = -1;
	}
	if (r < 0)
		return r;
	more = reallocarray(s->segments, s->n_segments + 1, sizeof(*more));
	if (!more)
		return log_store_fail(s, -ENOMEM, "out of memory");
	s->segments = more;
	segment_name(s->end, name);
	s->fd = openat(s->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->fd < 0)
		return log_store_fail(s, -errno, "%s: %s", name, strerror(errno));
	s->segments[s->n_segments++] = s->end;
	s->folder_dirty = true;
	memcpy(h.magic, SEGMENT_MAGIC, sizeof(h.magic));
	memcpy(h.log, s->log, sizeof(h.log));
	memcpy(h.domain, s->domain, sizeof(h.domain));
	memcpy(h.name, s->name, sizeof(h.name));
	h.crc = crc32c(0, &h, sizeof(h));
	s->fd_bytes = sizeof(h);
	return write_out(s, &h, sizeof(h), 0);
}

static int add(struct log_store *s, const void *from, size_t n)
{
	int r = 0;

	if (n > BUFFER_BYTES - s->buffered)
		r = flush(s);
	if (r == 0 && n > BUFFER_BYTES)
		r = write_out(s, from, n, s->fd_bytes);
	else if (r == 0) {
		memcpy(s->buffer + s->buffered, from, n);
		s->buffered += n;
	}
	s->fd_bytes += n;
	return r;
}

int log_store_put(struct log_store *s, uint64_t lsn, uint64_t time_ns, const void *payload,
		  uint32_t length)
{
	static const uint8_t zeros[8];
	struct segment_frame f = { .length = length, .lsn = lsn, .time_ns = time_ns };
	int r = 0;

	if (lsn < s->end && lsn + length <= s->end)
		return 0;
	if (lsn != s->end || length == 0)
		return log_store_fail(s, -EBADMSG,
				      "a record at %" PRIu64
				      " does not follow the last one, %" PRIu64,
				      lsn, s->end);
	if (!s->buffer) {
		s->buffer = malloc(BUFFER_BYTES);
		if (!s->buffer)
			return log_store_fail(s, -ENOMEM, "out of memory");
	}
	if (s->fd < 0 || (s->fd_bytes > SEGMENT_HEADER_BYTES &&
			  s->fd_bytes + segment_frame_bytes(length) > segment_limit(s)))
		r = new_segment(s);
	if (r < 0)
		return r;
	memcpy(&f.log, s->log, sizeof(f.log));
	segment_seal(&f, payload);
	r = add(s, &f, sizeof(f));
	if (r == 0)
		r = add(s, payload, length);
	if (r == 0)
		r = add(s, zeros, (8 - length % 8) % 8);
	s->end += length;
	return r;
}

int log_store_sync(struct log_store *s)
{
	int r = 0;

	if (s->end == s->disk)
		return 0;
	if (s->fd >= 0)
		r = sync_newest(s);
	if (r == 0 && s->folder_dirty && fsync(s->dir_fd) < 0)
		r = log_store_fail(s, -errno, "folder: %s", strerror(errno));
	if (r < 0)
		return r;
	s->folder_dirty = false;
	s->disk = s->end;
	return 0;
}

/* ---- trimming ------------------------------------------------------------------------------------ */

int log_store_meta(struct log_store *s)
{
	struct log_meta m = {
		.mode = s->mode,
		.capacity = s->capacity,
		.first = s->first,
		.end = s->disk,
	};
	int r;

	memcpy(m.log, s->log, sizeof(m.log));
	r = log_meta_write(s->path, &m);
	return r < 0 ? log_store_fail(s, r, "meta: %s", strerror(-r)) : 0;
}

int log_store_drop(struct log_store *s)
{
	uint32_t n = 0;

	while (n + 1 < s->n_segments && s->segments[n + 1] <= s->first) {
		char name[SEGMENT_NAME_BYTES];

		segment_name(s->segments[n], name);
		if (unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT)
			return -errno;
		n++;
	}
	if (n == 0)
		return 0;
	s->n_segments -= n;
	memmove(s->segments, s->segments + n, s->n_segments * sizeof(*s->segments));
	return fsync(s->dir_fd) < 0 ? -errno : 0;
}

int log_store_segment(const struct log_store *s, uint64_t lsn, uint64_t *ret_first)
{
	char name[SEGMENT_NAME_BYTES];
	uint32_t i = s->n_segments;
	int fd;

	while (i > 0 && s->segments[i - 1] > lsn)
		i--;
	if (i == 0 || lsn >= s->disk)
		return -ENXIO;
	*ret_first = s->segments[i - 1];
	segment_name(*ret_first, name);
	fd = openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

/* LSN of the record that lsn lies in. */
static int record_start(struct log_store *s, uint64_t lsn, uint64_t *ret)
{
	struct segment_frame f;
	struct segment_reader r;
	uint64_t first;
	int rc, fd;

	*ret = lsn;
	if (lsn == s->disk)
		return 0;
	fd = log_store_segment(s, lsn, &first);
	if (fd < 0)
		return fd;
	rc = segment_begin(&r, fd, first);
	while (rc == 0) {
		rc = segment_next(&r, &f);
		if (rc == 1 && lsn < r.lsn) {
			*ret = f.lsn;
			break;
		}
		rc = rc == 1 ? 0 : rc == 0 ? -EBADMSG : rc;
	}
	segment_end(&r);
	(void)close(fd);
	return rc < 0 ? rc : 0;
}

int log_store_trim(struct log_store *s, uint64_t lsn)
{
	uint64_t old = s->first;
	int r;

	if (lsn <= s->first)
		return 0;
	if (lsn > s->disk)
		return -ENXIO;
	r = record_start(s, lsn, &s->first);
	if (r == 0 && s->first != old)
		r = log_store_meta(s);
	if (r < 0) {
		s->first = old;
		return r;
	}
	return log_store_drop(s);
}
