/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* living FOLDER CASE: what a process does to a library that lives in it. Prints as `same` does. */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "tests/preload/early.h"
#include "tests/preload/say.h"

#define OPENS	100000
#define CANCELS 450
#define SECONDS 60
#define LIMIT	40
#define FORKS	20
#define WRITERS 4

static int log_file(int number)
{
	char name[32];

	snprintf(name, sizeof(name), "log.%d", number);
	return open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
}

static void plain(void)
{
	char *p = malloc(100000);
	int fd = log_file(1);

	MUST(fd >= 0 && p);
	memset(p, 'p', 100000);
	for (int i = 0; i < 50; i++)
		MUST(pwrite(fd, p + i, 1000, i * 1000) == 1000 && fdatasync(fd) == 0);
	free(p);
	say_file("log.1");
}

static void opens(void)
{
	long bad = 0;

	for (int i = 0; i < OPENS; i++) {
		int fd = log_file(i % 8);

		bad += fd < 0 || (i % 100 == 0 && pwrite(fd, "x", 1, i) != 1) || close(fd) != 0;
	}
	SAY(bad);
	plain();
}

/* No descriptor is left: the error is the kernel's, and what is open goes on. */
static void limit(void)
{
	const struct rlimit low = { LIMIT, LIMIT };
	static int fds[LIMIT + 1];
	int n = 0;
	long bad = 0;

	MUST(setrlimit(RLIMIT_NOFILE, &low) == 0);
	while (n <= LIMIT && (fds[n] = log_file(n)) >= 0)
		n++;
	printf("%s\n", strerrorname_np(errno));
	MUST(n > 10);
	for (int i = 0; i < n; i++)
		bad += pwrite(fds[i], "full", 4, 0) != 4 || fdatasync(fds[i]) != 0;
	SAY(bad);
	SAY(rename("log.1", "log.99"));
	SAY(unlink("log.2"));
	for (int i = 1; i < n; i++)
		bad += close(fds[i]) != 0;
	SAY(bad);
	SAY(pwrite(fds[0], "still", 5, 4));
	plain();
}

static void *write_on(void *arg)
{
	int fd = *(int *)arg;

	for (int i = 0;; i++)
		if (pwrite(fd, "cancelled", 9, i % 64 * 9) != 9 || fdatasync(fd) != 0)
			exit(3);
	return NULL;
}

static void *sync_on(void *arg)
{
	int fd = *(int *)arg;

	while (fdatasync(fd) == 0 && fsync(fd) == 0)
		;
	exit(3);
}

static void *read_on(void *arg)
{
	int fd = *(int *)arg;
	char byte;

	while (read(fd, &byte, 1) >= 0)
		;
	exit(3);
}

/* A thread that is cancelled inside a call leaves no lock behind; each of these calls ends one by itself. */
static void cancelled(void)
{
	static void *(*const ways[])(void *) = { write_on, sync_on, read_on };
	int fd = log_file(1);
	long bad = 0;

	alarm(SECONDS); /* one that does not end is a failure, and no wait for ever */
	for (int i = 0; i < CANCELS; i++) {
		pthread_t thread;
		void *how;

		MUST(pthread_create(&thread, NULL, ways[i % 3], &fd) == 0);
		usleep((useconds_t)(i % 10) * 100);
		bad += pthread_cancel(thread) != 0;
		MUST(pthread_join(thread, &how) == 0);
		bad += how != PTHREAD_CANCELED || pwrite(fd, "between", 7, 1000 + i * 7) != 7;
	}
	SAY(bad);
	plain();
}

static void before_us(void)
{
	int fd = log_file(1);

	MUST(early_fd >= 0);
	SAY(pwrite(fd, "oooooooooo", 10, 5));
	SAY(pwrite(early_fd, "early", 5, 8));
	SAY(fdatasync(early_fd));
	say_file("log.1");
}

/* A filter that knows nothing of our socket. */
static void no_socket(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
	plain();
}

static uint32_t forked; /* atomic: the children are done */

static void *write_until_forked(void *arg)
{
	int fd = *(int *)arg;
	long bad = 0;

	for (int i = 0; i < 100 || !atomic_load_acquire(&forked); i++) {
		void *p = malloc((size_t)(1 + i % 4000));

		bad += !p || pwrite(fd, "threads", 7, i % 50 * 7) != 7 ||
		       (i % 8 == 0 && fdatasync(fd) != 0);
		free(p);
	}
	return (void *)bad;
}

/* A child of one of many threads: those that held locks of ours, or of malloc's, are not in it. */
static void threads_fork(void)
{
	int shared = log_file(1), own = log_file(2);
	pthread_t threads[WRITERS];
	long bad = 0;

	for (int i = 0; i < WRITERS; i++)
		MUST(pthread_create(&threads[i], NULL, write_until_forked, &shared) == 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			bool good = pwrite(shared, "child", 5, 1000 + i * 5) == 5 &&
				    fdatasync(shared) == 0 && pwrite(own, "child", 5, i * 5) == 5;
			int fd = log_file(3);

			good &= fd >= 0 && pwrite(fd, "third", 5, i * 5) == 5 && close(fd) == 0;
			_exit(good ? 0 : 1);
		}
		MUST(pid > 0 && waitpid(pid, &status, 0) == pid);
		bad += status != 0;
	}
	atomic_store_release(&forked, 1);
	for (int i = 0; i < WRITERS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		bad += (long)failed;
	}
	SAY(bad);
	say_file("log.1");
	say_file("log.2");
	say_file("log.3");
}

/* Of libc's insides: a program that was built long ago, or by way of them, asks for these. */
extern ssize_t __pwrite64(int fd, const void *bytes, size_t n, off_t offset);
extern ssize_t __write(int fd, const void *bytes, size_t n);
extern int __open64(const char *path, int flags, ...);
extern off_t __lseek(int fd, off_t offset, int whence);
extern int __close(int fd);
extern int __dup2(int fd, int onto);
extern int __fcntl(int fd, int command, ...);

static void old_names(void)
{
	int fd = __open64("log.1", O_RDWR | O_CREAT | O_CLOEXEC | O_DSYNC, 0640);
	/* stat before glibc 2.33: no new program can be linked to them */
	int (*fxstat)(int, int, struct stat *);
	int (*xstat)(int, const char *, struct stat *);
	void *found[2] = { dlvsym(RTLD_DEFAULT, "__fxstat", "GLIBC_2.2.5"),
			   dlvsym(RTLD_DEFAULT, "__xstat", "GLIBC_2.2.5") };
	struct stat st = { 0 };

	MUST(fd >= 0);
	SAY(__write(fd, "0123456789", 10));
	SAY(__pwrite64(fd, "abcde", 5, 20));
	MUST(found[0] && found[1]);
	memcpy(&fxstat, &found[0], sizeof(fxstat));
	memcpy(&xstat, &found[1], sizeof(xstat));
	SAY(fxstat(1, fd, &st));
	printf("%ld\n", (long)st.st_size);
	SAY(__lseek(fd, 0, SEEK_CUR));
	SAY(__fcntl(fd, F_GETFL) & O_DSYNC);
	SAY(__dup2(fd, 100) == 100);
	SAY(__close(fd));
	SAY(__write(100, "more", 4));
	SAY(__pwrite64(100, "end", 3, 30));
	SAY(xstat(1, "log.1", &st));
	printf("%ld\n", (long)st.st_size);
	say_file("log.1");
}

static const struct say_case cases[] = {
	{ "plain", plain },
	{ "opens", opens },
	{ "limit", limit },
	{ "cancelled", cancelled },
	{ "before-us", before_us },
	{ "no-socket", no_socket },
	{ "threads-fork", threads_fork },
	{ "old-names", old_names },
	{ 0 },
};

void say_file(const char *path)
{
	static char buffer[2048];
	unsigned sum = 0;
	long size = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	MUST(fd >= 0);
	while ((n = pread(fd, buffer, sizeof(buffer), size)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			sum = sum * 31 + (unsigned char)buffer[i];
		size += n;
	}
	close(fd);
	printf("%s: %ld bytes, sum %08x\n", path, size, sum);
}

int main(int argc, char **argv)
{
	if (argc != 3 || chdir(argv[1]) < 0)
		return 64;
	for (const struct say_case *c = cases; c->name; c++) {
		if (strcmp(c->name, argv[2]) == 0) {
			c->run();
			return 0;
		}
	}
	return 64;
}
