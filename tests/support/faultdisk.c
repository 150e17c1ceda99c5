/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A disk with faults: a FUSE file system of one file, `disk`, for a loop device and a real file system on
 * top of it.
 *
 *	faultdisk BACKING CONTROL MOUNTPOINT
 *
 * What is written goes to BACKING; a flush costs nothing, BACKING outlives every cut. CONTROL is a shared
 * file with the orders below (faultdisk.py knows the offsets). A write that fails has not reached the disk.
 * An error of this program arrives at the file system as the block layer's status for it: EIO, ENOSPC.
 */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RANGES 1000u
#define NAME   "/disk"

#define STEP_MS 10

enum where {
	ANYWHERE = 0,
	INSIDE = 1, /* only writes that touch a range: a log's blocks */
	OUTSIDE = 2 /* only writes that touch none: the file system's own */
};

struct order {
	uint32_t write_fail; /* the next so many writes fail; UINT32_MAX: all */
	uint32_t flush_fail; /* the same for flushes */
	uint32_t where;	     /* of the writes that fail */
	uint32_t error;	     /* errno of both */
	uint32_t gone;	     /* every call fails with EIO */
	uint32_t delay_ms;   /* of each write that `where` names, and of each flush */
	uint32_t ranges;     /* number of them below */
	uint32_t writes;     /* counters */
	uint32_t flushes;
	uint32_t failed;
	uint32_t reserved[6];
	struct {
		uint64_t offset, length; /* bytes */
	} range[RANGES];
};

static struct order *order;
static int backing;

static void *init(struct fuse_conn_info *info, struct fuse_config *config)
{
	(void)info;
	/* One page cache is enough, the one above the loop device. */
	config->direct_io = 1;
	return NULL;
}

static int fd_getattr(const char *path, struct stat *st, struct fuse_file_info *file)
{
	(void)file;
	memset(st, 0, sizeof(*st));
	if (strcmp(path, "/") == 0) {
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
		return 0;
	}
	if (strcmp(path, NAME) != 0)
		return -ENOENT;
	if (fstat(backing, st) < 0)
		return -errno;
	st->st_mode = S_IFREG | 0600;
	st->st_nlink = 1;
	return 0;
}

static int fd_open(const char *path, struct fuse_file_info *file)
{
	(void)file;
	return strcmp(path, NAME) == 0 ? 0 : -ENOENT;
}

static uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void count(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
}

/* Takes one of `*left`, if any. */
static int take(uint32_t *left)
{
	uint32_t n = get(left);

	while (n) {
		if (n == UINT32_MAX)
			return 1;
		if (__atomic_compare_exchange_n(left, &n, n - 1, 0, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			return 1;
	}
	return 0;
}

static int fails(uint32_t *left)
{
	if (!take(left))
		return 0;
	count(&order->failed);
	return -(int)get(&order->error);
}

static int gone(void)
{
	if (!get(&order->gone))
		return 0;
	count(&order->failed);
	return -EIO;
}

static int meant(uint64_t offset, uint64_t length)
{
	uint32_t where = get(&order->where);
	uint32_t n = get(&order->ranges);

	if (where == ANYWHERE)
		return 1;
	for (uint32_t i = 0; i < n && i < RANGES; i++)
		if (offset < order->range[i].offset + order->range[i].length &&
		    order->range[i].offset < offset + length)
			return where == INSIDE;
	return where == OUTSIDE;
}

/* In small steps: a disk that is well again answers at once. */
static void late(void)
{
	const struct timespec step = { .tv_nsec = STEP_MS * 1000000 };

	for (uint32_t ms = 0; ms < get(&order->delay_ms); ms += STEP_MS)
		nanosleep(&step, NULL);
}

static int fd_read(const char *path, char *buf, size_t n, off_t offset, struct fuse_file_info *file)
{
	ssize_t r = gone();

	(void)path;
	(void)file;
	if (r < 0)
		return (int)r;
	r = pread(backing, buf, n, offset);
	return r < 0 ? -errno : (int)r;
}

static int fd_write(const char *path, const char *buf, size_t n, off_t offset,
		    struct fuse_file_info *file)
{
	ssize_t r = gone();

	(void)path;
	(void)file;
	count(&order->writes);
	if (r == 0 && meant((uint64_t)offset, n)) {
		late();
		r = fails(&order->write_fail);
	}
	if (r < 0)
		return (int)r;
	r = pwrite(backing, buf, n, offset);
	return r < 0 ? -errno : (int)r;
}

static int fd_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
	int r = gone();

	(void)path;
	(void)data_only;
	(void)file;
	count(&order->flushes);
	late();
	return r < 0 ? r : fails(&order->flush_fail);
}

static const struct fuse_operations operations = {
	.init = init,
	.getattr = fd_getattr,
	.open = fd_open,
	.read = fd_read,
	.write = fd_write,
	.fsync = fd_fsync,
};

int main(int argc, char **argv)
{
	char foreground[] = "-f", option[] = "-o", name[] = "fsname=faultdisk,max_threads=32";
	char *fuse_argv[] = { argv[0], foreground, option, name, argc == 4 ? argv[3] : NULL, NULL };
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: faultdisk BACKING CONTROL MOUNTPOINT\n");
		return 64;
	}
	backing = open(argv[1], O_RDWR | O_CLOEXEC);
	fd = open(argv[2], O_RDWR | O_CLOEXEC);
	if (backing < 0 || fd < 0) {
		perror("faultdisk");
		return 1;
	}
	order = mmap(NULL, sizeof(*order), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (order == MAP_FAILED) {
		perror("faultdisk: control");
		return 1;
	}
	close(fd);
	return fuse_main(5, fuse_argv, &operations, NULL);
}
