/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ways to write a file past its descriptor: a shared mapping, a stream, the descriptor in the hands of
 * another process. Bypass, for good. */
#include "client/preload/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "client/preload/call.h"
#include "client/preload/handle.h"
#include "client/preload/others.h"
#include "client/preload/passed.h"

static long leave(struct call *c, uint32_t reason)
{
	/* Not registered: it never will be, and the token stays with us until the process ends. */
	if (!atomic_xchg_seq(&c->d->stay, 1))
		(void)atomic_add_seq(&c->d->refs, 1);
	return c->s ? file_enter_bypass(c->s, &c->who, &c->r, reason) : 0;
}

static long op_mapped(struct call *c, void *arg)
{
	(void)arg;
	return c->d ? leave(c, BYPASS_MAPPED) : 0;
}

static long op_stream(struct call *c, void *arg)
{
	(void)arg;
	return c->d ? leave(c, BYPASS_STREAM) : 0;
}

/*
 * Files of ours that were mapped shared for reading: mprotect may make such a mapping writable later on. No
 * address is kept, since mappings go where we do not see it.
 */
#define READABLE 64
static struct {
	uint64_t dev, ino; /* atomic, relaxed: written before `readable` counts them */
} readable_files[READABLE];
static uint32_t readable; /* atomic: how many are whole */
static uint32_t claimed;  /* atomic: how many have been given out */

/* False: no room, so it must not stay in the lane. */
static bool note_readable(int fd)
{
	const struct desc *d = desc_peek(fd);
	uint32_t n = atomic_load_seq(&readable), next = n;

	if (!d)
		return true;
	/* Relaxed, here and in leave_mapped: a place is filled before `readable` counts it (seq_cst), and
	 * stays as it is. */
	for (uint32_t i = 0; i < n; i++)
		if (atomic_load_relaxed(&readable_files[i].ino) == d->ino &&
		    atomic_load_relaxed(&readable_files[i].dev) == d->dev)
			return true;
	/* One thread at a time fills the next place; the others go to the disk: nobody does this often. */
	if (n >= READABLE || !atomic_cas_seq(&claimed, &next, n + 1))
		return false;
	atomic_store_relaxed(&readable_files[n].dev, d->dev);
	atomic_store_relaxed(&readable_files[n].ino, d->ino);
	atomic_store_seq(&readable, n + 1);
	return true;
}

/* A number that leads to the file, or -1. */
static int number_of(uint64_t dev, uint64_t ino)
{
	unsigned end = desc_high();

	for (unsigned fd = 0; fd < end; fd++) {
		const struct desc *d = desc_peek((int)fd);

		if (d && atomic_load_acquire(&d->kind) != DESC_OURS && d->ino == ino &&
		    d->dev == dev)
			return (int)fd;
	}
	return -1;
}

/* -1 with errno: a file that is not open any more cannot be taken out of the lane, so its mapping stays for
 * reading, as that of one opened for reading does. */
static int leave_mapped(const void *addr, size_t n)
{
	uint32_t end = atomic_load_seq(&readable);

	for (uint32_t i = 0; i < end; i++) {
		uint64_t dev = atomic_load_relaxed(&readable_files[i].dev);
		uint64_t ino = atomic_load_relaxed(&readable_files[i].ino);
		int fd;

		if (!others_mapped_at(dev, ino, addr, n))
			continue;
		fd = number_of(dev, ino);
		if (fd < 0)
			return (int)errno_result(-EACCES);
		if (call_make(fd, op_mapped, NULL) < 0)
			return -1;
	}
	return 0;
}

static int shim_mprotect(void *addr, size_t n, int prot)
{
	if (unlikely(atomic_load_relaxed(&readable)) && (prot & PROT_WRITE) &&
	    leave_mapped(addr, n) < 0)
		return -1;
	return real.mprotect(addr, n, prot);
}

static int shim_pkey_mprotect(void *addr, size_t n, int prot, int key)
{
	if (unlikely(atomic_load_relaxed(&readable)) && (prot & PROT_WRITE) &&
	    leave_mapped(addr, n) < 0)
		return -1;
	return real.pkey_mprotect(addr, n, prot, key);
}

static __attribute__((noinline)) void *map_known(void *addr, size_t n, int prot, int flags, int fd,
						 off_t offset)
{
	/* Stores to a DAX mapping would need no call of ours at all; programs probe and fall back. */
	if ((flags & MAP_TYPE) == MAP_SHARED_VALIDATE && (flags & MAP_SYNC)) {
		errno = EOPNOTSUPP;
		return MAP_FAILED;
	}
	if ((flags & MAP_TYPE) != MAP_PRIVATE && ((prot & PROT_WRITE) || !note_readable(fd)) &&
	    call_make(fd, op_mapped, NULL) < 0)
		return MAP_FAILED;
	return real.mmap(addr, n, prot, flags, fd, offset);
}

static void *shim_mmap(void *addr, size_t n, int prot, int flags, int fd, off_t offset)
{
	if (likely(!desc_table || (flags & MAP_ANONYMOUS)))
		return real.mmap(addr, n, prot, flags, fd, offset);
	if (unlikely(desc_peek(fd) != NULL))
		return map_known(addr, n, prot, flags, fd, offset);
	/* It may get a rule's name later on. */
	if ((flags & MAP_TYPE) != MAP_PRIVATE && (prot & PROT_WRITE))
		others_note_mapping();
	return real.mmap(addr, n, prot, flags, fd, offset);
}

/*
 * The stream writes past us, so its descriptor gets the sync flags that the program asked for at open.
 * O_DSYNC and O_SYNC cannot be set later: the file is opened anew on the same number (which ends record
 * locks of the program on it, as any close does).
 */
static long give_flags_back(int fd, int asked)
{
	char link[32];
	long flags, position, again;

	if (!(asked & (O_DIRECT | O_DSYNC | O_SYNC)))
		return 0;
	flags = sys_call2(SYS_fcntl, fd, F_GETFL);
	if (flags < 0)
		return flags;
	if ((flags & asked & (O_DSYNC | O_SYNC)) == (asked & (O_DSYNC | O_SYNC)))
		return sys_call3(SYS_fcntl, fd, F_SETFL, flags | (asked & O_DIRECT));
	position = sys_call3(SYS_lseek, fd, 0, SEEK_CUR);
	again = sys_call4(SYS_openat, AT_FDCWD, handle_link(fd, link),
			  flags | (asked & (O_DIRECT | O_DSYNC | O_SYNC)) | O_CLOEXEC, 0);
	if (again < 0)
		return again;
	(void)sys_call3(SYS_lseek, again, position, SEEK_SET);
	flags = sys_call3(SYS_dup3, again, fd, O_CLOEXEC);
	(void)sys_call1(SYS_close, again);
	return flags < 0 ? flags : 0;
}

int passed_on(int fd)
{
	struct desc *d = desc_peek(fd) ? desc_get(fd) : NULL;
	int r;

	if (!d)
		return 0;
	r = (int)call_make(fd, op_stream, NULL);
	if (r == 0)
		r = (int)errno_result(give_flags_back(fd, atomic_load_relaxed(&d->asked)));
	desc_put(d);
	return r < 0 ? -1 : 0;
}

int passed_by(int fd)
{
	return (int)call_make(fd, op_stream, NULL);
}

FILE *map_fdopen(int fd, const char *mode)
{
	struct desc *d;
	FILE *f;

	if (!real.fdopen) {
		errno = ENOSYS;
		return NULL;
	}
	d = likely(!desc_peek(fd)) ? NULL : desc_get(fd);
	if (!d)
		return real.fdopen(fd, mode);
	if (call_make(fd, op_stream, NULL) < 0) {
		desc_put(d);
		return NULL;
	}
	(void)give_flags_back(fd, atomic_load_relaxed(&d->asked));
	f = real.fdopen(fd, mode);
	/* fclose closes the descriptor where we do not see it: it leaves the table now. */
	if (f) {
		if (desc_inherits(fd))
			(void)sys_call3(SYS_fcntl, fd, F_SETFD, 0);
		desc_clear(fd);
	}
	desc_put(d);
	return f;
}

/* Whoever gets the descriptor writes without a record, and a replay would put ours over what he wrote. */
static int pass_message(const struct msghdr *m)
{
	struct msghdr copy = { .msg_control = m->msg_control, .msg_controllen = m->msg_controllen };

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&copy); c; c = CMSG_NXTHDR(&copy, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
		    c->cmsg_len < CMSG_LEN(0))
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (passed_on(fd) < 0)
				return -1;
		}
	}
	return 0;
}

/* Nearly no message has a control part. */
static bool may_pass(const struct msghdr *m)
{
	return unlikely(desc_table && m && m->msg_control && m->msg_controllen);
}

static ssize_t shim_sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (may_pass(m) && pass_message(m) < 0)
		return -1;
	return real.sendmsg(fd, m, flags);
}

static int shim_sendmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags)
{
	for (unsigned int i = 0; desc_table && m && i < n; i++)
		if (may_pass(&m[i].msg_hdr) && pass_message(&m[i].msg_hdr) < 0)
			return -1;
	return real.sendmmsg(fd, m, n, flags);
}

#define FAMILY_MAP
#include "client/preload/export.h"
