/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/others.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

#include "base/sys.h"
#include "client/preload/desc.h"
#include "client/preload/folder.h"
#include "client/preload/handle.h"

static uint32_t mappings; /* atomic, relaxed: 1 once there was one; a mapping orders memory */

struct look {
	uint64_t dev, ino;
	int except;
	enum others_kind kind;
};

/* In the table, and its calls leave records, or hold the token, or ask for one each time: no stranger. */
static bool known(const struct desc *d)
{
	uint32_t kind = atomic_load_acquire(&d->kind);

	if (kind != DESC_TOKEN)
		return kind == DESC_OURS || kind == DESC_ENTRY;
	return atomic_load_relaxed(&d->token) >= 0 || !atomic_load_relaxed(&d->stay);
}

/* Inherited, made before our constructor ran, or from a message (Linux before 6.8): no call of ours makes one. */
static bool is_ring(int fd, const struct stat *st)
{
	static const char name[] = "anon_inode:[io_uring]";
	char link[32], target[sizeof(name)] = "";

	/* What has no name of its own is of no type, either. */
	return (st->st_mode & S_IFMT) == 0 &&
	       sys_call4(SYS_readlinkat, AT_FDCWD, handle_link(fd, link), target, sizeof(target)) ==
		       sizeof(name) - 1 &&
	       memcmp(target, name, sizeof(name) - 1) == 0;
}

static bool fits(int fd, const struct look *l)
{
	const struct desc *d = desc_peek(fd);
	bool ours = d && atomic_load_acquire(&d->kind) == DESC_OURS;
	struct stat st;
	long flags;

	if (fd == l->except || ours != (l->kind == OTHERS_KEPT))
		return false;
	if (sys_call2(SYS_fstat, fd, &st) < 0)
		return false;
	if (l->kind >= OTHERS_RING && is_ring(fd, &st))
		return true;
	if (l->kind == OTHERS_RING || st.st_dev != l->dev || st.st_ino != l->ino)
		return false;
	flags = sys_call2(SYS_fcntl, fd, F_GETFL);
	if (flags < 0 || (flags & O_PATH))
		return false;
	if (l->kind != OTHERS_WRITER && l->kind != OTHERS_PAST)
		return true;
	return (flags & O_ACCMODE) != O_RDONLY && !(d && known(d) && d->ino == l->ino);
}

/* -1 for what is no number. */
static int number_of(const char *name)
{
	int n = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9' || n > DESC_FDS)
			return -1;
		n = n * 10 + (*name - '0');
	}
	return n;
}

/* No descriptor left for the folder, or no /proc: then nearly every number below the limit is in use. */
static int find_by_number(const struct look *l)
{
	struct rlimit limit = { 1024, 1024 };
	unsigned end = desc_high();

	(void)sys_call4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
	if (limit.rlim_cur > end)
		end = limit.rlim_cur < DESC_FDS ? (unsigned)limit.rlim_cur : DESC_FDS;
	for (unsigned fd = 0; fd < end; fd++)
		if (fits((int)fd, l))
			return (int)fd;
	return -1;
}

int others_find(uint64_t dev, uint64_t ino, int except, enum others_kind kind)
{
	const struct look l = { dev, ino, except, kind };
	char buffer[2048] __attribute__((aligned(8)));
	long folder = sys_call4(SYS_openat, AT_FDCWD, "/proc/self/fd",
				O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	int found = -1;
	long bytes;

	if (folder < 0)
		return find_by_number(&l);
	while (found < 0 &&
	       (bytes = sys_call3(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0) {
		for (long at = 0; at < bytes && found < 0;) {
			const struct linux_dirent64 *e = (const void *)(buffer + at);
			int fd = number_of(e->d_name);

			at += e->d_reclen;
			if (fd >= 0 && fd != folder && fits(fd, &l))
				found = fd;
		}
	}
	(void)sys_call1(SYS_close, folder);
	return found;
}

void others_note_mapping(void)
{
	/* Relaxed, from 0 to 1: the program orders its mapping and its next open, as it does its calls. */
	if (!atomic_load_relaxed(&mappings))
		atomic_store_relaxed(&mappings, 1);
}

struct map_look {
	uint64_t dev, ino;
	uint64_t start, end; /* addresses; overlapping ones count */
	bool writable;
};

static uint64_t number(const char **p, unsigned base)
{
	uint64_t n = 0;

	for (;; (*p)++) {
		unsigned c = (unsigned char)**p;
		unsigned digit = c - '0' < 10 ? c - '0' : c - 'a' < 6 ? c - 'a' + 10 : 99;

		if (digit >= base)
			return n;
		n = n * base + digit;
	}
}

/* "7f0000000000-7f0000001000 rw-s 00000000 08:01 1234   /path" */
static bool line_fits(const char *line, const struct map_look *l)
{
	uint64_t start = number(&line, 16), end, dev, ino;
	const char *modes;

	if (*line++ != '-')
		return false;
	end = number(&line, 16);
	modes = line + 1;
	if (*line != ' ' || strlen(line) < 8 || modes[3] != 's' || (l->writable && modes[1] != 'w'))
		return false;
	line += 6;
	(void)number(&line, 16);
	if (*line++ != ' ')
		return false;
	dev = number(&line, 16);
	if (*line++ != ':')
		return false;
	dev = makedev((unsigned)dev, (unsigned)number(&line, 16));
	if (*line++ != ' ')
		return false;
	ino = number(&line, 10);
	return dev == l->dev && ino == l->ino && start < l->end && l->start < end;
}

/* Any line that fits? True, too, where the list cannot be read: not ruled out. */
static bool look_at_mappings(const struct map_look *l)
{
	char buffer[2048];
	size_t have = 0;
	bool found = false;
	long fd = sys_call4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	long n;

	if (fd < 0)
		return true;
	while (!found &&
	       (n = sys_call3(SYS_read, fd, buffer + have, sizeof(buffer) - 1 - have)) > 0) {
		char *line = buffer, *end;

		have += (size_t)n;
		buffer[have] = '\0';
		while (!found && (end = strchr(line, '\n'))) {
			*end = '\0';
			found = line_fits(line, l);
			line = end + 1;
		}
		have -= (size_t)(line - buffer);
		memmove(buffer, line, have);
		/* A path longer than the buffer: what counts stands before it. */
		if (have == sizeof(buffer) - 1) {
			found = line_fits(buffer, l);
			have = 0;
		}
	}
	(void)sys_call1(SYS_close, fd);
	return found;
}

bool others_mapped(uint64_t dev, uint64_t ino)
{
	const struct map_look l = { dev, ino, 0, UINT64_MAX, true };

	return unlikely(atomic_load_relaxed(&mappings)) && look_at_mappings(&l);
}

bool others_mapped_at(uint64_t dev, uint64_t ino, const void *addr, size_t n)
{
	uint64_t start = (uint64_t)(uintptr_t)addr;
	const struct map_look l = { dev, ino, start, start + n, false };

	return look_at_mappings(&l);
}
