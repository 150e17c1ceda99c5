/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cases of `doors`: calls that change a file without a write, one after another. `touched` and `renamed-often`
 * count: each call leaves a record. `fenced` has a file for each call, since a FENCE of one would make up for the
 * next. `given-away` has a file for each way to pass one on: all of them leave the lane.
 */
#include <aio.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <utime.h>

#include "tests/preload/say.h"

static int log_file(int number)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "log.%d", number);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	MUST(fd >= 0);
	MUST(pwrite(fd, "oooooooooooooooo", 16, 0) == 16);
	return fd;
}

/* 23 calls that a replay would take for a stranger's, were they not told of; the last two are on a reader. */
static void touched(void)
{
	struct timeval times[2] = { { 1000, 500000 }, { 2000, 0 } };
	struct timespec fine[2] = { { 3000, 1 }, { 4000, 2 } };
	struct utimbuf coarse = { 5000, 6000 };
	int fd = log_file(1), flags = 0;
	int reader = open("log.1", O_RDONLY | O_CLOEXEC);

	SAY(fchmod(fd, 0600));
	SAY(chmod("log.1", 0640));
	SAY(fchmodat(AT_FDCWD, "log.1", 0600, 0));
	SAY(lchmod("log.1", 0640));
	SAY(fchown(fd, getuid(), getgid()));
	SAY(chown("log.1", getuid(), getgid()));
	SAY(lchown("log.1", getuid(), getgid()));
	SAY(fchownat(AT_FDCWD, "log.1", getuid(), getgid(), 0));
	SAY(utimensat(AT_FDCWD, "log.1", fine, 0));
	SAY(futimens(fd, fine));
	SAY(utimes("log.1", times));
	SAY(lutimes("log.1", times));
	SAY(futimes(fd, times));
	SAY(futimesat(AT_FDCWD, "log.1", times));
	SAY(utime("log.1", &coarse));
	SAY(setxattr("log.1", "user.one", "1", 1, 0));
	SAY(lsetxattr("log.1", "user.two", "2", 1, 0));
	SAY(fsetxattr(fd, "user.three", "3", 1, 0));
	SAY(removexattr("log.1", "user.one"));
	SAY(lremovexattr("log.1", "user.two"));
	SAY(fremovexattr(fd, "user.three"));
	SAY(fchmod(reader, 0644));
	SAY(ioctl(reader, FS_IOC_GETFLAGS, &flags));
	flags |= FS_NODUMP_FL;
	SAY(ioctl(reader, FS_IOC_SETFLAGS, &flags));
}

/* As touched, for calls that only a number leads to; the newest kernels alone have all of them. */
static void touched_by_number(void)
{
	struct {
		uint64_t value;
		uint32_t size, flags;
	} one = { .value = (uint64_t)(uintptr_t) "1", .size = 1 };
	struct {
		uint64_t xflags;
		uint32_t extent, extents, project, cow_extent;
	} attributes = { .xflags = FS_XFLAG_NODUMP };
	int fd = log_file(1), reader = open("log.1", O_RDONLY | O_CLOEXEC);

	SAY(syscall(452L /* fchmodat2 */, AT_FDCWD, "log.1", 0600, 0));
	SAY(syscall(452L, fd, "", 0640, AT_EMPTY_PATH));
	SAY(syscall(452L, AT_FDCWD, "log.1", 0600, 1 << 30));
	SAY(syscall(463L /* setxattrat */, AT_FDCWD, "log.1", 0L, "user.one", &one, sizeof(one)));
	SAY(syscall(463L, reader, "", (long)AT_EMPTY_PATH, "user.two", &one, sizeof(one)));
	SAY(syscall(463L, reader, NULL, (long)AT_EMPTY_PATH, "user.three", &one, sizeof(one)));
	SAY(syscall(463L, AT_FDCWD, "none", 0L, "user.one", &one, sizeof(one)));
	SAY(syscall(466L /* removexattrat */, AT_FDCWD, "log.1", (long)AT_SYMLINK_NOFOLLOW,
		    "user.one"));
	SAY(syscall(466L, AT_FDCWD, "log.1", 0L, "user.one"));
	SAY(syscall(469L /* file_setattr */, AT_FDCWD, "log.1", &attributes, sizeof(attributes),
		    0L));
	SAY(syscall(469L, reader, "", &attributes, sizeof(attributes), (long)AT_EMPTY_PATH));
}

/* Six calls; the file has its first name at the end. */
static void renamed_often(void)
{
	int other = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	log_file(1);
	MUST(other >= 0 && close(other) == 0);
	SAY(link("log.1", "hard"));
	SAY(linkat(AT_FDCWD, "log.1", AT_FDCWD, "harder", 0));
	SAY(rename("log.1", "log.2"));
	SAY(renameat(AT_FDCWD, "log.2", AT_FDCWD, "log.3"));
	SAY(renameat2(AT_FDCWD, "log.3", AT_FDCWD, "plain", RENAME_EXCHANGE));
	SAY(renameat2(AT_FDCWD, "log.3", AT_FDCWD, "plain", RENAME_EXCHANGE));
	SAY(renameat2(AT_FDCWD, "log.3", AT_FDCWD, "log.1", RENAME_NOREPLACE));
}

static void fenced(void)
{
	int plain = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	off_t in = 0, out = 4;
	int pipes[2], fd;

	MUST(plain >= 0 && pipe(pipes) == 0 && write(plain, "SSSSSSSS", 8) == 8);
	SAY(copy_file_range(plain, &in, log_file(1), &out, 8, 0));
	out = 4;
	SAY(write(pipes[1], "SSSSSSSS", 8));
	SAY(splice(pipes[0], NULL, log_file(2), &out, 8, 0));
	fd = log_file(3);
	in = 0;
	SAY(lseek(fd, 4, SEEK_SET));
	SAY(sendfile(fd, plain, &in, 8));
	SAY(fallocate(log_file(4), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4, 8));
	fd = log_file(5);
	SAY(ftruncate(fd, 4));
	SAY(ftruncate(fd, 16));
	log_file(6);
	SAY(truncate("log.6", 4));
	SAY(truncate("log.6", 16));
	log_file(7);
	SAY_FD(open("log.7", O_RDONLY | O_TRUNC | O_CLOEXEC));
	SAY(truncate("log.7", 16));
	log_file(8);
	SAY_FD(open("log.8", O_WRONLY | O_TRUNC | O_CLOEXEC));
	SAY(truncate("log.8", 16));
	log_file(9);
	SAY_FD(creat("log.9", 0600));
	SAY(truncate("log.9", 16));
	SAY(posix_fallocate(log_file(11), 0, 4096));
	/* whatever an unknown request does */
	SAY(ioctl(log_file(10), 0x7777, NULL));
}

/* Each file's last name goes, and the file stays open: its records have an end of their own. */
static void unlinked(void)
{
	log_file(1);
	SAY(unlink("log.1"));
	log_file(2);
	SAY(unlinkat(AT_FDCWD, "log.2", 0));
	log_file(3);
	SAY(remove("log.3"));
	log_file(4);
	log_file(5);
	SAY(rename("log.5", "log.4"));
	log_file(6);
	log_file(7);
	SAY(renameat(AT_FDCWD, "log.7", AT_FDCWD, "log.6"));
}

/* Not in the kernel's exported headers, or in no library that this program has. */
struct ext4_move_extent {
	uint32_t reserved, donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};
#define EXT4_IOC_MOVE_EXT _IOWR('f', 15, struct ext4_move_extent)

struct xfs_exchange_range {
	int32_t file1_fd;
	uint32_t pad;
	uint64_t file1_offset, file2_offset, length, flags;
};
#define XFS_IOC_EXCHANGE_RANGE _IOW('X', 129, struct xfs_exchange_range)

struct xfs_swapext {
	int64_t sx_version, sx_fdtarget, sx_fdtmp, sx_offset, sx_length;
	char sx_pad[16], sx_stat[136];
};
#define XFS_IOC_SWAPEXT _IOWR('X', 109, struct xfs_swapext)

extern int io_submit(aio_context_t context, long n, struct iocb **requests) __attribute__((weak));

static void submit(int fd)
{
	struct iocb request = { .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (uint32_t)fd };
	struct iocb *list[1] = { &request };
	struct io_event event = { 0 };
	aio_context_t context = 0;

	request.aio_buf = (uintptr_t) "SSSS";
	request.aio_nbytes = 4;
	request.aio_offset = 4;
	MUST(syscall(SYS_io_setup, 4, &context) == 0);
	if (io_submit)
		MUST(io_submit(context, 1, list) == 1);
	else
		MUST(syscall(SYS_io_submit, context, 1L, list) == 1);
	MUST(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL) == 1);
	SAY(event.res);
	syscall(SYS_io_destroy, context);
}

static void list_of_one(int fd)
{
	static char bytes[] = "SSSS";
	struct aiocb request = { .aio_fildes = fd,
				 .aio_offset = 4,
				 .aio_nbytes = 4,
				 .aio_buf = bytes,
				 .aio_lio_opcode = LIO_WRITE };
	struct aiocb *list[1] = { &request };

	SAY(lio_listio(LIO_WAIT, list, 1, NULL));
	SAY(aio_return(&request));
}

static void send_away(int fd, bool many)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (char[]){ "x" }, 1 };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &iov,
					  .msg_iovlen = 1,
					  .msg_control = &control,
					  .msg_controllen = sizeof(control.bytes) } };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m.msg_hdr);
	int sockets[2];

	MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets) == 0);
	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS,
			       .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (many)
		SAY(sendmmsg(sockets[0], &m, 1, 0));
	else
		SAY(sendmsg(sockets[0], &m.msg_hdr, 0));
}

static void given_away(void)
{
	int plain = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600), fd;
	struct ext4_move_extent move = { .donor_fd = (uint32_t)log_file(1) };
	struct xfs_exchange_range exchange = { .file1_fd = log_file(2) };
	struct xfs_swapext swap = { .sx_fdtarget = plain, .sx_fdtmp = log_file(3) };
	void *p;

	MUST(plain >= 0);
	/* what comes of them depends on the file system, and both times it is the same one */
	SAY(ioctl(plain, EXT4_IOC_MOVE_EXT, &move));
	SAY(ioctl(plain, XFS_IOC_EXCHANGE_RANGE, &exchange));
	SAY(ioctl(plain, XFS_IOC_SWAPEXT, &swap));
	SAY(ioctl(log_file(4), FIONCLEX));
	SAY(fcntl(log_file(5), F_SETFD, 0));
	submit(log_file(6));
	list_of_one(log_file(7));
	send_away(log_file(8), false);
	send_away(log_file(9), true);
	fd = log_file(10);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	SAY(pkey_mprotect(p, 4096, PROT_READ | PROT_WRITE, -1));
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, log_file(11), 0);
	MUST(p != MAP_FAILED);
	MUST(fdopen(log_file(12), "r+"));
	MUST(fopen("log.13", "w"));
}

const struct say_case changes_cases[] = {
	{ "touched", touched },
	{ "renamed-often", renamed_often },
	{ "fenced", fenced },
	{ "touched-by-number", touched_by_number },
	{ "unlinked", unlinked },
	{ "given-away", given_away },
	{ 0 },
};
