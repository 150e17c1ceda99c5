/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cases of `doors`: io_uring. What the kernel writes for a ring leaves no record: a program with rules gets none
 * (`rings`), and the files of one that has a ring all the same are in bypass (`ring-unseen`, `ring-inherited`).
 */
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/sys.h"
#include "tests/preload/say.h"

#define INHERITED 50 /* the runner has made a ring there */

/* In no library that this program has; the preload library brings them. */
extern int io_uring_queue_init(unsigned entries, void *ring, unsigned flags) __attribute__((weak));
extern int io_uring_queue_init_params(unsigned entries, void *ring, void *params)
	__attribute__((weak));
extern int io_uring_queue_init_mem(unsigned entries, void *ring, void *params, void *buffer,
				   size_t n) __attribute__((weak));
extern int io_uring_setup(unsigned entries, void *params) __attribute__((weak));

static int log_file(int flags)
{
	int fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC | flags, 0640);

	MUST(fd >= 0);
	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	return fd;
}

/* Programs fall back. RULED=no: no rule names this one, and the library lets it be. liburing is there both times. */
static void rings(void)
{
	static char memory[1 << 16] __attribute__((aligned(4096)));
	struct io_uring_params p = { 0 };
	const char *ruled = getenv("RULED");
	char ring[1024] = "";
	int fd = log_file(0), made;

	made = (int)syscall(SYS_io_uring_setup, 4, &p);
	if (!ruled) {
		MUST(made >= 0 || errno == ENOSYS || errno == EPERM);
	} else if (strcmp(ruled, "yes") == 0) {
		MUST(made == -1 && errno == ENOSYS);
		MUST(io_uring_queue_init(4, ring, 0) == -ENOSYS);
		MUST(io_uring_queue_init_params(4, ring, &p) == -ENOSYS);
		MUST(io_uring_queue_init_mem(4, ring, &p, memory, sizeof(memory)) == -ENOSYS);
		MUST(io_uring_setup(4, &p) == -ENOSYS);
	} else {
		/* The runner knows that the kernel has rings. */
		MUST(made >= 0);
		MUST(io_uring_queue_init(4, ring, 0) == 0);
		memset(&p, 0, sizeof(p));
		MUST(io_uring_queue_init_params(4, ring, &p) == 0);
	}
	SAY(pwrite(fd, "SSSS", 4, 4));
	SAY(fdatasync(fd));
}

struct own_ring {
	int fd;
	char *sq, *cq;
	struct io_uring_params p;
	struct io_uring_sqe *sqe;
};

/* Made as nobody can see: no call of libc's or of liburing's. */
static void ring_make(struct own_ring *r)
{
	size_t n;

	memset(r, 0, sizeof(*r));
	r->fd = (int)sys_call2(SYS_io_uring_setup, 4, &r->p);
	MUST(r->fd >= 0);
	n = r->p.sq_off.array + r->p.sq_entries * sizeof(uint32_t);
	r->sq = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	n = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->cq = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
	n = r->p.sq_entries * sizeof(struct io_uring_sqe);
	r->sqe = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	MUST(r->sq != MAP_FAILED && r->cq != MAP_FAILED && (void *)r->sqe != MAP_FAILED);
}

/* One request, waited for: what it returned. */
static int ring_write(struct own_ring *r, int fd, const char *text, uint64_t at)
{
	uint32_t *tail = (uint32_t *)(void *)(r->sq + r->p.sq_off.tail);

	*r->sqe = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE,
					 .fd = fd,
					 .addr = (uint64_t)(uintptr_t)text,
					 .len = (uint32_t)strlen(text),
					 .off = at };
	*(uint32_t *)(void *)(r->sq + r->p.sq_off.array) = 0;
	/* Release, as the kernel asks: the request is whole before it counts. */
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	MUST(sys_call6(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
	return ((struct io_uring_cqe *)(void *)(r->cq + r->p.cq_off.cqes))->res;
}

/* The file is there before. */
static void ring_unseen(void)
{
	struct own_ring r;
	int fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC, 0640);

	MUST(fd >= 0 && close(fd) == 0);
	ring_make(&r);
	fd = log_file(0);
	SAY(ring_write(&r, fd, "SSSS", 4));
	SAY(fdatasync(fd));
}

/* The file is made by the open that meets the ring. */
static void ring_inherited(void)
{
	MUST(fcntl(INHERITED, F_GETFD) >= 0);
	SAY(fdatasync(log_file(O_EXCL)));
}

const struct say_case rings_cases[] = {
	{ "rings", rings },
	{ "ring-unseen", ring_unseen },
	{ "ring-inherited", ring_inherited },
	{ 0 },
};
