/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Calls on a descriptor: flags, errors, positions, sizes, mappings, streams, copies. */
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "tests/preload/say.h"

#define SHOWN (O_ACCMODE | O_APPEND | O_DIRECT | O_DSYNC | O_SYNC | O_NONBLOCK)

static char block[8192] __attribute__((aligned(4096)));

static int log_file(int flags)
{
	int fd;

	memset(block, 'b', sizeof(block));
	fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC | flags, 0640);
	MUST(fd >= 0);
	return fd;
}

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

static void mapped(void)
{
	int fd = log_file(0);
	char *p;

	SAY(ftruncate(fd, 8192));
	/* a disk's file: refused by the kernel, and by the library everywhere */
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	printf("MAP_SYNC: %s\n", p == MAP_FAILED ? strerrorname_np(errno) : "mapped");
	SAY(pwrite(fd, block, 4096, 0));
	p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	printf("%c\n", p[4095]);
	SAY(pwrite(fd, "q", 1, 4095));
	printf("%c\n", p[4095]);
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	p[100] = 'z';
	SAY(pwrite(fd, "y", 1, 101));
	printf("%c%c\n", p[100], p[101]);
	SAY(msync(p, 8192, MS_SYNC));
	SAY(fdatasync(fd));
	say_file("log.1");
}

static void stream(void)
{
	int fd = log_file(0);
	int other;
	FILE *f;

	SAY(write(fd, "one\n", 4));
	f = fdopen(fd, "r+");
	MUST(f);
	SAY(fseek(f, 0, SEEK_END));
	SAY(fprintf(f, "two\n"));
	SAY(fflush(f));
	SAY(fsync(fileno(f)));
	SAY(write(fd, "three\n", 6));
	SAY(fclose(f));
	fd = log_file(O_DSYNC | O_APPEND);
	f = fdopen(fd, "a");
	MUST(f);
	SAY(fcntl(fileno(f), F_GETFL) & SHOWN);
	SAY(fprintf(f, "synced\n"));
	SAY(fclose(f));
	/* the number belongs to something else now */
	other = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	SAY(other == fd);
	SAY(write(other, "four", 4));
	SAY(fsync(other));
	say_file("log.1");
	say_file("plain");
}

/* fopen: libc's own open is seen by nobody. */
static void files(void)
{
	int fd = log_file(0);
	char line[32] = "";
	FILE *f;

	SAY(pwrite(fd, "0123456789", 10, 0));
	SAY(close(fd));
	f = fopen("log.1", "r+e");
	MUST(f);
	SAY(fputs("AB", f) >= 0);
	SAY(fflush(f));
	SAY(fsync(fileno(f)));
	SAY(fcntl(fileno(f), F_GETFD));
	SAY(fclose(f));
	say_file("log.1");
	f = fopen("log.1", "a");
	MUST(f);
	SAY(fcntl(fileno(f), F_GETFL) & SHOWN);
	SAY(fcntl(fileno(f), F_GETFD));
	SAY(fprintf(f, "end\n"));
	SAY(fclose(f));
	f = fopen("log.1", "r");
	MUST(f && fgets(line, sizeof(line), f));
	printf("%s", line);
	SAY(fputs("no", f));
	SAY(fclose(f));
	say_file("log.1");
	f = fopen("log.1", "w");
	MUST(f);
	SAY(fprintf(f, "new"));
	SAY(fclose(f));
	say_file("log.1");
	printf("%s\n", fopen("log.1", "wx") ? "open" : strerrorname_np(errno));
	printf("%s\n", fopen("none/log.1", "w") ? "open" : strerrorname_np(errno));
	printf("%s\n", fopen("log.none", "r+") ? "open" : strerrorname_np(errno));
	printf("%s\n", fopen("log.1", "z") ? "open" : strerrorname_np(errno));
	f = fopen("log.3", "wx");
	MUST(f);
	SAY(fprintf(f, "created"));
	SAY(fclose(f));
	say_file("log.3");
	fd = log_file(0);
	SAY(pwrite(fd, "after", 5, 20));
	SAY(fdatasync(fd));
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

static void copies(void)
{
	int fd = log_file(0);
	int plain = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	off_t in = 10, out = 300;
	int pipes[2];

	MUST(plain >= 0 && pipe(pipes) == 0);
	MUST(write(plain, block, 4096) == 4096);
	SAY(pwrite(fd, "before", 6, 0));
	SAY(copy_file_range(plain, &in, fd, &out, 1000, 0));
	printf("%ld %ld\n", (long)in, (long)out);
	SAY(lseek(fd, 2000, SEEK_SET));
	in = 0;
	SAY(sendfile(fd, plain, &in, 500));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(pipes[1], block, 700));
	out = 100;
	SAY(splice(pipes[0], NULL, fd, &out, 600, 0));
	SAY(splice(pipes[0], NULL, fd, NULL, 100, 0));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(write(fd, "after", 5));
	/* out of it */
	in = 0;
	out = 0;
	SAY(copy_file_range(fd, &in, plain, &out, 100, 0));
	SAY(fsync(fd));
	say_file("log.1");
	say_file("plain");
}

/* In no library that this program has; the preload library brings them. */
extern int io_submit(aio_context_t context, long n, struct iocb **requests) __attribute__((weak));

static void aio(void)
{
	struct iocb request = { .aio_lio_opcode = IOCB_CMD_PWRITE };
	struct iocb *list[1] = { &request };
	struct io_event event = { 0 };
	aio_context_t context = 0;
	int fd = log_file(O_DSYNC);

	SAY(pwrite(fd, block, 100, 0));
	MUST(syscall(SYS_io_setup, 4, &context) == 0);
	request.aio_fildes = (uint32_t)fd;
	request.aio_buf = (uintptr_t)block;
	request.aio_nbytes = 4096;
	request.aio_offset = 50;
	if (io_submit)
		SAY(io_submit(context, 1, list));
	else
		printf("io_submit(context, 1, list) = %ld \n",
		       syscall(SYS_io_submit, context, 1L, list));
	MUST(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL) == 1);
	printf("%ld\n", (long)event.res);
	SAY(pwrite(fd, block, 10, 5000));
	SAY(fdatasync(fd));
	syscall(SYS_io_destroy, context);
	say_file("log.1");
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
	{ "mapped", mapped },
	{ "stream", stream },
	{ "files", files },
	{ "direct", direct },
	{ "copies", copies },
	{ "doors", doors },
	{ "aio", aio },
	{ 0 },
};
