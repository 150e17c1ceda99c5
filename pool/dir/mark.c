/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "abi/mark.h"
#include "pool/crc.h"
#include "pool/dir/identity.h"

static uint32_t mark_crc(const struct mark *m)
{
	struct mark copy = *m;

	copy.crc = 0;
	return crc32c(0, &copy, sizeof(copy));
}

static void mark_fill(struct mark *m, const struct pool *p, const struct pool_file *f)
{
	memset(m, 0, sizeof(*m));
	memcpy(m->magic, MARK_MAGIC, sizeof(m->magic));
	m->lane = f->lane;
	memcpy(m->pool_uuid, p->sb.uuid, sizeof(m->pool_uuid));
	memcpy(m->machine_id, p->sb.machine_id, sizeof(m->machine_id));
	m->btime_ns = f->btime_ns;
	m->handle_type = f->handle_type;
	m->handle_bytes = f->handle_bytes;
	memcpy(m->handle, f->handle, f->handle_bytes);
	m->crc = mark_crc(m);
}

int mark_read(int fd, const struct pool *p, const struct pool_file *f)
{
	struct mark found, ours;
	ssize_t n;

	if (f->handle_bytes > CTL_HANDLE_MAX)
		return -EBADMSG;
	n = fgetxattr(fd, MARK_NAME, &found, sizeof(found));
	if (n < 0)
		return errno == ENODATA ? MARK_NONE : errno == ERANGE ? MARK_FOREIGN : -errno;
	if (n != (ssize_t)sizeof(found) || memcmp(found.magic, MARK_MAGIC, 8) != 0 ||
	    found.crc != mark_crc(&found))
		return MARK_FOREIGN;
	mark_fill(&ours, p, f);
	/* First whose mark it is: a copy carries everything of its original but its handle. */
	if (found.handle_type != ours.handle_type || found.handle_bytes != ours.handle_bytes ||
	    memcmp(found.handle, ours.handle, sizeof(ours.handle)) != 0 ||
	    found.btime_ns != ours.btime_ns)
		return MARK_COPY;
	if (found.lane != ours.lane || memcmp(found.pool_uuid, ours.pool_uuid, 16) != 0 ||
	    memcmp(found.machine_id, ours.machine_id, 16) != 0)
		return MARK_FOREIGN;
	return MARK_OURS;
}

int mark_write(int fd, const struct pool *p, const struct pool_file *f)
{
	struct mark m;

	if (f->handle_bytes > CTL_HANDLE_MAX)
		return -EINVAL;
	mark_fill(&m, p, f);
	return fsetxattr(fd, MARK_NAME, &m, sizeof(m), 0) < 0 ? -errno : 0;
}

int mark_remove(int fd)
{
	if (fremovexattr(fd, MARK_NAME) == 0 || errno == ENODATA)
		return 0;
	return -errno;
}
