/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Calls on a descriptor: flags, errors, positions, sizes, names. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tests/preload/logfile.h"

static void flags(void)
{
	static const int some[] = { 0, O_DIRECT, O_DSYNC, O_SYNC, O_APPEND, O_DIRECT | O_DSYNC };

	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		int fd = log_file(some[i]);

		SAY(fcntl(fd, F_GETFL) & SHOWN);
		SAY(fcntl(fd, F_SETFL, (fcntl(fd, F_GETFL) & SHOWN) | O_DIRECT));
		SAY(fcntl(fd, F_GETFL) & SHOWN);
		SAY(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
		SAY(fcntl(fd, F_GETFL) & SHOWN);
		SAY(fcntl(fd, F_SETFL, 0));
		SAY(fcntl(fd, F_GETFL) & SHOWN);
		SAY(write(fd, block, 4096));
		SAY(close(fd));
	}
}

static void descriptor_flags(void)
{
	int fd = open("log.1", O_RDWR | O_CREAT, 0640);
	int cloexec = log_file(0);
	int copy;

	SAY(fcntl(fd, F_GETFD));
	SAY(fcntl(cloexec, F_GETFD));
	copy = SAY_FD(dup(cloexec));
	SAY(fcntl(copy, F_GETFD));
	copy = SAY_FD(fcntl(fd, F_DUPFD_CLOEXEC, 100));
	SAY(copy >= 100);
	SAY(fcntl(copy, F_GETFD));
	copy = SAY_FD(fcntl(cloexec, F_DUPFD, 200));
	SAY(fcntl(copy, F_GETFD));
	SAY(fcntl(copy, F_SETFD, FD_CLOEXEC));
	SAY(fcntl(copy, F_GETFD));
	SAY(dup3(fd, copy, O_CLOEXEC) == copy);
	SAY(fcntl(copy, F_GETFD));
	SAY(dup2(fd, copy) == copy);
	SAY(fcntl(copy, F_GETFD));
	SAY(write(copy, block, 10));
	SAY(lseek(fd, 0, SEEK_CUR));
	say_file("log.1");
}

static void open_errors(void)
{
	int fd = log_file(0);

	SAY_FD(open("log.1", O_RDWR | O_CREAT | O_EXCL, 0600));
	SAY_FD(open("log.2", O_RDWR));
	SAY_FD(open("none/log.3", O_RDWR | O_CREAT, 0600));
	SAY_FD(open("log.1", O_RDWR | O_DIRECTORY));
	SAY(symlink("log.1", "log.9"));
	SAY_FD(open("log.9", O_RDWR | O_NOFOLLOW));
	SAY_FD(open("log.9", O_RDWR | O_CREAT | O_EXCL, 0600));
	SAY(symlink("log.9", "log.8"));
	SAY(symlink("log.11", "log.10"));
	SAY_FD(open("log.10", O_RDWR | O_CREAT, 0600));
	SAY(access("log.11", F_OK));
	SAY_FD(open(".", O_RDWR));
	SAY_FD(open("", O_RDWR));
	SAY_FD(openat(fd, "log.1", O_RDWR));
	SAY_FD(openat(-100, "log.1", O_RDWR));
	SAY_FD(creat("log.4", 0444));
	SAY_FD(open("log.4", O_WRONLY | O_TRUNC));
}

static void errors(void)
{
	int fd = log_file(0);
	int reader = open("log.1", O_RDONLY | O_CLOEXEC);
	int writer = open("log.1", O_WRONLY | O_CLOEXEC);
	int path = open("log.1", O_PATH | O_CLOEXEC);
	int folder = open(".", O_RDONLY | O_CLOEXEC);
	struct iovec iov[2] = { { block, 100 }, { block, 100 } };
	char *volatile nowhere = (char *)16;
	struct iovec *volatile many = iov;
	volatile int below = -1;
	int pipes[2], sockets[2];

	MUST(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	SAY(fdatasync(742));
	SAY(fsync(-1));
	SAY(fsync(pipes[1]));
	SAY(fdatasync(sockets[0]));
	SAY(fsync(folder));
	SAY(fsync(path));
	SAY(fsync(reader));
	SAY(fdatasync(writer));
	SAY(fsync(fd));
	SAY(pwrite(reader, block, 10, 0));
	SAY(write(path, block, 10));
	SAY(write(742, block, 10));
	SAY(read(writer, block, 10));
	SAY(pwrite(fd, block, 10, -1));
	SAY(pwrite(fd, block, 0, 5));
	SAY(write(fd, block, 0));
	SAY(write(fd, nowhere, 100));
	SAY(pwrite(fd, nowhere, 100, 100));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(pwrite(fd, block, 10, INT64_MAX - 5));
	SAY(writev(fd, iov, below));
	SAY(writev(fd, many, 1025));
	SAY(writev(fd, iov, 0));
	SAY(pwritev(fd, iov, 2, -2));
	SAY(pwritev2(fd, iov, 2, -2, 0));
	SAY(pwritev2(fd, iov, 2, 0, 0x40000000));
	SAY(pwritev2(fd, iov, 2, 0, RWF_DSYNC));
	SAY(pwritev2(fd, iov, 2, -1, 0));
	SAY(pwritev2(fd, iov, 2, 0, RWF_APPEND));
	SAY(lseek(fd, -1, SEEK_SET));
	SAY(lseek(fd, 0, 77));
	SAY(lseek(fd, 0, SEEK_END));
	SAY(ftruncate(fd, -1));
	SAY(ftruncate(reader, 10));
	SAY(fallocate(fd, 0, 0, 0));
	SAY(fallocate(fd, 0x4000, 0, 10));
	SAY(posix_fallocate(fd, -1, 10));
	SAY(posix_fallocate(reader, 0, 10));
	SAY(posix_fallocate(pipes[1], 0, 10));
	SAY(sync_file_range(fd, 0, 10, 0x100));
	SAY(sync_file_range(fd, -1, 10, 2));
	SAY(sync_file_range(fd, 0, 0, 7));
	SAY(fcntl(fd, 9999));
	SAY(fcntl(fd, F_DUPFD, -1));
	SAY(dup2(fd, -1));
	SAY(dup2(742, fd));
	SAY(dup3(fd, fd, 0));
	SAY(dup2(fd, fd) == fd);
	SAY(close(fd));
	SAY(close(fd));
	SAY(write(fd, block, 1));
	say_file("log.1");
}

static void limits(void)
{
	struct rlimit limit = { 6000, 6000 };
	int fd = log_file(0);

	signal(SIGXFSZ, SIG_IGN);
	MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	SAY(pwrite(fd, block, 4096, 4096));
	SAY(pwrite(fd, block, 4096, 8192));
	SAY(write(fd, block, 8192));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(fd, block, 1));
	SAY(ftruncate(fd, 7000));
	say_file("log.1");
}

static void position(void)
{
	struct iovec iov[3] = { { block, 7 }, { block + 7, 0 }, { block + 7, 500 } };
	char back[64] = { 0 };
	int fd = log_file(0);
	int copy = dup(fd);

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)('a' + i % 23);
	SAY(write(fd, block, 1000));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(copy, block, 24));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(pwrite(fd, block, 100, 5000));
	SAY(lseek(copy, 0, SEEK_CUR));
	SAY(writev(fd, iov, 3));
	SAY(lseek(copy, -20, SEEK_CUR));
	SAY(read(fd, back, 20));
	printf("%s\n", back);
	SAY(pwritev(copy, iov, 3, 3));
	SAY(lseek(copy, 10, SEEK_END));
	SAY(write(fd, "end", 3));
	SAY(lseek(fd, 4000, SEEK_SET));
	SAY(lseek(fd, 0, SEEK_HOLE));
	SAY(close(fd));
	SAY(write(copy, "more", 4));
	SAY(fdatasync(copy));
	say_file("log.1");
}

static void append(void)
{
	int fd = log_file(O_APPEND);
	int other = log_file(O_APPEND);

	SAY(write(fd, block, 100));
	SAY(write(other, block, 50));
	SAY(lseek(other, 0, SEEK_CUR));
	SAY(pwrite(fd, "middle", 6, 10)); /* Linux appends all the same */
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(lseek(fd, 0, SEEK_SET));
	SAY(write(fd, "end", 3));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(fcntl(fd, F_SETFL, 0));
	SAY(pwrite(fd, "start", 5, 0));
	say_file("log.1");
}

static void big(void)
{
	char *much = malloc(3 << 20);
	int fd = log_file(0);

	MUST(much);
	memset(much, 'm', 3 << 20);
	SAY(write(fd, much, 3 << 20)); /* beyond what one record may hold */
	SAY(pwrite(fd, block, 8192, 4096));
	SAY(pwrite(fd, much, 600000, INT64_C(5) << 30)); /* beyond 4 GiB */
	SAY(pwrite(fd, block, 512, (INT64_C(1) << 32) - 256));
	SAY(lseek(fd, 0, SEEK_END));
	SAY(ftruncate(fd, 4 << 20));
	SAY(fsync(fd));
	say_file("log.1");
	free(much);
}

static void sizes(void)
{
	int fd = log_file(0);

	SAY(pwrite(fd, block, 8192, 0));
	SAY(ftruncate(fd, 5000));
	SAY(pwrite(fd, "x", 1, 9000));
	say_file("log.1");
	SAY(fallocate(fd, 0, 0, 20000));
	SAY(fallocate(fd, 1 /* KEEP_SIZE */, 20000, 20000));
	SAY(fallocate(fd, 3 /* KEEP_SIZE | PUNCH_HOLE */, 100, 5000));
	say_file("log.1");
	SAY(fallocate(fd, 16 /* ZERO_RANGE */, 0, 50));
	SAY(posix_fallocate(fd, 0, 30000));
	SAY(truncate("log.1", 29000));
	SAY(write(fd, "abc", 3));
	SAY(fdatasync(fd));
	say_file("log.1");
	SAY_FD(open("log.1", O_WRONLY | O_TRUNC));
	SAY(pwrite(fd, "new", 3, 10));
	say_file("log.1");
	SAY_FD(open("log.1", O_RDONLY | O_TRUNC));
	say_file("log.1");
	SAY_FD(creat("log.1", 0600));
	SAY(truncate("log.1", 77));
	SAY(truncate("log.none", 77));
	say_file("log.1");
}

static void direct(void)
{
	char *p = aligned_alloc(4096, 8192);
	int fd = log_file(O_DIRECT | O_DSYNC);

	MUST(p);
	memset(p, 'd', 8192);
	SAY(pwrite(fd, p, 8192, 0));
	SAY(pwrite(fd, p, 4096, 8192));
	memset(p, 0, 8192);
	SAY(pread(fd, p, 8192, 4096));
	printf("%c%c\n", p[0], p[8191]);
	SAY(lseek(fd, 4096, SEEK_SET));
	SAY(read(fd, p, 4096));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(fdatasync(fd));
	say_file("log.1");
	free(p);
}

static void doors(void)
{
	static const char *const ways[] = { "log.1", "./log.1", "../" };
	char link[64], name[300];
	int fd = log_file(0);
	int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	SAY(pwrite(fd, "0", 1, 0));
	SAY(pwrite64(SAY_FD(open64(ways[0], O_WRONLY | O_CLOEXEC)), "1", 1, 1));
	SAY(pwrite(SAY_FD(openat(folder, ways[1], O_WRONLY | O_CLOEXEC)), "2", 1, 2));
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	fd = open(link, O_WRONLY | O_CLOEXEC);
	SAY(pwrite(fd, "3", 1, 3));
	MUST(symlink("log.1", "other-name") == 0);
	fd = SAY_FD(open("other-name", O_WRONLY | O_DSYNC | O_CLOEXEC));
	SAY(pwrite(fd, "4", 1, 4));
	fd = SAY_FD(open("/proc/self/cwd/log.1", O_WRONLY | O_CLOEXEC));
	SAY(pwrite(fd, "5", 1, 5));
	MUST(link[0] && linkat(AT_FDCWD, "log.1", AT_FDCWD, "hard-name", 0) == 0);
	fd = SAY_FD(open("hard-name", O_WRONLY | O_CLOEXEC));
	SAY(pwrite(fd, "6", 1, 6));
	/* a name with a space and a newline, and the longest one */
	fd = SAY_FD(open("log.5 a\nb", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	SAY(write(fd, "odd", 3));
	memset(name, 'n', sizeof(name));
	memcpy(name, "log.6", 5);
	name[255] = '\0';
	fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	SAY(write(fd, "long", 4));
	name[255] = 'n';
	name[299] = '\0';
	SAY_FD(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	say_file("log.1");
}

const struct say_case calls_cases[] = {
	{ "flags", flags },
	{ "descriptor-flags", descriptor_flags },
	{ "open-errors", open_errors },
	{ "errors", errors },
	{ "limits", limits },
	{ "position", position },
	{ "append", append },
	{ "big", big },
	{ "sizes", sizes },
	{ "direct", direct },
	{ "doors", doors },
	{ 0 },
};
