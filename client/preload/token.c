/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tokens: a shared flock on bypass/MAJOR:MINOR-INO says "this file is written without a session".
 * The daemon stamps its mark first, then tries the token and keeps it until the entry is published; we
 * take the token first and look for mark and entry then: one of the two sees the other, and a mark
 * without an entry beside our token never gets one that says `lane`.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

#include "abi/mark.h"
#include "base/atomic.h"
#include "base/sys.h"
#include "client/preload/attach.h"
#include "client/preload/config.h"
#include "client/preload/handle.h"
#include "client/preload/takeover.h"

#define TRIES  500     /* the daemon holds a token until it has published the entry: microseconds */
#define TRY_NS 2000000 /* 2 ms */

/* Appends a decimal number. snprintf takes locks in some libraries and is no async-signal-safe call. */
static char *put_number(char *p, uint64_t n)
{
	char digits[20];
	unsigned i = 0;

	do {
		digits[i++] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	while (i)
		*p++ = digits[--i];
	return p;
}

static void token_path(char path[static 192], uint64_t dev, uint64_t ino)
{
	size_t n = strlen(config.folder);
	char *p = path;

	memcpy(p, config.folder, n);
	p += n;
	memcpy(p, "/bypass/", 8);
	p = put_number(p + 8, major(dev));
	*p++ = ':';
	p = put_number(p, minor(dev));
	*p++ = '-';
	p = put_number(p, ino);
	*p = '\0';
}

int token_take(uint64_t dev, uint64_t ino)
{
	const struct timespec pause = { 0, TRY_NS };
	char path[192]; /* folder 108, three numbers */
	struct stat st;
	long fd, r;

	token_path(path, dev, ino);
	for (int i = 0;; i++) {
		/* Without O_CREAT first: in a sticky folder the kernel may refuse O_CREAT on somebody
		 * else's file. */
		fd = sys_call4(SYS_openat, AT_FDCWD, path,
			       O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
		if (fd != -ENOENT)
			break;
		fd = sys_call4(SYS_openat, AT_FDCWD, path,
			       O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (fd != -EEXIST || i == TRIES)
			break;
	}
	if (fd < 0)
		return (int)fd;
	r = sys_call2(SYS_fstat, fd, &st);
	if (r == 0 && !S_ISREG(st.st_mode))
		r = -EINVAL;
	for (int i = 0; r == 0 && i < TRIES; i++) {
		r = sys_call2(SYS_flock, fd, LOCK_SH | LOCK_NB);
		if (r != -EAGAIN)
			break;
		(void)sys_call2(SYS_nanosleep, &pause, NULL);
		r = i + 1 < TRIES ? 0 : -EAGAIN;
	}
	if (r < 0) {
		(void)sys_call1(SYS_close, fd);
		return (int)r;
	}
	return desc_hide((int)fd);
}

/* 0, -ENODATA (or another file system's way to say so), -EBADMSG, or another negative errno. */
static int mark_get(int fd, struct mark *ret)
{
	char link[32];
	long n = sys_call4(SYS_fgetxattr, fd, MARK_NAME, ret, sizeof(*ret));

	if (n == -EBADF) /* O_PATH */
		n = sys_call4(SYS_getxattr, handle_link(fd, link), MARK_NAME, ret, sizeof(*ret));
	if (n < 0)
		return (int)n;
	return n == sizeof(*ret) && memcmp(ret->magic, MARK_MAGIC, sizeof(ret->magic)) == 0
		       ? 0
		       : -EBADMSG;
}

enum mark_look mark_look(int fd)
{
	struct handle h;
	struct mark m;
	int r = mark_get(fd, &m);

	if (r == -ENODATA || r == -EOPNOTSUPP)
		return MARK_ABSENT;
	if (r < 0 || handle_of(fd, "", AT_EMPTY_PATH, &h) < 0)
		return MARK_UNSURE;
	return m.handle_type == h.type && m.handle_bytes == h.length &&
			       memcmp(m.handle, h.bytes, h.length) == 0
		       ? MARK_THERE
		       : MARK_ABSENT;
}

bool mark_harmless(int fd)
{
	const struct session *s;
	struct mark m;
	int session = attach_newest();

	/* Looked at anew: an attach may just have ended the life that it was of. */
	if (mark_look(fd) == MARK_ABSENT)
		return true;
	if (session < 0 || mark_get(fd, &m) < 0)
		return false;
	/* Relaxed: our own process's bit. While we hold a slot nobody closes the control file. */
	if (!(atomic_load_relaxed(&page->slots) & 1u << session))
		return false;
	s = attach_session_at((uint32_t)session);
	return m.lane == s->head_copy.lane &&
	       memcmp(m.pool_uuid, s->head_copy.pool_uuid, sizeof(m.pool_uuid)) == 0;
}
