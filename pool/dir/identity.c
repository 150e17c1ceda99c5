/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "pool/dir/filesystems.h"
#include "pool/dir/mounts.h"
#include "pool/sim.h"

/* Newer than the headers that we build with: Linux 6.9 for all, 5.19 for ext4, always for xfs. */
struct fs_uuid2 {
	uint8_t len;
	uint8_t uuid[16];
};
#define GET_FS_UUID _IOR(0x15, 0, struct fs_uuid2)

struct ext4_uuid {
	uint32_t len;
	uint32_t flags;
	uint8_t uuid[16];
};
#define EXT4_GET_UUID _IOR('f', 44, uint32_t[2])

struct xfs_geometry_v1 {
	uint32_t sizes[8];
	uint64_t blocks[4];
	uint8_t uuid[16];
	uint32_t rest[8];
};
#define XFS_GET_GEOMETRY_V1 _IOR('X', 100, struct xfs_geometry_v1)
static_assert(sizeof(struct xfs_geometry_v1) == 112, "the ioctl's number has the size in it");

static bool is_zero(const uint8_t uuid[16])
{
	static const uint8_t zero[16];

	return memcmp(uuid, zero, sizeof(zero)) == 0;
}

int identity_fs_uuid(int fd, uint8_t ret_uuid[16])
{
	struct fs_uuid2 any = { 0 };
	struct ext4_uuid ext4 = { .len = 16 };
	struct xfs_geometry_v1 xfs;
	struct statfs st;

	memset(ret_uuid, 0, 16);
	if (ioctl(fd, GET_FS_UUID, &any) == 0 && any.len == 16)
		memcpy(ret_uuid, any.uuid, 16);
	if (!is_zero(ret_uuid))
		return 0;
	if (fstatfs(fd, &st) < 0)
		return -errno;
	/* Each ioctl on its own file system only: the numbers mean something else on others. */
	switch ((int64_t)(uint32_t)st.f_type) {
	case FILESYSTEM_EXT4:
		if (ioctl(fd, EXT4_GET_UUID, &ext4) == 0)
			memcpy(ret_uuid, ext4.uuid, 16);
		break;
	case FILESYSTEM_XFS:
		if (ioctl(fd, XFS_GET_GEOMETRY_V1, &xfs) == 0)
			memcpy(ret_uuid, xfs.uuid, 16);
		break;
	case FILESYSTEM_BTRFS: {
		cleanup_free struct btrfs_ioctl_fs_info_args *btrfs = calloc(1, sizeof(*btrfs));

		if (!btrfs)
			return -ENOMEM;
		if (ioctl(fd, BTRFS_IOC_FS_INFO, btrfs) == 0)
			memcpy(ret_uuid, btrfs->fsid, 16);
		break;
	}
	default:
		break;
	}
	if (!is_zero(ret_uuid))
		return 0;
	if (sim_fs_uuid(fd, ret_uuid))
		return 0;
	/* A file system without a UUID: what statfs tells it apart by. It may change at the next mount;
	 * then the file system counts as not mounted, which holds the domain and loses nothing. */
	if (st.f_fsid.__val[0] == 0 && st.f_fsid.__val[1] == 0)
		return -EOPNOTSUPP;
	memcpy(ret_uuid, "fsid\0\0\0", 8);
	memcpy(ret_uuid + 8, &st.f_fsid, 8);
	return 0;
}

static int64_t stamp_ns(const struct statx_timestamp *t)
{
	int64_t ns;

	/* Times beyond year 2262 do not fit: the end of the range compares the same way. */
	if (__builtin_mul_overflow(t->tv_sec, INT64_C(1000000000), &ns) ||
	    __builtin_add_overflow(ns, (int64_t)t->tv_nsec, &ns))
		return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

int identity_times(int fd, int64_t *ret_btime_ns, int64_t *ret_ctime_ns, uint64_t *ret_ino,
		   uint32_t *ret_nlink)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &sx) < 0)
		return -errno;
	if (!S_ISREG(sx.stx_mode))
		return -EINVAL;
	*ret_btime_ns = sx.stx_mask & STATX_BTIME ? stamp_ns(&sx.stx_btime) : 0;
	*ret_ctime_ns = stamp_ns(&sx.stx_ctime);
	if (ret_ino)
		*ret_ino = sx.stx_ino;
	if (ret_nlink)
		*ret_nlink = sx.stx_nlink;
	return 0;
}

int identity_of(int fd, const char *const *trust_fs, struct pool_file *ret)
{
	union {
		struct file_handle h;
		uint8_t bytes[sizeof(struct file_handle) + CTL_HANDLE_MAX];
	} handle;
	int64_t type;
	char name[32];
	int mount_id, r;

	r = identity_times(fd, &ret->btime_ns, &ret->ctime_ns, &ret->ino, NULL);
	if (r < 0)
		return r;
	type = filesystem_type(fd, name, sizeof(name));
	if (type < 0)
		return (int)type;
	if (!filesystem_supported(type, trust_fs))
		return -EOPNOTSUPP;
	r = identity_fs_uuid(fd, ret->fs_uuid);
	if (r < 0)
		return r;
	memset(&handle, 0, sizeof(handle));
	handle.h.handle_bytes = CTL_HANDLE_MAX;
	if (name_to_handle_at(fd, "", &handle.h, &mount_id, AT_EMPTY_PATH) < 0)
		return errno == EOVERFLOW ? -EOPNOTSUPP : -errno;
	ret->handle_type = (uint32_t)handle.h.handle_type;
	ret->handle_bytes = handle.h.handle_bytes;
	memset(ret->handle, 0, sizeof(ret->handle));
	memcpy(ret->handle, handle.bytes + offsetof(struct file_handle, f_handle),
	       handle.h.handle_bytes);
	/* User xattrs: an absent one must be told apart from no support for any. */
	if (fgetxattr(fd, "user.pmemlogd.owner", NULL, 0) < 0 && errno != ENODATA)
		return errno == ENOTSUP ? -EOPNOTSUPP : -errno;
	return 0;
}

int identity_open(const struct pool_file *f, int flags, int *ret_fd)
{
	union {
		struct file_handle h;
		uint8_t bytes[sizeof(struct file_handle) + CTL_HANDLE_MAX];
	} handle;
	cleanup_close int mount_fd = -1;
	cleanup_close int fd = -1;
	struct stat st;
	int r;

	if (f->handle_bytes == 0 || f->handle_bytes > CTL_HANDLE_MAX)
		return -EBADMSG;
	r = mount_find(f->fs_uuid, &mount_fd);
	if (r < 0)
		return r;
	if (r != MOUNT_OK)
		return IDENTITY_NOT_MOUNTED;
	memset(&handle, 0, sizeof(handle));
	handle.h.handle_bytes = f->handle_bytes;
	handle.h.handle_type = (int)f->handle_type;
	memcpy(handle.bytes + offsetof(struct file_handle, f_handle), f->handle, f->handle_bytes);
	/* NONBLOCK: should the handle name a FIFO by damage, this does not hang. */
	fd = open_by_handle_at(mount_fd, &handle.h,
			       flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && errno != ESTALE && errno != ENOENT)
		return -errno;
	if (fd < 0) {
		/* A file system that has shut down says the same of files that are there. One that still
		 * syncs told the truth, and the unlink is durable now. */
		if (syncfs(mount_fd) < 0 || fsync(mount_fd) < 0)
			return -errno;
		return IDENTITY_STALE;
	}
	if (fstat(fd, &st) < 0)
		return -errno;
	/* ext4 and xfs keep an inode's generation in the handle, so another kind of file under it is
	 * a reused inode at most. nlink 0: somebody else holds the last of an unlinked file open. */
	if (!S_ISREG(st.st_mode) || st.st_nlink == 0)
		return IDENTITY_STALE;
	*ret_fd = take_fd(fd);
	return IDENTITY_OK;
}
