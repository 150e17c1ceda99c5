/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Without a daemon a session can be joined while another one of the domain lives: what it left in
 * the lane is being continued. With none alive the lane is a matter for recovery, never for us.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "client/preload/attach.h"
#include "client/preload/config.h"
#include "client/preload/desc.h"
#include "client/preload/folder.h"
#include "pool/slot.h"

/* Ours, open, and somebody is in it? Then the lane's path. */
static int judge(int fd, char ret_lane[512])
{
	struct control c;
	struct ctl_head head;
	int r = control_map(&c, fd, &head);

	if (r < 0)
		return r;
	if (head.uid != (uint32_t)sys_call0(SYS_geteuid) || strcmp(head.domain, config.domain) != 0)
		r = -ENOENT;
	/* Acquire: pairs with the daemon's store of the state. */
	else if (atomic_load_acquire(&c.head->state) != CTL_OPEN || !slot_any_live(&c))
		r = -ENOENT;
	else
		memcpy(ret_lane, head.lane_path, sizeof(head.lane_path));
	control_unmap(&c, false);
	return r;
}

static int try_control(int folder, const char *name, int *ret_control, int *ret_lane)
{
	char lane[sizeof(((struct ctl_head *)NULL)->lane_path)];
	struct stat st;
	long fd = sys_call4(SYS_openat, folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
			    0);
	long lane_fd;
	int r;

	if (fd < 0)
		return (int)fd;
	r = (int)sys_call2(SYS_fstat, fd, &st);
	if (r == 0 && (!S_ISREG(st.st_mode) || st.st_uid != (uid_t)sys_call0(SYS_geteuid)))
		r = -ENOENT;
	if (r == 0)
		r = judge((int)fd, lane);
	if (r < 0) {
		(void)sys_call1(SYS_close, fd);
		return r;
	}
	lane_fd = sys_call4(SYS_openat, AT_FDCWD, lane,
			    O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (lane_fd < 0) {
		(void)sys_call1(SYS_close, fd);
		return (int)lane_fd;
	}
	*ret_control = (int)fd;
	*ret_lane = (int)lane_fd;
	return 0;
}

int attach_find_control(int *ret_control, int *ret_lane)
{
	char path[sizeof(config.folder) + 16];
	char buffer[1024];
	size_t n = strlen(config.folder);
	long folder, bytes;
	int r = -ENOENT;

	/* A process that has one may not open and close it: that would drop its slot. */
	if (attach_newest() >= 0)
		return -ENOENT;
	memcpy(path, config.folder, n);
	memcpy(path + n, "/control", sizeof("/control"));
	folder = sys_call4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (folder < 0)
		return (int)folder;
	while (r != 0 && (bytes = sys_call3(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0) {
		for (long at = 0; at < bytes && r != 0;) {
			const struct linux_dirent64 *e = (const void *)(buffer + at);

			at += e->d_reclen;
			if (e->d_name[0] != '.')
				r = try_control((int)folder, e->d_name, ret_control, ret_lane);
		}
	}
	(void)sys_call1(SYS_close, folder);
	return r;
}
