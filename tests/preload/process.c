/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Processes and threads: fork, vfork, exec, shared descriptors, closing everything. */
#include <linux/close_range.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/preload/say.h"

static int log_file(int flags)
{
	int fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC | flags, 0640);

	MUST(fd >= 0);
	return fd;
}

static void wait_good(pid_t pid)
{
	int status = -1;

	MUST(waitpid(pid, &status, 0) == pid);
	printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

static void forks(void)
{
	int fd = log_file(0);
	pid_t pid;

	SAY(write(fd, "parent ", 7));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		pid_t deeper;

		if (write(fd, "child ", 6) != 6 || fdatasync(fd) != 0)
			_exit(1);
		deeper = fork();
		if (deeper == 0)
			_exit(write(fd, "grandchild ", 11) == 11 ? 0 : 1);
		_exit(waitpid(deeper, NULL, 0) == deeper ? 0 : 2);
	}
	wait_good(pid);
	SAY(write(fd, "parent", 6));
	SAY(lseek(fd, 0, SEEK_CUR));
	say_file("log.1");
	/* the parent ends first: its child goes on */
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid == 0) {
			usleep(20000);
			_exit(pwrite(fd, "orphan", 6, 100) == 6 && fsync(fd) == 0 ? 0 : 1);
		}
		_exit(0);
	}
	wait_good(pid);
	usleep(200000);
	say_file("log.1");
}

#define LINES 400

static void append_lines(int fd, char letter)
{
	char line[32];

	memset(line, letter, sizeof(line));
	line[31] = '\n';
	for (int i = 0; i < LINES; i++)
		if (write(fd, line, sizeof(line)) != sizeof(line))
			_exit(1);
}

/* Two processes, each with its own description, append: all lines are there, none is torn. */
static void appenders(void)
{
	int counts[128] = { 0 };
	pid_t children[3];
	char line[32];
	FILE *f;

	fflush(stdout);
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			append_lines(log_file(O_APPEND), (char)('a' + i));
			_exit(0);
		}
	}
	for (int i = 0; i < 3; i++)
		wait_good(children[i]);
	f = fopen("log.1", "r");
	MUST(f);
	while (fread(line, 1, sizeof(line), f) == sizeof(line)) {
		bool whole = line[31] == '\n';

		for (int i = 1; i < 31; i++)
			whole &= line[i] == line[0];
		counts[whole ? line[0] & 127 : 0]++;
	}
	fclose(f);
	printf("torn %d a %d b %d c %d\n", counts[0], counts['a'], counts['b'], counts['c']);
}

struct writer {
	pthread_t thread;
	int fd;
	int number;
	int failed;
};

static void *write_blocks(void *arg)
{
	struct writer *w = arg;
	char bytes[700];

	memset(bytes, 'A' + w->number, sizeof(bytes));
	for (int i = 0; i < 300; i++) {
		off_t at = (i * 8 + w->number) * (off_t)sizeof(bytes);

		if (pwrite(w->fd, bytes, sizeof(bytes), at) != sizeof(bytes) ||
		    (i % 16 == 0 && fdatasync(w->fd) != 0))
			w->failed++;
	}
	return NULL;
}

static void threads(void)
{
	struct writer w[8];
	int fd = log_file(0);

	for (int i = 0; i < 8; i++) {
		w[i] = (struct writer){ .fd = i % 2 ? fd : dup(fd), .number = i };
		MUST(pthread_create(&w[i].thread, NULL, write_blocks, &w[i]) == 0);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(w[i].thread, NULL);
		SAY(w[i].failed);
	}
	say_file("log.1");
}

#define MOVES 4000

/* Moves the position of the description that all of them share, and counts by how much. */
struct mover {
	pthread_t thread;
	int fd, way;
	long moved;
};

static volatile int moving; /* readers at work; the writer goes on until there is none */

static void *move(void *arg)
{
	struct mover *m = arg;
	char byte;
	struct iovec iov = { &byte, 1 };

	for (int i = 0; m->way == 0 ? moving > 0 : i < MOVES; i++) {
		switch (m->way) {
		case 0:
			m->moved += write(m->fd, "w", 1);
			break;
		case 1:
			m->moved += read(m->fd, &byte, 1);
			break;
		case 2:
			m->moved += readv(m->fd, &iov, 1);
			break;
		case 3:
			m->moved += preadv2(m->fd, &iov, 1, -1, 0);
			break;
		default:
			m->moved += lseek(m->fd, 1, SEEK_CUR) < 0 ? 0 : 1;
			break;
		}
	}
	if (m->way)
		__atomic_sub_fetch(&moving, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* One thread writes at the position, another reads or seeks: none of their steps is lost. */
static void position_shared(void)
{
	int fd = log_file(0);
	struct mover m[2];

	MUST(ftruncate(fd, 1 << 30) == 0);
	for (int way = 1; way < 5; way++) {
		MUST(lseek(fd, 0, SEEK_SET) == 0);
		moving = 1;
		for (int i = 0; i < 2; i++) {
			m[i] = (struct mover){ .fd = fd, .way = i ? way : 0 };
			MUST(pthread_create(&m[i].thread, NULL, move, &m[i]) == 0);
		}
		for (int i = 0; i < 2; i++)
			pthread_join(m[i].thread, NULL);
		SAY(m[1].moved);
		SAY(lseek(fd, 0, SEEK_CUR) - m[0].moved - m[1].moved);
	}
}

static void spawns(void)
{
	static char word[] = "true";
	char *const argv[] = { word, NULL };
	int fd = log_file(0);

	for (int i = 0; i < 100; i++) {
		pid_t pid;

		MUST(pwrite(fd, "spawn", 5, i * 5) == 5);
		MUST(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0);
		MUST(waitpid(pid, NULL, 0) == pid);
		pid = vfork();
		if (pid == 0) {
			/* in the parent's memory: its descriptors must stay what they are */
			close(fd);
			execve("/bin/true", argv, environ);
			_exit(1);
		}
		MUST(waitpid(pid, NULL, 0) == pid);
	}
	/* Opened, redirected and closed by a vfork child: the parent's descriptors stay what they are. */
	if (vfork() == 0) {
		int other = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		close(fd);
		other = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		dup2(other, 1);
		execve("/bin/true", (char *[]){ word, NULL }, environ);
		_exit(1);
	}
	MUST(wait(NULL) > 0);
	SAY(write(fd, "vfork", 5));
	/* a rule's file as standard output of another program */
	fflush(stdout);
	if (fork() == 0) {
		dup2(fd, 1);
		execl("/bin/echo", "echo", "from echo", (char *)NULL);
		_exit(1);
	}
	MUST(wait(NULL) > 0);
	SAY(system("exit 3"));
	SAY(write(fd, "after", 5));
	SAY(fcntl(fd, F_GETFL) & O_ACCMODE);
	say_file("log.1");
}

static void closing(void)
{
	int fd = log_file(0), copy, saved;

	SAY(write(fd, "one", 3));
	/* as a daemon does: everything above stderr */
	for (int i = 3; i < 3000; i++)
		close(i);
	SAY(write(fd, "no", 2));
	fd = log_file(0);
	SAY(pwrite(fd, "two", 3, 3));
	SAY(close_range(3, ~0u, 0));
	SAY(pwrite(fd, "no", 2, 3));
	fd = log_file(0);
	SAY(pwrite(fd, "three", 5, 6));
	SAY(fcntl(fd, F_DUPFD, 50) == 50);
	SAY(fcntl(50, F_GETFD));
	SAY(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC));
	SAY(fcntl(50, F_GETFD));
	SAY(close_range(3, 2, 0));
	SAY(close_range(3, ~0u, 0x4000));
	SAY(pwrite(fd, "four", 4, 11));
	closefrom(3);
	SAY(pwrite(fd, "no", 2, 3));
	fd = log_file(0);
	for (int i = 3; i < 2000; i++)
		if (i != fd)
			dup2(0, i); /* over whatever is there */
	SAY(pwrite(fd, "five", 4, 15));
	copy = dup(fd);
	MUST(copy >= 0);
	/* an unrelated file takes the number */
	saved = open("plain", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	MUST(dup2(saved, fd) == fd);
	SAY(write(fd, "plain", 5));
	SAY(fsync(fd));
	SAY(pwrite(copy, "six", 3, 19));
	SAY(fdatasync(copy));
	SAY(close(copy));
	say_file("log.1");
	say_file("plain");
}

/* A record lock of the program's own outlasts what the library does. */
static void record_locks(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = log_file(0);
	pid_t pid;

	SAY(fcntl(fd, F_SETLK, &lock));
	SAY(write(fd, "bytes", 5));
	SAY(truncate("log.1", 3));
	SAY(chmod("log.1", 0600));
	SAY(rename("log.1", "log.2"));
	SAY(fdatasync(fd));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct flock seen = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

		fcntl(fd, F_GETLK, &seen);
		_exit(seen.l_type == F_WRLCK ? 0 : 1);
	}
	wait_good(pid);
}

const struct say_case process_cases[] = {
	{ "forks", forks },
	{ "appenders", appenders },
	{ "threads", threads },
	{ "position-shared", position_shared },
	{ "spawns", spawns },
	{ "closing", closing },
	{ "record-locks", record_locks },
	{ 0 },
};
