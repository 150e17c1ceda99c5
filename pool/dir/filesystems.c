/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/filesystems.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/overflow.h"

/* The first name of a magic number is the one that is shown. */
static const struct {
	const char *name;
	int64_t type;
	bool supported;
} filesystems[] = {
	{ "ext4", FILESYSTEM_EXT4, true },	   { "ext3", FILESYSTEM_EXT4, true },
	{ "ext2", FILESYSTEM_EXT4, true },	   { "xfs", FILESYSTEM_XFS, true },
	{ "btrfs", FILESYSTEM_BTRFS, true },	   { "tmpfs", FILESYSTEM_TMPFS, false },
	{ "overlay", INT64_C(0x794c7630), false }, { "zfs", INT64_C(0x2fc12fc1), false },
	{ "f2fs", INT64_C(0xf2f52010), false },	   { "bcachefs", INT64_C(0xca451a4e), false },
	{ "fuse", INT64_C(0x65735546), false },	   { "nfs", INT64_C(0x6969), false },
	{ "nfs4", INT64_C(0x6969), false },	   { "cifs", INT64_C(0xff534d42), false },
	{ "9p", INT64_C(0x01021997), false },	   { "ramfs", INT64_C(0x858458f6), false },
};

int64_t filesystem_type(int fd, char *buf, size_t n)
{
	struct statfs st;
	int64_t type;

	if (fstatfs(fd, &st) < 0) {
		(void)snprintf(buf, n, "file system");
		return -errno;
	}
	/* f_type is signed, and some magic numbers have the top bit set. */
	type = (int64_t)(uint32_t)st.f_type;
	for (size_t i = 0; i < ARRAY_SIZE(filesystems); i++) {
		if (filesystems[i].type == type) {
			(void)snprintf(buf, n, "%s", filesystems[i].name);
			return type;
		}
	}
	(void)snprintf(buf, n, "type 0x%llx", (unsigned long long)type);
	return type;
}

static bool names(const char *name, int64_t type)
{
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(filesystems); i++) {
		if (filesystems[i].type == type && strcmp(filesystems[i].name, name) == 0)
			return true;
	}
	if (strncmp(name, "0x", 2) != 0)
		return false;
	return strtoll(name, &end, 16) == type && *end == '\0';
}

bool filesystem_supported(int64_t type, const char *const *trust_fs)
{
	for (size_t i = 0; i < ARRAY_SIZE(filesystems); i++) {
		if (filesystems[i].type == type && filesystems[i].supported)
			return true;
	}
	for (; trust_fs && *trust_fs; trust_fs++) {
		if (names(*trust_fs, type))
			return true;
	}
	return false;
}
