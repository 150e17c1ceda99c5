/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ways into a file beside write: mappings, streams, copies inside the kernel, asynchronous writes. */
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#include "tests/preload/logfile.h"

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

const struct say_case past_cases[] = {
	{ "mapped", mapped }, { "stream", stream }, { "files", files },
	{ "copies", copies }, { "aio", aio },	    { 0 },
};
