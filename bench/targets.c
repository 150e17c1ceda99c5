/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ways to make bytes durable that pmemlogd-bench append compares. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef HAVE_LIBPMEMLOG
#include <libpmemlog.h>
#endif

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "bench/bench.h"
#include "pool/append.h"
#include "pool/control.h"
#include "pool/ops.h"
#include "pool/slot.h"
#include "pool/space.h"

#define RING_BYTES  (UINT64_C(64) << 20) /* several times the last-level cache of one core's share */
#define RAW_BYTES   (UINT64_C(64) << 20)
#define DISK_BYTES  (UINT64_C(16) << 20)
#define PMLOG_BYTES (UINT64_C(128) << 20)
#define THREADS_MAX 64u
#define INCARNATION UINT64_C(0x5ca1ab1e)
#define TRIM_NS	    1000000 /* the ring takes 20 ms and more to fill */

static char pool_path[512], pmlog_path[512], disk_path[512];
static struct session session;
static uint8_t *raw_area;
static size_t mapped;

/* Each thread's own line: nobody shares what a thread writes. */
static struct thread_state {
	uint64_t offset;
	struct caller who;
} per_thread[THREADS_MAX] __attribute__((aligned(64)));

/* ---- the lane ---- */

static pthread_t trimmer;
static int trimmer_stop;

/* Stands in for the destager: all that is published counts as durable elsewhere. */
static void *trim(void *arg)
{
	struct ctl_hot *hot = session.ctl.hot;
	struct timespec pause = { 0, TRIM_NS };

	(void)arg;
	while (!atomic_load_relaxed(&trimmer_stop)) {
		/* Release: pairs with append's look at the room. */
		atomic_store_release(&hot->tail, control_head(&session.ctl).head);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static int lane_open(unsigned size, unsigned threads)
{
	(void)size;
	for (unsigned i = 0; i < threads; i++) {
		per_thread[i].who.tid = 0;
		atomic_store_release(&session.ctl.files[i].id, (uint64_t)i + 1);
	}
	atomic_store_relaxed(&trimmer_stop, 0);
	return -pthread_create(&trimmer, NULL, trim, NULL);
}

static void lane_once(unsigned thread, const void *bytes, unsigned size)
{
	struct thread_state *t = &per_thread[thread];
	struct iovec iov = { (void *)(uintptr_t)bytes, size };
	struct append_request r = { .type = RECORD_WRITE,
				    .flags = RECORD_INLINE,
				    .offset = t->offset,
				    .iov = &iov,
				    .iovcnt = 1,
				    .length = size };
	int rc;

	if (t->who.tid == 0)
		t->who.tid = sys_gettid();
	while ((rc = append_record(&session, &t->who, &session.ctl.files[thread], 0, &r, NULL)) ==
	       APPEND_FULL)
		sched_yield(); /* the trimmer was late */
	if (rc < 0)
		die("append", -rc);
	t->offset += size;
}

static void lane_close(void)
{
	atomic_store_relaxed(&trimmer_stop, 1);
	pthread_join(trimmer, NULL);
}

/* ---- the floor: the same bytes copied to the same file and drained, nothing else ---- */

static uint64_t raw_next;

int raw_open(unsigned size, unsigned threads)
{
	(void)size;
	for (unsigned i = 0; i < threads; i++)
		per_thread[i].offset = RAW_BYTES / threads * i & ~UINT64_C(63);
	raw_next = RAW_BYTES / threads & ~UINT64_C(63);
	return 0;
}

void raw_once(unsigned thread, const void *bytes, unsigned size)
{
	struct thread_state *t = &per_thread[thread];
	uint64_t base = raw_next * thread, n = align_up((uint64_t)size, 64u);

	if (t->offset - base + n > raw_next)
		t->offset = base;
	pool_ops->copy(raw_area + t->offset, bytes, n);
	pool_ops->drain();
	t->offset += n;
}

void nothing_to_close(void)
{
}

/* ---- libpmemlog ---- */

#ifdef HAVE_LIBPMEMLOG
static PMEMlogpool *pmlog;

int pmlog_open(unsigned size, unsigned threads)
{
	(void)size;
	(void)threads;
	(void)unlink(pmlog_path);
	pmlog = pmemlog_create(pmlog_path, PMLOG_BYTES, 0600);
	return pmlog ? 0 : failed("libpmemlog", errno);
}

void pmlog_once(unsigned thread, const void *bytes, unsigned size)
{
	(void)thread;
	while (pmemlog_append(pmlog, bytes, size) < 0) {
		if (errno != ENOSPC)
			die("pmemlog_append", errno);
		pmemlog_rewind(pmlog);
	}
}

void pmlog_close(void)
{
	pmemlog_close(pmlog);
	(void)unlink(pmlog_path);
}
#endif

/* ---- a file on disk ---- */

static int disk_fd = -1;
static uint64_t disk_next;

static int disk_open(unsigned threads, int flags)
{
	disk_fd = open(disk_path, O_RDWR | O_CLOEXEC | flags);
	if (disk_fd < 0)
		return failed(disk_path, errno);
	for (unsigned i = 0; i < threads; i++)
		per_thread[i].offset = 0;
	disk_next = DISK_BYTES / threads & ~UINT64_C(4095);
	return 0;
}

static int dsync_open(unsigned size, unsigned threads)
{
	(void)size;
	return disk_open(threads, O_DSYNC);
}

int fdatasync_open(unsigned size, unsigned threads)
{
	(void)size;
	return disk_open(threads, 0);
}

/* As a log does it: append in place of what was preallocated, from the start again at the end. */
static void disk_write(unsigned thread, const void *bytes, unsigned size)
{
	struct thread_state *t = &per_thread[thread];

	if (t->offset + size > disk_next)
		t->offset = 0;
	if (pwrite(disk_fd, bytes, size, (off_t)(disk_next * thread + t->offset)) != (ssize_t)size)
		die(disk_path, errno);
	t->offset += size;
}

void fdatasync_once(unsigned thread, const void *bytes, unsigned size)
{
	disk_write(thread, bytes, size);
	if (fdatasync(disk_fd) < 0)
		die(disk_path, errno);
}

void disk_close(void)
{
	close(disk_fd);
	disk_fd = -1;
}

static const struct target targets[] = {
	{ "append", lane_open, lane_once, lane_close, NULL, false },
	{ "raw", raw_open, raw_once, nothing_to_close, NULL, false },
#ifdef HAVE_LIBPMEMLOG
	{ "libpmemlog", pmlog_open, pmlog_once, pmlog_close, NULL, false },
#endif
	{ "o_dsync", dsync_open, disk_write, disk_close, NULL, true },
	{ "fdatasync", fdatasync_open, fdatasync_once, disk_close, NULL, true },
};

static const struct target_set append_set = {
	.name = "append",
	.sizes = "64,128,256,512,1024,2048,4096,8192,16384,32768,65536",
	.threads = "1,2,4,8",
	.set_up = targets_set_up,
	.tear_down = targets_tear_down,
	.targets = targets,
	.count = ARRAY_SIZE(targets),
};

int bench_append(int argc, char **argv)
{
	return run_set(&append_set, argc, argv);
}

/* ---- set-up ---- */

static int make_control(const char *folder)
{
	struct ctl_head head = { .incarnation = INCARNATION,
				 .ring_size = RING_BYTES,
				 .bypass_size = 1 << 20,
				 .reconnect_timeout_ns = 1000000000,
				 .media = CTL_MEDIA_EMULATED };
	int r, fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return failed(folder, errno);
	r = control_create(&session.ctl, fd, &head, 0, 0);
	if (r < 0) {
		close(fd);
		return failed("control file", -r);
	}
	atomic_store_release(&session.ctl.head->state, CTL_OPEN);
	session.head_copy = *session.ctl.head;
	r = slot_take(&session.ctl, INCARNATION, &session.me);
	return r < 0 ? failed("slot", -r) : 0;
}

/* One file: lane, then the area of the raw copies. Prefaulted, as the daemon does it. */
static int make_pool(const char *folder)
{
	int r, fd;
	void *base;

	snprintf(pool_path, sizeof(pool_path), "%s/pmemlogd-bench.%d.pool", folder, getpid());
	snprintf(pmlog_path, sizeof(pmlog_path), "%s/pmemlogd-bench.%d.pmlog", folder, getpid());
	mapped = LANE_HEADER_BYTES + RING_BYTES + RAW_BYTES;
	fd = open(pool_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(pool_path, errno);
	r = posix_fallocate(fd, 0, (off_t)mapped);
	base = r ? MAP_FAILED
		 : mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (base == MAP_FAILED)
		return failed(pool_path, r ? r : errno);
	raw_area = (uint8_t *)base + LANE_HEADER_BYTES + RING_BYTES;
	r = lane_format(&session.lane, base, LANE_HEADER_BYTES + RING_BYTES, 1, RING_BYTES,
			INCARNATION);
	return r < 0 ? failed("lane", -r) : make_control(folder);
}

static int make_disk(const char *folder)
{
	static uint8_t zeros[1 << 16];
	int fd, r = 0;

	snprintf(disk_path, sizeof(disk_path), "%s/pmemlogd-bench.%d.disk", folder, getpid());
	fd = open(disk_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(disk_path, errno);
	/* written and not only allocated: a log that is reused has no unwritten extents */
	for (uint64_t at = 0; at < DISK_BYTES && r == 0; at += sizeof(zeros))
		if (pwrite(fd, zeros, sizeof(zeros), (off_t)at) != (ssize_t)sizeof(zeros))
			r = failed(disk_path, errno);
	if (r == 0 && fsync(fd) < 0)
		r = failed(disk_path, errno);
	close(fd);
	return r;
}

int targets_set_up(const char *pool_folder, const char *disk_folder)
{
	int r;

	pool_ops_select();
	r = make_pool(pool_folder);
	return r < 0 ? r : make_disk(disk_folder);
}

void targets_tear_down(void)
{
	(void)unlink(pool_path);
	(void)unlink(pmlog_path);
	(void)unlink(disk_path);
}
