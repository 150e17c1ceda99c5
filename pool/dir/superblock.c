/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/superblock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "pool/dir/media.h"
#include "pool/dir/twin.h"

static const struct twin_layout superblock_layout = {
	.bytes = POOL_SB_BYTES,
	.crc_offset = offsetof(struct pool_superblock, crc),
	.sequence_offset = offsetof(struct pool_superblock, sequence),
};

/* A copy that cannot be read counts as damaged: 0xff is neither zero nor valid. */
static void read_copy(int fd, uint8_t *to, off_t offset)
{
	if (pread(fd, to, POOL_SB_BYTES, offset) != (ssize_t)POOL_SB_BYTES)
		memset(to, 0xff, POOL_SB_BYTES);
}

static bool has_magic(const struct pool_superblock *sb)
{
	return memcmp(sb->magic, POOL_MAGIC, sizeof(sb->magic)) == 0;
}

static int check(const struct pool_superblock *sb, const char *path, bool read_only,
		 struct pool_error *e)
{
	static const uint8_t zero[16];

	if (!has_magic(sb))
		return pool_refuse(
			e, -EBADMSG,
			"%s: is no pmemlogd pool; nothing was changed. Put the newest copy of "
			"the pool back, or name the right folder in the configuration",
			path);
	if (sb->version != POOL_VERSION)
		return pool_refuse(e, -EPROTONOSUPPORT,
				   "%s: pool of version %u, this program knows version %u; use the "
				   "release that made it",
				   path, sb->version, POOL_VERSION);
	if (sb->incompat & ~POOL_FEATURES_INCOMPAT)
		return pool_refuse(
			e, -EPROTONOSUPPORT,
			"%s: uses features (0x%x) that this release does not know; use the "
			"release that wrote it last",
			path, sb->incompat & ~POOL_FEATURES_INCOMPAT);
	if (!read_only && (sb->ro_compat & ~POOL_FEATURES_RO_COMPAT))
		return pool_refuse(
			e, -EPROTONOSUPPORT,
			"%s: uses features (0x%x) with which this release may only read it; "
			"use the release that wrote it last",
			path, sb->ro_compat & ~POOL_FEATURES_RO_COMPAT);
	if (sb->emulated > 1 || memcmp(sb->uuid, zero, sizeof(zero)) == 0 ||
	    sb->next_file_id == 0 || sb->generation == 0)
		return pool_refuse(
			e, -EBADMSG,
			"%s: superblock makes no sense; nothing was changed. Put the newest "
			"copy of the pool back",
			path);
	return 0;
}

int superblock_read(int fd, const char *path, bool read_only, struct pool_superblock *ret,
		    struct pool_error *e)
{
	cleanup_free uint8_t *both = malloc(3 * (size_t)POOL_SB_BYTES);
	int r;

	if (!both)
		return pool_refuse(e, -ENOMEM, "%s: no memory", path);
	read_copy(fd, both, 0);
	read_copy(fd, both + POOL_SB_BYTES, POOL_SB_BYTES);
	r = twin_read(&superblock_layout, both, both + POOL_SB_BYTES, ret,
		      both + 2 * (size_t)POOL_SB_BYTES, NULL);
	if (r == 0)
		return check(ret, path, read_only, e);
	if (r == -ENOENT)
		return pool_refuse(
			e, -EBADMSG,
			"%s: is blank: no superblock; nothing was changed. Put the newest copy "
			"back; if that is lost, restore the databases and make a new "
			"pool: pmemlogctl pool create --force",
			path);

	/* A later version may have another CRC; its magic and version stand where ours do. */
	for (size_t i = 0; i < 2; i++) {
		memcpy(ret, both + i * POOL_SB_BYTES, sizeof(*ret));
		if (has_magic(ret) && ret->version != POOL_VERSION)
			return check(ret, path, read_only, e);
	}
	memcpy(ret, both, sizeof(*ret));
	if (!has_magic(ret))
		memcpy(ret, both + POOL_SB_BYTES, sizeof(*ret));
	if (!has_magic(ret))
		return check(ret, path, read_only, e);
	return pool_refuse(
		e, -EBADMSG,
		"%s: both copies of the superblock are damaged; nothing was changed. Keep a "
		"copy of the whole directory, then restore the databases that used it",
		path);
}

int superblock_write(uint8_t *map, struct pool_superblock *sb)
{
	cleanup_free uint8_t *scratch = malloc(2 * (size_t)POOL_SB_BYTES);

	if (!scratch)
		return -ENOMEM;
	return twin_write(&superblock_layout, map, map + POOL_SB_BYTES, sb, scratch);
}
