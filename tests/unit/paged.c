/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "paged.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "pool/append.h"
#include "pool/pages.h"
#include "pool/space.h"

#define FD_BASE 1000

struct paged paged;

static unsigned file_of(int fd)
{
	return (unsigned)(fd - FD_BASE) / PAGED_OPENS;
}

static struct paged_file *at(int fd)
{
	return &paged.file[file_of(fd)];
}

static void once(void (**call)(void))
{
	void (*now)(void) = *call;

	*call = NULL;
	if (now)
		now();
}

static ssize_t io_pwritev(int fd, const struct iovec *iov, int n, int64_t offset, int flags)
{
	struct paged_file *f = at(fd);
	ssize_t done = 0;

	(void)flags;
	for (int i = 0; i < n; i++) {
		assert_true((uint64_t)offset + iov[i].iov_len <= PAGED_BYTES);
		memcpy(f->page + offset, iov[i].iov_base, iov[i].iov_len);
		offset += (int64_t)iov[i].iov_len;
		done += (ssize_t)iov[i].iov_len;
	}
	f->dirty = true;
	once(&paged.after_write);
	return done;
}

static void write_back(struct paged_file *f)
{
	if (f->dirty && !f->stuck) {
		memcpy(f->disk, f->page, sizeof(f->disk));
		f->unwritten = false;
	}
	f->dirty = false;
}

static int io_fsync(int fd)
{
	struct paged_file *f = at(fd);
	unsigned *heard = &paged.heard[file_of(fd)][(unsigned)(fd - FD_BASE) % PAGED_OPENS];
	bool failed;

	once(&paged.before_sync);
	failed = *heard != f->errors;
	paged.syncs++;
	*heard = f->reported = f->errors;
	write_back(f);
	return failed ? -EIO : 0;
}

static int io_fstat(int fd, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->st_ino = 1 + file_of(fd);
	ret->st_dev = makedev(7, 7);
	ret->st_nlink = 1;
	ret->st_size = PAGED_BYTES;
	return 0;
}

static int64_t io_lseek(int fd, int64_t offset, int whence)
{
	(void)fd;
	(void)whence;
	return offset;
}

static int io_set_append(int fd, bool on)
{
	(void)fd;
	(void)on;
	return 0;
}

static const struct session_io io = {
	io_pwritev, io_fsync, io_fsync, io_fstat, io_lseek, io_set_append,
};

/* In place of pool/pages.c, which asks the kernel (linked with --wrap). */
bool __wrap_pages_unwritten(int fd);
int __wrap_pages_drop(struct session *s, int fd);

bool __wrap_pages_unwritten(int fd)
{
	return at(fd)->unwritten || at(fd)->stuck;
}

int __wrap_pages_drop(struct session *s, int fd)
{
	int rc = s->io->fdatasync(fd);

	if (rc < 0)
		return rc;
	paged.drops++;
	paged_forgets(file_of(fd));
	return 0;
}

int __wrap_append_record(struct session *s, const struct caller *who, struct ctl_file *f,
			 uint64_t file_id, const struct append_request *r, uint64_t *ret_position);
int __real_append_record(struct session *s, const struct caller *who, struct ctl_file *f,
			 uint64_t file_id, const struct append_request *r, uint64_t *ret_position);

int __wrap_append_record(struct session *s, const struct caller *who, struct ctl_file *f,
			 uint64_t file_id, const struct append_request *r, uint64_t *ret_position)
{
	once(&paged.before_append);
	return __real_append_record(s, who, f, file_id, r, ret_position);
}

int paged_set_up(void **state)
{
	(void)state;
	memset(&paged, 0, sizeof(paged));
	env_make(&paged.e, PAGED_RING);
	paged.e.s.io = &io;
	for (unsigned i = 0; i < PAGED_FILES; i++) {
		struct ctl_file *f = env_file(&paged.e, i);

		f->ino = 1 + i;
		f->dev_major = f->dev_minor = 7;
	}
	return 0;
}

int paged_tear_down(void **state)
{
	(void)state;
	env_free(&paged.e);
	return 0;
}

struct file_ref paged_open(unsigned i, unsigned n)
{
	struct ctl_file *f = &paged.e.s.ctl.files[i];

	/* as the kernel: what nobody was told of is told to the next one */
	paged.heard[i][n] = paged.file[i].reported;
	return (struct file_ref){ .f = f,
				  .id = f->id,
				  .fd = FD_BASE + (int)(i * PAGED_OPENS + n),
				  .open_head = OPEN_HEAD_UNKNOWN };
}

void paged_fails(unsigned i, bool new_blocks)
{
	struct paged_file *f = &paged.file[i];

	assert_true(f->dirty);
	f->dirty = false;
	f->errors++;
	if (new_blocks)
		f->unwritten = f->stuck = true;
}

void paged_told(unsigned i)
{
	paged.file[i].reported = paged.file[i].errors;
}

void paged_forgets(unsigned i)
{
	struct paged_file *f = &paged.file[i];

	if (f->dirty)
		return;
	if (f->unwritten)
		memset(f->disk, 0, sizeof(f->disk));
	memcpy(f->page, f->disk, sizeof(f->page));
	f->stuck = false;
}

ssize_t paged_write(struct file_ref *r, uint64_t offset, uint32_t n, uint8_t byte)
{
	static uint8_t bytes[PAGED_BYTES];
	struct iovec iov = { bytes, n };

	memset(bytes, byte, n);
	return file_write(&paged.e.s, &paged.e.who, r, &iov, 1, (int64_t)offset, 0);
}

uint8_t paged_disk(unsigned i, uint64_t offset)
{
	return paged.file[i].unwritten ? 0 : paged.file[i].disk[offset];
}

void paged_fill(struct ctl_file *f, uint64_t left)
{
	const struct ctl_hot *hot = paged.e.s.ctl.hot;
	const struct append_request r = { .type = RECORD_WRITE };

	for (;;) {
		uint64_t used = control_head(&paged.e.s.ctl).head - hot->tail;

		if (used + hot->reserved_bytes + SPACE_FILE_RESERVE * hot->live_files + left >=
		    PAGED_RING)
			return;
		assert_int_equal(append_record(&paged.e.s, &paged.e.who, f, 0, &r, NULL),
				 APPEND_OK);
	}
}
