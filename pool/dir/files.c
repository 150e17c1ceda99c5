/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define STATE_NAME "pool.state"

int directory_make(const char *path, unsigned mode)
{
	struct stat st;

	if (mkdir(path, (mode_t)mode) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int directory_sync(const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

static int write_whole(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, text, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		text += w;
		n -= (size_t)w;
	}
	return 0;
}

int file_replace(const char *dir, const char *name, const char *text, unsigned mode)
{
	cleanup_close int dir_fd = -1;
	cleanup_close int fd = -1;
	char temporary[256];
	int r;

	if ((size_t)snprintf(temporary, sizeof(temporary), ".%s.new", name) >= sizeof(temporary))
		return -ENAMETOOLONG;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		    (mode_t)mode);
	if (fd < 0)
		return -errno;
	r = write_whole(fd, text, strlen(text));
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dir_fd, temporary, 0);
		return r;
	}
	return fsync(dir_fd) < 0 ? -errno : 0;
}

int file_read_small(const char *dir, const char *name, char *buf, size_t n)
{
	cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int fd = -1;
	size_t got = 0;

	if (dir_fd < 0)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	while (got < n) {
		ssize_t k = read(fd, buf + got, n - got);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		got += (size_t)k;
	}
	if (got == n)
		return -EFBIG;
	buf[got] = '\0';
	return (int)got;
}

void uuid_text(const uint8_t uuid[16], char ret[33])
{
	for (size_t i = 0; i < 16; i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", uuid[i]);
}

bool uuid_parse(const char *text, uint8_t ret[16])
{
	for (size_t i = 0; i < 32; i++) {
		if (!isxdigit((unsigned char)text[i]))
			return false;
	}
	for (size_t i = 0; i < 16; i++) {
		const char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };

		ret[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	return true;
}

static bool id_from(const char *dir, const char *name, uint8_t ret[16])
{
	char text[64];

	return file_read_small(dir, name, text, sizeof(text)) >= 32 && uuid_parse(text, ret);
}

int machine_id_read(const char *state_dir, bool read_only, uint8_t ret[16])
{
	char text[34];

	if (id_from(state_dir, "machine-id", ret) || id_from("/etc", "machine-id", ret) ||
	    id_from("/var/lib/dbus", "machine-id", ret))
		return 0;
	if (read_only)
		return -ENOENT;
	if (getrandom(ret, 16, 0) != 16)
		return -EIO;
	uuid_text(ret, text);
	strcat(text, "\n");
	return file_replace(state_dir, "machine-id", text, 0644);
}

int state_read(const char *state_dir, struct pool_state *ret)
{
	char text[256], uuid[33];
	uint64_t generation;
	int n, used = 0;

	n = file_read_small(state_dir, STATE_NAME, text, sizeof(text));
	if (n < 0)
		return n == -EFBIG ? -EBADMSG : n;
	if (sscanf(text, "pmemlogd-pool 1 %32s %" SCNu64 "%n", uuid, &generation, &used) != 2 ||
	    !uuid_parse(uuid, ret->uuid) || strcmp(text + used, "\n") != 0)
		return -EBADMSG;
	ret->generation = generation;
	return 0;
}

int state_write(const char *state_dir, const struct pool_state *s)
{
	char uuid[33], text[128];

	uuid_text(s->uuid, uuid);
	(void)snprintf(text, sizeof(text), "pmemlogd-pool 1 %s %" PRIu64 "\n", uuid, s->generation);
	return file_replace(state_dir, STATE_NAME, text, 0644);
}
