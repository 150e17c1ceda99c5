/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/sys.h"

int handle_of(int dir, const char *path, int flags, struct handle *ret)
{
	struct {
		struct file_handle head; /* ends with the bytes, zero of them */
		uint8_t bytes[CTL_HANDLE_MAX];
	} h = { .head.handle_bytes = CTL_HANDLE_MAX };
	int mount;
	long r = sys_call5(SYS_name_to_handle_at, dir, path, &h, &mount, flags);

	if (r < 0)
		return (int)r;
	if (h.head.handle_bytes > CTL_HANDLE_MAX)
		return -EOVERFLOW;
	ret->type = (uint32_t)h.head.handle_type;
	ret->length = h.head.handle_bytes;
	memcpy(ret->bytes, h.bytes, sizeof(ret->bytes));
	return 0;
}

const char *handle_link(int fd, char ret[static 32])
{
	char digits[12];
	size_t at = sizeof("/proc/self/fd/") - 1;
	unsigned i = 0, v = (unsigned)fd;

	memcpy(ret, "/proc/self/fd/", at);
	do {
		digits[i++] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	while (i)
		ret[at++] = digits[--i];
	ret[at] = '\0';
	return ret;
}

long handle_path(int fd, char *ret, size_t n)
{
	char link[32];
	long r = sys_call3(SYS_readlink, handle_link(fd, link), ret, n - 1);

	if (r < 0)
		return r;
	if ((size_t)r >= n - 1)
		return -ENAMETOOLONG;
	ret[r] = '\0';
	return r;
}
