/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/logs/store_internal.h"
#include "pool/crc.h"
#include "pool/dir/files.h"

#define META_NAME  "meta"
#define META_BYTES 512u

/* `crc` covers all lines before its own. */
static int meta_text(const struct log_meta *m, char buf[META_BYTES])
{
	char log[33];
	int n, k;

	uuid_text(m->log, log);
	n = snprintf(buf, META_BYTES,
		     "pmemlogd-log 1\nlog %s\nmode %o\ncapacity %" PRIu64 "\nfirst %" PRIu64
		     "\nend %" PRIu64 "\n",
		     log, m->mode, m->capacity, m->first, m->end);
	k = snprintf(buf + n, META_BYTES - (size_t)n, "crc %08x\n", crc32c(0, buf, (size_t)n));
	return n + k;
}

int log_meta_read(const char *path, struct log_meta *ret)
{
	char text[META_BYTES], again[META_BYTES], log[33];
	int n = file_read_small(path, META_NAME, text, sizeof(text));
	struct log_meta m = { .mode = 0 };

	if (n < 0)
		return n == -EFBIG ? -EBADMSG : n;
	if (sscanf(text,
		   "pmemlogd-log 1\nlog %32[0-9a-f]\nmode %o\ncapacity %" SCNu64 "\nfirst %" SCNu64
		   "\nend %" SCNu64 "\n",
		   log, &m.mode, &m.capacity, &m.first, &m.end) != 5 ||
	    !uuid_parse(log, m.log))
		return -EBADMSG;
	/* The same fields make the same text: that checks the CRC and everything else. */
	if (meta_text(&m, again) != n || memcmp(text, again, (size_t)n) != 0)
		return -EBADMSG;
	if (m.first > m.end || m.end > (uint64_t)INT64_MAX || (m.mode & ~0600u) != 0)
		return -EBADMSG;
	*ret = m;
	return 0;
}

int log_meta_write(const char *path, const struct log_meta *m)
{
	char text[META_BYTES];

	(void)meta_text(m, text);
	return file_replace(path, META_NAME, text, 0600);
}

int log_store_fail(struct log_store *s, int r, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(s->why, sizeof(s->why), format, ap);
	va_end(ap);
	return r;
}
