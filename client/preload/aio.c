/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Asynchronous writes pass us by: io_submit takes a rule's file into bypass first; io_uring, whose
 * requests are written straight into shared memory, is not there for a program with rules (MariaDB then
 * takes libaio, for its data files).
 */

#include <aio.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <string.h>

#include "base/sys.h"
#include "client/preload/call.h"
#include "client/preload/passed.h"

static long op_bypass(struct call *c, void *arg)
{
	(void)arg;
	if (!c->d)
		return 0;
	atomic_store_relaxed(&c->d->stay, 1);
	return c->s ? file_enter_bypass(c->s, &c->who, &c->r, BYPASS_STREAM) : 0;
}

/* POSIX AIO: threads of libc write for the program. */
static int shim_aio_write(struct aiocb *request)
{
	if (unlikely(!real.aio_write)) {
		errno = ENOSYS;
		return -1;
	}
	if (request && unlikely(desc_peek(request->aio_fildes) != NULL) &&
	    passed_on(request->aio_fildes) < 0)
		return -1;
	return real.aio_write(request);
}

static int shim_lio_listio(int mode, struct aiocb *const *list, int n, struct sigevent *event)
{
	if (unlikely(!real.lio_listio)) {
		errno = ENOSYS;
		return -1;
	}
	for (int i = 0; desc_table && list && i < n; i++)
		if (list[i] && list[i]->aio_lio_opcode == LIO_WRITE &&
		    passed_on(list[i]->aio_fildes) < 0)
			return -1;
	return real.lio_listio(mode, list, n, event);
}

/* libaio's convention: a negative errno is returned, errno stays. */
static int shim_io_submit(void *context, long n, struct iocb **requests)
{
	int keep = errno;

	for (long i = 0; desc_table && i < n; i++) {
		int fd = requests[i] ? (int)requests[i]->aio_fildes : -1;
		const struct desc *d = desc_peek(fd);
		int asked = d ? atomic_load_relaxed(&d->asked) : 0;

		if (!d)
			continue;
		if (call_make(fd, op_bypass, NULL) < 0) {
			int r = -errno;

			errno = keep;
			return i ? (int)i : r;
		}
		requests[i]->aio_rw_flags |= call_sync_flags(asked);
	}
	return (int)sys_call3(SYS_io_submit, context, n, requests);
}

typedef int uring_setup(unsigned entries, void *params);
typedef int uring_init(unsigned entries, void *ring, unsigned flags);
typedef int uring_init_params(unsigned entries, void *ring, void *params);
typedef int uring_init_mem(unsigned entries, void *ring, void *params, void *buf, size_t n);

/* Looked up on use: liburing may have been loaded after us, and is in few programs. */
static bool next(const char *symbol, void *ret)
{
	void *found = desc_table ? NULL : real_lookup(symbol);

	memcpy(ret, &found, sizeof(found));
	return found != NULL;
}

static int shim_io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
	uring_init *f;

	return next("io_uring_queue_init", &f) ? f(entries, ring, flags) : -ENOSYS;
}

static int shim_io_uring_queue_init_params(unsigned entries, void *ring, void *params)
{
	uring_init_params *f;

	return next("io_uring_queue_init_params", &f) ? f(entries, ring, params) : -ENOSYS;
}

static int shim_io_uring_queue_init_mem(unsigned entries, void *ring, void *params, void *buf,
					size_t n)
{
	uring_init_mem *f;

	return next("io_uring_queue_init_mem", &f) ? f(entries, ring, params, buf, n) : -ENOSYS;
}

/* liburing's own door to the system call, for programs that set their rings up themselves. */
static int shim_io_uring_setup(unsigned entries, void *params)
{
	uring_setup *f;

	return next("io_uring_setup", &f) ? f(entries, params) : -ENOSYS;
}

#define FAMILY_AIO
#include "client/preload/export.h"
