/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "daemon/recover/recovery.h"
#include "pool/dir/files.h"

/* 0, or a negative errno. Sets what is set already without a change to the file. */
static int seal(int fd, bool immutable)
{
	int flags = 0, wanted;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return errno == ENOTTY || errno == EOPNOTSUPP ? 0 : -errno;
	wanted = immutable ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	if (wanted == flags)
		return 0;
	if (ioctl(fd, FS_IOC_SETFLAGS, &wanted) < 0)
		return errno == ENOTTY || errno == EOPNOTSUPP ? 0 : -errno;
	/* A quarantine must hold over a power cut, and its end too. */
	return fsync(fd) < 0 ? -errno : 0;
}

unsigned quarantine_seal(struct pool *p, uint32_t lane, bool immutable)
{
	struct pool_file entry;
	uint32_t from = 0;
	unsigned missed = 0;
	int index;

	while ((index = catalog_file_next(p, lane, from, &entry)) >= 0) {
		cleanup_close int fd = -1;
		int r;

		from = (uint32_t)index + 1;
		/* A log's segments are nobody's but ours. */
		if (entry.flags & POOL_FILE_LOG)
			continue;
		r = identity_open(&entry, O_RDONLY, &fd);
		/* What is gone needs no protection. */
		if (r == IDENTITY_STALE)
			continue;
		if (r != IDENTITY_OK || seal(fd, immutable) < 0)
			missed++;
	}
	return missed;
}

/* Page by page: an unreadable one (poison) becomes zeros and is counted; the rest is kept. */
static int copy_image(int from, int to, uint64_t *ret_unreadable)
{
	uint8_t page[2048];
	struct stat st;

	*ret_unreadable = 0;
	if (fstat(from, &st) < 0)
		return -errno;
	for (off_t at = 0; at < st.st_size;) {
		size_t n = (size_t)min_of((off_t)sizeof(page), st.st_size - at);
		ssize_t got = pread(from, page, n, at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			memset(page, 0, n);
			*ret_unreadable += n;
			got = (ssize_t)n;
		}
		for (ssize_t done = 0; done < got;) {
			ssize_t w = pwrite(to, page + done, (size_t)(got - done), at + done);

			if (w < 0 && errno == EINTR)
				continue;
			if (w <= 0)
				return w < 0 ? -errno : -EIO;
			done += w;
		}
		at += got;
	}
	return fsync(to) < 0 ? -errno : 0;
}

/* A new folder with a name of its own: a domain's name may not lead out of it. */
static int make_folder(const struct pool *p, const struct pool_domain *d, char *dir, size_t n)
{
	char name[CTL_DOMAIN_MAX], stamp[32], parent[512];
	time_t now = time(NULL);
	struct tm tm;
	int r;

	(void)snprintf(name, sizeof(name), "%s", d->name);
	for (char *c = name; *c; c++) {
		if (*c == '/' || (*c == '.' && c == name))
			*c = '_';
	}
	gmtime_r(&now, &tm);
	(void)strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
	(void)snprintf(parent, sizeof(parent), "%s/quarantine", p->state_dir);
	r = directory_make(parent, 0700);
	for (unsigned i = 0; r == 0 && i < 1000; i++) {
		int len = i ? snprintf(dir, n, "%s/%s-%u-%s.%u", parent, name, d->lane, stamp, i)
			    : snprintf(dir, n, "%s/%s-%u-%s", parent, name, d->lane, stamp);

		if (len < 0 || (size_t)len >= n)
			return -ENAMETOOLONG;
		if (mkdir(dir, 0700) == 0)
			return directory_sync(parent);
		if (errno != EEXIST)
			return -errno;
	}
	return r < 0 ? r : -EEXIST;
}

int quarantine_keep(struct pool *p, const struct pool_domain *d, struct json_object *report,
		    char *dir, size_t n, uint64_t *ret_unreadable)
{
	cleanup_close int from = -1;
	cleanup_close int to = -1;
	char path[512];
	int r;

	*ret_unreadable = 0;
	r = make_folder(p, d, dir, n);
	if (r < 0)
		return r;
	pool_lane_path(p, d->lane, path, sizeof(path));
	from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	/* A lane that is gone leaves a report alone. */
	if (from < 0 && errno != ENOENT)
		return -errno;
	if (from >= 0) {
		if ((size_t)snprintf(path, sizeof(path), "%s/lane", dir) >= sizeof(path))
			return -ENAMETOOLONG;
		to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (to < 0)
			return -errno;
		r = copy_image(from, to, ret_unreadable);
	}
	if (r == 0 && report)
		r = file_replace(dir, "report.json",
				 json_object_to_json_string_ext(report, JSON_C_TO_STRING_PRETTY),
				 0600);
	return r < 0 ? r : directory_sync(dir);
}
