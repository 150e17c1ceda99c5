/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * doors FOLDER CASE: ways into log.1 (client/preload/doors.def); `doors list` names them. Prints what each call
 * returned, as `same` does, then waits for the end of stdin: killed there, its records are live.
 */
#include <aio.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "tests/preload/say.h"

#define INHERITED 50 /* the runner has opened log.1 there */

static int must_open(const char *path, int flags)
{
	int fd = open(path, O_CREAT | O_CLOEXEC | flags, 0640);

	MUST(fd >= 0);
	return fd;
}

/* Ours first, then the stranger over a part of it: a replay of ours alone would undo that. */
static void both_write(int ours, int stranger)
{
	SAY(pwrite(ours, "oooooooooooooooo", 16, 0));
	SAY(pwrite(stranger, "SSSS", 4, 4));
	SAY(fdatasync(stranger));
	SAY(fdatasync(ours));
}

static void renamed(void)
{
	int stranger = must_open("tmp", O_RDWR);

	SAY(pwrite(stranger, "0123456789abcdef", 16, 0));
	SAY(rename("tmp", "log.1"));
	both_write(must_open("log.1", O_RDWR), stranger);
}

static void renamed_alone(void)
{
	int stranger = must_open("tmp", O_RDWR);

	SAY(rename("tmp", "log.1"));
	SAY(pwrite(stranger, "alone", 5, 0));
}

static void renamed_closed(void)
{
	int fd = must_open("tmp", O_RDWR);

	SAY(pwrite(fd, "0123456789abcdef", 16, 0));
	SAY(close(fd));
	SAY(rename("tmp", "log.1"));
	fd = must_open("log.1", O_RDWR);
	SAY(pwrite(fd, "closed before", 13, 0));
}

static void exchanged(void)
{
	int stranger = must_open("tmp", O_RDWR), old = must_open("log.1", O_RDWR);

	SAY(pwrite(old, "old", 3, 0));
	SAY(renameat2(AT_FDCWD, "tmp", AT_FDCWD, "log.1", 2 /* EXCHANGE */));
	SAY(pwrite(old, "more", 4, 3));
	both_write(must_open("log.1", O_RDWR), stranger);
}

static void unnamed(void)
{
	int stranger = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0640);
	char link[64];

	MUST(stranger >= 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", stranger);
	MUST(linkat(AT_FDCWD, link, AT_FDCWD, "log.1", AT_SYMLINK_FOLLOW) == 0);
	both_write(must_open("log.1", O_RDWR), stranger);
}

static void made_by_libc(void)
{
	char name[] = "log.1XXXXXX";
	int stranger = mkstemp(name);

	MUST(stranger >= 0);
	both_write(must_open(name, O_RDWR), stranger);
	SAY(rename(name, "log.1"));
	SAY(pwrite(stranger, "T", 1, 6));
}

static void mapped_before(void)
{
	int fd = must_open("tmp", O_RDWR);
	char *p;

	MUST(ftruncate(fd, 4096) == 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	SAY(close(fd));
	SAY(rename("tmp", "log.1"));
	fd = must_open("log.1", O_RDWR);
	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	memcpy(p + 4, "SSSS", 4);
	SAY(msync(p, 4096, MS_SYNC));
}

static void made_writable(void)
{
	int fd = must_open("log.1", O_RDWR);
	char *p;

	MUST(ftruncate(fd, 8192) == 0);
	p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED);
	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	SAY(mprotect(p, 4096, PROT_READ | PROT_WRITE));
	memcpy(p + 4, "SSSS", 4);
	SAY(pwrite(fd, "after", 5, 16));
	SAY(msync(p, 4096, MS_SYNC));
}

static void mapped_to_read(void)
{
	int fd = must_open("log.1", O_RDWR);
	char *other = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p;

	MUST(ftruncate(fd, 4096) == 0);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	MUST(p != MAP_FAILED && other != MAP_FAILED);
	SAY(mprotect(other, 4096, PROT_READ | PROT_WRITE));
	SAY(pwrite(fd, "seen", 4, 0));
	printf("%.4s\n", p);
}

static void inherited(void)
{
	both_write(must_open("log.1", O_RDWR), INHERITED);
}

static void reopened(void)
{
	int fd = must_open("log.1", O_RDWR);
	FILE *f = fopen("other", "w");

	MUST(f);
	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	MUST(freopen("log.1", "r+", f));
	SAY(fputs("SSSS", f) >= 0);
	SAY(fflush(f));
	MUST(freopen("log.1", "w", f));
	SAY(fputs("anew", f) >= 0);
	SAY(fflush(f));
	SAY(pwrite(fd, "more", 4, 4));
	printf("%s\n", freopen("none/log.1", "w", f) ? "open" : strerrorname_np(errno));
}

static void by_libc_threads(void)
{
	int fd = must_open("log.1", O_RDWR);
	struct aiocb request = { .aio_fildes = fd, .aio_offset = 4, .aio_nbytes = 4 };
	const struct aiocb *list[1] = { &request };
	static char bytes[] = "SSSS";

	request.aio_buf = bytes;
	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	SAY(aio_write(&request));
	while (aio_error(&request) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	SAY(aio_return(&request));
}

static void spawn(bool by_name)
{
	static char shell[] = "sh", option[] = "-c", command[] = "printf SSSS";
	char *argv[] = { shell, option, command, NULL };
	char *none[] = { NULL };
	int fd = must_open("log.1", O_RDWR);
	posix_spawn_file_actions_t actions;
	pid_t pid;

	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	SAY(lseek(fd, 4, SEEK_SET));
	posix_spawn_file_actions_init(&actions);
	if (by_name)
		SAY(posix_spawn_file_actions_addopen(&actions, 1, "log.1", O_WRONLY, 0));
	else
		SAY(posix_spawn_file_actions_adddup2(&actions, fd, 1));
	MUST(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, none) == 0);
	MUST(waitpid(pid, NULL, 0) == pid);
	SAY(pwrite(fd, "after", 5, 16));
}

static void spawn_open(void)
{
	spawn(true);
}

static void spawn_dup(void)
{
	spawn(false);
}

static void crash_words(void)
{
	int fd = must_open("log.1", O_RDWR);
	void *none[1] = { NULL };

	SAY(pwrite(fd, "oooo", 4, 0));
	SAY(lseek(fd, 4, SEEK_SET));
	backtrace_symbols_fd(none, 1, fd);
}

static __attribute__((format(printf, 2, 3))) int say_with(int fd, const char *format, ...)
{
	va_list ap;
	int r;

	va_start(ap, format);
	r = vdprintf(fd, format, ap);
	va_end(ap);
	return r;
}

/* What dprintf becomes with _FORTIFY_SOURCE. */
extern int __dprintf_chk(int fd, int chk, const char *format, ...);

static void printed(void)
{
	int fd = must_open("log.1", O_RDWR);

	SAY(dprintf(fd, "%s %d\n", "one", 1));
	SAY(say_with(fd, "%s %d\n", "two", 2));
	SAY(dprintf(fd, "%s", ""));
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(__dprintf_chk(fd, 1, "%s %d\n", "three", 3));
	SAY(dprintf(742, "x"));
}

static void by_number(void)
{
	struct iovec iov = { (char[]){ "vector" }, 6 };
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "log.1", O_RDWR | O_CREAT | O_DSYNC | O_CLOEXEC,
			      0640);
	int copy;

	MUST(fd >= 0);
	SAY(syscall(SYS_write, fd, "write ", 6L));
	SAY(syscall(SYS_pwrite64, fd, "pwrite ", 7L, 6L));
	SAY(syscall(SYS_lseek, fd, 0L, SEEK_END));
	SAY(syscall(SYS_writev, fd, &iov, 1L));
	SAY(syscall(SYS_pwritev, fd, &iov, 1L, 20L, 0L));
	SAY(syscall(SYS_pwritev2, fd, &iov, 1L, 30L, 0L, RWF_DSYNC));
	SAY(syscall(SYS_fsync, fd));
	copy = (int)syscall(SYS_dup, fd);
	SAY(syscall(SYS_close, fd));
	SAY(syscall(SYS_ftruncate, copy, 34L));
	SAY(syscall(SYS_pwrite64, copy, "last", 4L, 40L));
	SAY(syscall(SYS_rename, "log.1", "log.2"));
	SAY(syscall(SYS_rename, "log.2", "log.1"));
	SAY(syscall(SYS_fcntl, copy, F_GETFL) & O_DSYNC);
	SAY(syscall(SYS_write, 742, "x", 1L));
	SAY(syscall(SYS_pwrite64, copy, "x", 1L, -1L));
	SAY(syscall(9999L));
}

/* In libc since 2.43; before, the preload library brings it. */
extern int openat2(int dir, const char *path, const struct open_how *how, size_t size)
	__attribute__((weak));

static void by_openat2(void)
{
	struct open_how how = { .flags = O_RDWR | O_CREAT | O_CLOEXEC, .mode = 0640 };
	int fd = openat2 ? openat2(AT_FDCWD, "log.1", &how, sizeof(how))
			 : (int)syscall(SYS_openat2, AT_FDCWD, "log.1", &how, sizeof(how));

	MUST(fd >= 0);
	SAY(pwrite(fd, "first, and long", 15, 0));
	how = (struct open_how){ .flags = O_WRONLY | O_TRUNC | O_CLOEXEC,
				 .resolve = RESOLVE_NO_SYMLINKS };
	fd = (int)syscall(SYS_openat2, AT_FDCWD, "log.1", &how, sizeof(how));
	MUST(fd >= 0);
	SAY(pwrite(fd, "second", 6, 0));
	how.mode = 0640;
	SAY(syscall(SYS_openat2, AT_FDCWD, "log.1", &how, sizeof(how)));
	how.mode = 0;
	how.flags |= UINT64_C(1) << 40;
	SAY(syscall(SYS_openat2, AT_FDCWD, "log.1", &how, sizeof(how)));
	MUST(symlink("log.1", "link") == 0);
	how.flags = O_WRONLY | O_TRUNC;
	SAY(syscall(SYS_openat2, AT_FDCWD, "link", &how, sizeof(how)));
	SAY(syscall(SYS_openat2, AT_FDCWD, "log.1", &how, 8L));
}

static void by_handle(void)
{
	union {
		struct file_handle head;
		char room[sizeof(struct file_handle) + 128];
	} h = { .head.handle_bytes = 128 };
	int first = must_open("log.1", O_RDWR), folder = open(".", O_RDONLY | O_CLOEXEC), mount, fd;

	SAY(pwrite(first, "oooooooooooooooo", 16, 0));
	MUST(folder >= 0 && name_to_handle_at(AT_FDCWD, "log.1", &h.head, &mount, 0) == 0);
	fd = open_by_handle_at(folder, &h.head, O_RDWR | O_CLOEXEC);
	MUST(fd >= 0);
	SAY(pwrite(fd, "SSSS", 4, 4));
	fd = open_by_handle_at(folder, &h.head, O_WRONLY | O_TRUNC | O_CLOEXEC);
	SAY(pwrite(fd, "anew", 4, 4));
}

static void requests(void)
{
	int fd = must_open("log.1", O_RDWR), other = must_open("other", O_RDWR), reader, flags = 0;
	int number;

	SAY(pwrite(fd, "oooooooooooooooo", 16, 0));
	MUST(pwrite(other, "SSSSSSSS", 8, 0) == 8);
	SAY(ioctl(fd, FS_IOC_GETFLAGS, &flags));
	reader = open("log.1", O_RDONLY | O_CLOEXEC);
	flags |= FS_NODUMP_FL;
	SAY(ioctl(reader, FS_IOC_SETFLAGS, &flags));
	SAY(ioctl(fd, FIONREAD, &number));
	SAY(ioctl(fd, 0x7777, NULL));
	SAY(ioctl(fd, FIOCLEX));
	SAY(isatty(fd));
	/* the file system decides, and both times it is the same one */
	SAY(ioctl(fd, FICLONE, other));
	SAY(pwrite(fd, "after", 5, 0));
}

static void flagged(void)
{
	static const int some[] = { RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_APPEND };
	struct iovec iov = { (char[]){ "12345678" }, 8 };
	char back[8] = "";
	struct iovec in = { back, 4 };
	int fd = must_open("log.1", O_RDWR);

	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		SAY(pwritev2(fd, &iov, 1, (off_t)(3 - i) * 8, some[i]));
	SAY(lseek(fd, 4, SEEK_SET));
	SAY(preadv2(fd, &in, 1, -1, 0));
	SAY(preadv2(fd, &in, 1, 2, 0));
	SAY(preadv2(fd, &in, 1, -1, 0x40000000));
	SAY(lseek(fd, 0, SEEK_CUR));
	printf("%.4s\n", back);
	SAY(pwritev2(fd, &iov, 1, -1, 0));
	sync();
	SAY(syncfs(fd));
}

/* A record lock of the program's hangs on a descriptor that the library knows nothing of. */
static void lock_kept(void)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	int fd = must_open("log.1", O_RDWR), reader;
	int status;

	SAY(pwrite(fd, "0123456789", 10, 0));
	SAY(close(fd));
	reader = open("log.1", O_RDONLY | O_CLOEXEC);
	SAY(fcntl(reader, F_SETLK, &lock));
	for (int i = 0; i < 3; i++) {
		SAY(truncate("log.1", 9 - i));
		SAY(rename("log.1", "log.2"));
		SAY(rename("log.2", "log.1"));
		SAY(chmod("log.1", 0600));
	}
	fflush(stdout);
	if (fork() == 0) {
		struct flock seen = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

		fcntl(reader, F_GETLK, &seen);
		_exit(seen.l_type == F_RDLCK ? 0 : 1);
	}
	MUST(wait(&status) > 0);
	printf("lock: %d\n", WEXITSTATUS(status));
	fd = must_open("log.1", O_RDWR);
	SAY(pwrite(fd, "end", 3, 0));
}

static void *open_often(void *arg)
{
	long bad = 0;

	(void)arg;
	for (int i = 0; i < 40; i++) {
		int fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC, 0640);

		bad += fd < 0 || pwrite(fd, "x", 1, i) != 1 || close(fd) != 0;
	}
	return (void *)bad;
}

/* Opens of one file side by side are no strangers to each other. */
static void side_by_side(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		MUST(pthread_create(&threads[i], NULL, open_often, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		SAY((long)bad);
	}
}

static int held, listener; /* a descriptor, and where its close is told of */

/* Its own close of `held` stands still until somebody lets it go on. */
static void *close_slowly(void *arg)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)held, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	long fd;

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
		     &program);
	MUST(fd >= 0);
	atomic_store_release((int *)arg, (int)fd);
	return (void *)(long)close(held);
}

static void *let_go_on(void *arg)
{
	struct seccomp_notif_resp answer = { .id = *(uint64_t *)arg,
					     .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

	(void)usleep(50000);
	MUST(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0);
	return NULL;
}

/* Opened while another thread is in the middle of its close. */
static void closed_beside(void)
{
	struct seccomp_notif told = { .id = 0 };
	pthread_t closer, other;
	int theirs = -1, fd;
	uint64_t id;
	void *r;

	held = must_open("log.1", O_RDWR);
	SAY(pwrite(held, "before", 6, 0));
	MUST(pthread_create(&closer, NULL, close_slowly, &theirs) == 0);
	while (atomic_load_acquire(&theirs) < 0)
		(void)usleep(1000);
	listener = theirs;
	MUST(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &told) == 0);
	id = told.id;
	MUST(pthread_create(&other, NULL, let_go_on, &id) == 0);
	fd = must_open("log.1", O_RDWR);
	SAY(pwrite(fd, "beside", 6, 6));
	MUST(pthread_join(closer, &r) == 0 && pthread_join(other, NULL) == 0);
	SAY((long)r);
	SAY(pwrite(fd, "behind", 6, 12));
}

static const struct say_case cases[] = {
	{ "renamed", renamed },
	{ "renamed-alone", renamed_alone },
	{ "renamed-closed", renamed_closed },
	{ "exchanged", exchanged },
	{ "unnamed", unnamed },
	{ "made-by-libc", made_by_libc },
	{ "mapped-before", mapped_before },
	{ "made-writable", made_writable },
	{ "mapped-to-read", mapped_to_read },
	{ "inherited", inherited },
	{ "reopened", reopened },
	{ "by-libc-threads", by_libc_threads },
	{ "spawn-open", spawn_open },
	{ "spawn-dup", spawn_dup },
	{ "crash-words", crash_words },
	{ "printed", printed },
	{ "by-number", by_number },
	{ "by-openat2", by_openat2 },
	{ "by-handle", by_handle },
	{ "requests", requests },
	{ "flagged", flagged },
	{ "lock-kept", lock_kept },
	{ "side-by-side", side_by_side },
	{ "closed-beside", closed_beside },
	{ 0 },
};

static const struct say_case *const lists[] = { cases, changes_cases, rings_cases };

static const struct say_case *find(const char *name)
{
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (const struct say_case *c = lists[i]; c->name; c++)
			if (!name)
				puts(c->name);
			else if (strcmp(c->name, name) == 0)
				return c;
	return NULL;
}

int main(int argc, char **argv)
{
	const struct say_case *c;
	char byte;

	if (argc == 2 && strcmp(argv[1], "list") == 0) {
		(void)find(NULL);
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3 || chdir(argv[1]) < 0)
		return 64;
	c = find(argv[2]);
	if (!c)
		return 64;
	c->run();
	puts("done");
	(void)!read(0, &byte, 1);
	return 0;
}
