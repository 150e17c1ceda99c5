/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sys.h"

#define EXTENTS 32u /* a call; picked: what fits on a small stack */

bool pages_unwritten(int fd)
{
	/* the header ends in an array without a length */
	uint64_t room[(sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)) / 8];
	struct fiemap *ask = (struct fiemap *)room;
	struct stat st;
	uint64_t at = 0;

	if (sys_call2(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	while (at < (uint64_t)st.st_size) {
		const struct fiemap_extent *last;

		memset(ask, 0, sizeof(*ask));
		ask->fm_start = at;
		ask->fm_length = (uint64_t)st.st_size - at;
		ask->fm_extent_count = EXTENTS;
		if (sys_call3(SYS_ioctl, fd, FS_IOC_FIEMAP, ask) < 0 ||
		    ask->fm_mapped_extents == 0 || ask->fm_mapped_extents > EXTENTS)
			return false;
		for (uint32_t i = 0; i < ask->fm_mapped_extents; i++)
			if (ask->fm_extents[i].fe_flags & FIEMAP_EXTENT_UNWRITTEN)
				return true;
		last = &ask->fm_extents[ask->fm_mapped_extents - 1];
		if (last->fe_flags & FIEMAP_EXTENT_LAST || last->fe_length == 0)
			return false;
		at = last->fe_logical + last->fe_length;
	}
	return false;
}

int pages_drop(struct session *s, int fd)
{
	int rc;

	/* Dirty pages are not dropped. */
	do {
		rc = s->io->fdatasync(fd);
	} while (rc == -EINTR);
	if (rc < 0)
		return rc;
	(void)sys_call4(SYS_fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}
