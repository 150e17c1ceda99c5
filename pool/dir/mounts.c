/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "pool/dir/identity.h"
#include "pool/sim.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000u
#endif

struct mount_line {
	uint64_t id;
	unsigned major, minor;
	bool read_only;
	const char *point; /* unescaped, inside the line */
	const char *type;
};

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /root /point opts optional... - type source superopts" */
static bool parse(char *line, struct mount_line *ret)
{
	char *save = NULL, *field, *tail = strstr(line, " - ");

	if (!tail)
		return false;
	*tail = '\0';
	tail += 3;
	field = strtok_r(line, " ", &save);
	if (!field)
		return false;
	ret->id = strtoull(field, NULL, 10);
	if (!strtok_r(NULL, " ", &save))
		return false;
	field = strtok_r(NULL, " ", &save);
	if (!field || sscanf(field, "%u:%u", &ret->major, &ret->minor) != 2)
		return false;
	if (!strtok_r(NULL, " ", &save))
		return false;
	field = strtok_r(NULL, " ", &save);
	if (!field)
		return false;
	unescape(field);
	ret->point = field;
	field = strtok_r(NULL, " ", &save);
	ret->read_only = !field || strcmp(field, "ro") == 0 || strncmp(field, "ro,", 3) == 0;
	ret->type = strtok_r(tail, " ", &save);
	return ret->type != NULL;
}

static bool worth_looking(const char *type)
{
	static const char *const never[] = {
		"autofs",     "bpf",	 "ceph",	"cgroup",    "cgroup2", "cifs",
		"configfs",   "debugfs", "devpts",	"efivarfs",  "fusectl", "hugetlbfs",
		"mqueue",     "nfs",	 "nfs4",	"nsfs",	     "proc",	"pstore",
		"rpc_pipefs", "smb3",	 "securityfs",	"selinuxfs", "sysfs",	"tracefs",
		"9p",	      "afs",	 "binfmt_misc", "devtmpfs",
	};

	if (strncmp(type, "fuse", 4) == 0)
		return sim_looks_at(type);
	for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
		if (strcmp(type, never[i]) == 0)
			return false;
	}
	return true;
}

/* Opens the mount itself: what lies at its path may be another one on top of it. */
static int enter(const struct mount_line *m)
{
	cleanup_close int path_fd = open(m->point, O_PATH | O_CLOEXEC | O_NOFOLLOW);
	char name[64];
	struct statx sx;
	int fd;

	if (path_fd < 0)
		return -errno;
	if (statx(path_fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MNT_ID, &sx) < 0)
		return -errno;
	/* Opening anything else than a directory or a plain file may block or have effects. */
	if (!S_ISDIR(sx.stx_mode) && !S_ISREG(sx.stx_mode))
		return -ENOTDIR;
	if (sx.stx_mask & STATX_MNT_ID) {
		if (sx.stx_mnt_id != m->id)
			return -ENOENT;
	} else if (sx.stx_dev_major != m->major || sx.stx_dev_minor != m->minor) {
		return -ENOENT;
	}
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", path_fd);
	fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int mount_find(const uint8_t uuid[16], int *ret_fd)
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	cleanup_close int found = -1;
	unsigned major = 0, minor = 0;
	bool read_only = false;
	int unknown = 0; /* a file system that does not answer could be the one */
	size_t n = 0;

	if (!f)
		return -errno;
	while (getline(&line, &n, f) > 0) {
		cleanup_close int fd = -1;
		struct mount_line m;
		uint8_t id[16];

		if (!parse(line, &m) || !worth_looking(m.type))
			continue;
		/* Another mount of the one that was found is of use only if it is the writable one. */
		if (found >= 0 && m.major == major && m.minor == minor &&
		    (!read_only || m.read_only))
			continue;
		fd = enter(&m);
		/* Our own shortage does not mean that it is not mounted. */
		if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
			return fd;
		if (fd == -EIO || fd == -EUCLEAN)
			unknown = fd;
		if (fd < 0 || identity_fs_uuid(fd, id) < 0 || memcmp(id, uuid, sizeof(id)) != 0)
			continue;
		if (found >= 0 && (m.major != major || m.minor != minor))
			return MOUNT_TWICE;
		close_fd(&found);
		found = take_fd(fd);
		major = m.major;
		minor = m.minor;
		read_only = m.read_only;
	}
	if (ferror(f))
		return -EIO;
	if (found < 0)
		return unknown < 0 ? unknown : MOUNT_NONE;
	*ret_fd = take_fd(found);
	return MOUNT_OK;
}
