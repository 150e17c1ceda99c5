/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* FUSE_STATX by hand: struct layout as in the kernel's interface, 7.39. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <linux/fuse.h>
#include <linux/stat.h>

#include "tests/support/losefs/node.h"
#include "tests/support/losefs/ops.h"

#define OPCODE 52u

struct sx_time {
	int64_t sec;
	uint32_t nsec;
	int32_t reserved;
};

struct sx_answer {
	struct fuse_out_header head;
	uint64_t valid;
	uint32_t valid_nsec, flags;
	uint64_t spare[2];
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks, attributes_mask;
	struct sx_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare2[14];
};
_Static_assert(sizeof(struct sx_answer) == 16 + 32 + 256, "the kernel's layout");

static struct sx_time sx_time(struct timespec t)
{
	return (struct sx_time){ .sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec };
}

bool ops_statx(int fd, const void *buf, size_t n)
{
	struct fuse_in_header in;
	struct sx_answer out = { 0 };
	const struct node *node;
	struct stat st;

	if (n < sizeof(in))
		return false;
	memcpy(&in, buf, sizeof(in));
	if (in.opcode != OPCODE)
		return false;
	out.head = (struct fuse_out_header){ .len = sizeof(out), .unique = in.unique };
	node = node_get(in.nodeid);
	if (ops_state.dead || !node) {
		out.head.len = sizeof(out.head);
		out.head.error = ops_state.dead ? -EIO : -ESTALE;
	} else {
		node_stat(node, &st);
		out.mask = STATX_BASIC_STATS | STATX_BTIME;
		out.blksize = 4096;
		out.nlink = (uint32_t)st.st_nlink;
		out.uid = st.st_uid;
		out.gid = st.st_gid;
		out.mode = (uint16_t)st.st_mode;
		out.ino = st.st_ino;
		out.size = (uint64_t)st.st_size;
		out.blocks = (uint64_t)st.st_blocks;
		out.atime = sx_time(st.st_atim);
		out.mtime = sx_time(st.st_mtim);
		out.ctime = sx_time(st.st_ctim);
		out.btime = sx_time(node->btime);
	}
	/* Fails when the caller has been killed: nobody waits for it. */
	if (write(fd, &out, out.head.len) < 0)
		return true;
	return true;
}
