/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/disk.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/overflow.h"
#include "base/sys.h"
#include "tests/crash/world.h"

struct disk disk;

void disk_clear(void (*step)(void), uint64_t size)
{
	memset(&disk, 0, sizeof(disk));
	disk.step = step;
	for (int i = 0; i < DISK_FDS; i++)
		disk.fds[i].file = -1;
	for (int i = 0; i < DISK_FILES; i++) {
		if (i < DISK_AT_ONCE)
			disk_create(i, size);
		else
			disk.files[i].unlink_safe = true;
	}
}

uint64_t disk_ino(int file)
{
	return 1000u + (uint64_t)file;
}

void disk_create(int file, uint64_t size)
{
	struct disk_file *f = &disk.files[file];
	uint32_t errors = f->errors;
	unsigned generation = f->generation;
	bool anew = f->name != 0;

	memset(f, 0, sizeof(*f));
	f->errors = errors; /* a description that is still open goes on with it */
	f->generation = generation + anew;
	f->size = f->safe_size = size;
	f->links = 1;
	f->name = f->safe_name = ++disk.next_name;
	f->ctime_ns = f->safe_ctime_ns = now_realtime_ns();
	disk.version++;
}

int disk_open(int file, bool append)
{
	for (int i = 0; i < DISK_FDS; i++) {
		if (disk.fds[i].file >= 0)
			continue;
		/* Whoever opens now is not told of errors that were before. */
		disk.fds[i] = (struct disk_fd){ .file = file,
						.append = append,
						.errors_seen = disk.files[file].errors };
		return i;
	}
	return -EMFILE;
}

void disk_close(int fd)
{
	disk.fds[fd].file = -1;
}

static struct disk_file *file_of(int fd)
{
	if (fd < 0 || fd >= DISK_FDS || disk.fds[fd].file < 0)
		return NULL;
	return &disk.files[disk.fds[fd].file];
}

static void changed(struct disk_file *f)
{
	f->ctime_ns = now_realtime_ns();
	disk.version++;
}

/* The journal keeps order: what was truncated is gone before anything after it is on disk. */
static void commit_truncate(struct disk_file *f)
{
	if (!f->truncated)
		return;
	memset(f->safe + f->truncated_to, 0, DISK_BYTES - f->truncated_to);
	f->safe_size = min_of(f->safe_size, f->truncated_to);
	f->truncated = false;
}

static void put(struct disk_file *f, uint64_t offset, const uint8_t *data, uint64_t n)
{
	if (n == 0)
		return;
	memcpy(f->cache + offset, data, n);
	for (uint64_t s = offset / DISK_SECTOR; s <= (offset + n - 1) / DISK_SECTOR; s++)
		f->dirty[s] = 1;
	f->size = max_of(f->size, offset + n);
	changed(f);
}

static void lose_dirty(struct disk_file *f)
{
	memset(f->dirty, 0, sizeof(f->dirty));
	f->errors++;
	f->fail_next = false;
	disk.version++;
}

static void commit_inode(struct disk_file *f)
{
	f->safe_size = f->size;
	f->safe_ctime_ns = f->ctime_ns;
	f->safe_name = f->name;
	f->safe_calls = f->calls;
	f->unlink_safe = f->links == 0;
}

/* Write-back of the sectors of [start, end) with what the journal needs before them. */
static void flush(struct disk_file *f, uint64_t start, uint64_t end)
{
	if (f->fail_next) {
		lose_dirty(f);
		return;
	}
	commit_truncate(f);
	for (uint64_t s = start / DISK_SECTOR; s < DISK_SECTORS && s * DISK_SECTOR < end; s++) {
		if (!f->dirty[s])
			continue;
		memcpy(f->safe + s * DISK_SECTOR, f->cache + s * DISK_SECTOR, DISK_SECTOR);
		f->dirty[s] = 0;
	}
	commit_inode(f);
	disk.version++;
}

static int sync_range(int fd, uint64_t start, uint64_t end)
{
	struct disk_file *f = file_of(fd);

	if (!f)
		return -EBADF;
	disk.step();
	flush(f, start, end);
	disk.step();
	if (disk.fds[fd].errors_seen != f->errors) {
		disk.fds[fd].errors_seen = f->errors;
		return -EIO;
	}
	return 0;
}

/* Bytes [from, to) of an iov, into the file; two calls may be in here at once. */
static void put_iov(struct disk_file *f, uint64_t offset, const struct iovec *iov, int iovcnt,
		    uint64_t from, uint64_t to)
{
	uint64_t at = 0;

	for (int i = 0; i < iovcnt && at < to; i++) {
		uint64_t start = max_of(from, at), end = min_of(to, at + iov[i].iov_len);

		if (start < end)
			put(f, offset + start, (const uint8_t *)iov[i].iov_base + (start - at),
			    end - start);
		at += iov[i].iov_len;
	}
}

static uint64_t append_at(struct disk_file *f)
{
	uint8_t bytes[DISK_FOREIGN];

	if (disk.foreign_next) {
		disk.foreign_next = false;
		memset(bytes, DISK_FOREIGN_BYTE, sizeof(bytes));
		put(f, f->size, bytes, sizeof(bytes));
	}
	return f->size;
}

static ssize_t sim_pwritev(int fd, const struct iovec *iov, int iovcnt, int64_t offset,
			   int rwf_flags)
{
	struct disk_file *f = file_of(fd);
	bool current = offset == -1;
	uint64_t at, half, n = 0;

	if (!f)
		return -EBADF;
	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len;
	disk.step();
	at = (uint64_t)(current ? disk.fds[fd].position : offset);
	if (disk.fds[fd].append)
		at = append_at(f);
	if (n > DISK_BYTES || at + n > DISK_BYTES)
		return -EFBIG;
	if (disk.short_next && n > 1) {
		disk.short_next = false;
		n = n / 2;
	}
	/* In bypass it is a plain write, and need not be durable before somebody asks. */
	f->calls += n > DISK_BIG && world_entry(disk.fds[fd].file)->state == FILE_LANE;
	half = n / 2;
	put_iov(f, at, iov, iovcnt, 0, half);
	disk.step();
	put_iov(f, at, iov, iovcnt, half, n);
	if (current)
		disk.fds[fd].position = (int64_t)(at + n);
	disk.step();
	if (rwf_flags & (RWF_DSYNC | RWF_SYNC)) {
		/* As the kernel does: the written range alone. */
		int rc = sync_range(fd, at, at + n);

		if (rc < 0)
			return rc;
	}
	return (ssize_t)n;
}

static int sim_fsync(int fd)
{
	return sync_range(fd, 0, DISK_BYTES);
}

static int sim_fstat(int fd, struct stat *ret)
{
	const struct disk_file *f = file_of(fd);

	if (!f)
		return -EBADF;
	memset(ret, 0, sizeof(*ret));
	ret->st_dev = makedev(DISK_MAJOR, DISK_MINOR);
	ret->st_ino = disk_ino(disk.fds[fd].file);
	ret->st_nlink = f->links;
	ret->st_size = (off_t)f->size;
	ret->st_mode = S_IFREG | 0600;
	return 0;
}

static int64_t sim_lseek(int fd, int64_t offset, int whence)
{
	if (!file_of(fd))
		return -EBADF;
	if (whence == SEEK_SET)
		disk.fds[fd].position = offset;
	return disk.fds[fd].position;
}

static int sim_set_append(int fd, bool on)
{
	if (!file_of(fd))
		return -EBADF;
	disk.fds[fd].append = on;
	return 0;
}

const struct session_io disk_io = {
	.pwritev = sim_pwritev,
	.fsync = sim_fsync,
	.fdatasync = sim_fsync,
	.fstat = sim_fstat,
	.lseek = sim_lseek,
	.set_append = sim_set_append,
};

int disk_truncate(int file, uint64_t size)
{
	struct disk_file *f = &disk.files[file];

	if (size > DISK_BYTES)
		return -EFBIG;
	disk.step();
	if (size < f->size) {
		memset(f->cache + size, 0, DISK_BYTES - size);
		for (uint64_t s = align_up(size, (uint64_t)DISK_SECTOR) / DISK_SECTOR;
		     s < DISK_SECTORS; s++)
			f->dirty[s] = 0;
		if (size % DISK_SECTOR)
			f->dirty[size / DISK_SECTOR] = 1;
		f->truncated_to = f->truncated ? min_of(f->truncated_to, size) : size;
		f->truncated = true;
	}
	f->calls++;
	f->size = size;
	changed(f);
	disk.step();
	return 0;
}

void disk_chmod(int file)
{
	changed(&disk.files[file]);
	disk.step();
}

int disk_unlink(int file)
{
	if (disk.unlink_fails) {
		disk.unlink_fails = false;
		return -EPERM;
	}
	disk.files[file].links--;
	changed(&disk.files[file]);
	disk.step();
	return 0;
}

void disk_link(int file)
{
	disk.files[file].links++;
	changed(&disk.files[file]);
	disk.step();
}

void disk_rename(int file, int over)
{
	if (over >= 0) {
		disk.files[over].links--;
		changed(&disk.files[over]);
	}
	disk.files[file].name = ++disk.next_name;
	changed(&disk.files[file]);
	disk.step();
}

void disk_write_back(int file, struct rng *r)
{
	struct disk_file *f = &disk.files[file];

	if (f->fail_next) {
		lose_dirty(f);
		return;
	}
	commit_truncate(f);
	for (unsigned s = 0; s < DISK_SECTORS; s++) {
		if (!f->dirty[s] || rng_one_in(r, 2))
			continue;
		memcpy(f->safe + s * DISK_SECTOR, f->cache + s * DISK_SECTOR, DISK_SECTOR);
		f->dirty[s] = 0;
	}
	if (rng_one_in(r, 2))
		commit_inode(f);
	disk.version++;
}

void disk_evict(int file)
{
	struct disk_file *f = &disk.files[file];

	if (f->truncated)
		return;
	for (unsigned s = 0; s < DISK_SECTORS; s++) {
		size_t at = (size_t)s * DISK_SECTOR;

		if (f->dirty[s] || memcmp(f->cache + at, f->safe + at, DISK_SECTOR) == 0)
			continue;
		memcpy(f->cache + at, f->safe + at, DISK_SECTOR);
		f->evicted = true;
	}
	disk.version++;
}

void disk_cut(int file, enum cut_policy policy, struct rng *r, struct disk_cut *ret)
{
	const struct disk_file *f = &disk.files[file];
	bool all = policy == CUT_NEW;
	bool mixed = policy == CUT_MIXED;
	bool committed = all || (mixed && rng_one_in(r, 2));
	uint64_t reach = f->truncated && !committed ? f->truncated_to : DISK_BYTES;

	memcpy(ret->bytes, f->safe, DISK_BYTES);
	ret->size = f->safe_size;
	if (f->truncated && committed) {
		memset(ret->bytes + f->truncated_to, 0, DISK_BYTES - f->truncated_to);
		ret->size = min_of(ret->size, f->truncated_to);
	}
	for (unsigned s = 0; s < DISK_SECTORS; s++) {
		size_t at = (size_t)s * DISK_SECTOR;

		/* A page cut by an uncommitted truncate is written with the zeros after it. */
		if (f->dirty[s] && at + DISK_SECTOR <= reach &&
		    (all || (mixed && rng_one_in(r, 2))))
			memcpy(ret->bytes + at, f->cache + at, DISK_SECTOR);
	}
	if (committed && (all || rng_one_in(r, 2)))
		ret->size = f->size;
	memset(ret->bytes + ret->size, 0, DISK_BYTES - ret->size);
	ret->ctime_ns = all || (mixed && rng_one_in(r, 2)) ? f->ctime_ns : f->safe_ctime_ns;
	ret->name = all || (mixed && rng_one_in(r, 2)) ? f->name : f->safe_name;
	/* The journal keeps order here, too: a ctime after the unlink is on disk with it. */
	ret->exists =
		f->links > 0 || (!f->unlink_safe && ret->ctime_ns == f->safe_ctime_ns && !all);
}
