/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What systemd does for a Type=notify service, for tests on machines without it:
 *
 *	pid1 [--watchdog USEC] [--listen seqpacket:PATH]... [--journal] -- PROGRAM [ARGUMENT]...
 *
 * Each variable that the program notifies is a line on stdout, `USEC NAME=VALUE` (CLOCK_MONOTONIC);
 * only the main process is listened to (NotifyAccess=main). With --watchdog a program that
 * is silent for so long gets SIGABRT, as WatchdogSec= does, and a line `USEC watchdog`. --listen (also
 * stream:PATH, dgram:PATH) makes a socket and hands it over as LISTEN_FDS. --journal tells the program by
 * JOURNAL_STREAM that its stderr is the journal. SIGTERM, SIGINT and SIGHUP are passed on. The
 * last line is `USEC exit N` or `USEC signal N`; the exit code is N or 128 + N.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"

#define FIRST_FD    3
#define SOCKETS_MAX 4

struct pid1 {
	uint64_t watchdog_us; /* 0: none */
	uint64_t fed_us;      /* last sign of life */
	bool journal;
	int sockets[SOCKETS_MAX];
	int n_sockets;
	int notify_fd, signal_fd;
	char notify_name[64]; /* abstract; without the leading zero */
	pid_t child;
};

static uint64_t now_us(void)
{
	return now_monotonic_ns() / 1000;
}

__attribute__((noreturn)) static void die(const char *what)
{
	(void)fprintf(stderr, "pid1: %s: %s\n", what, strerror(errno));
	exit(125);
}

static int listen_on(const char *what)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = strchr(what, ':');
	int type, fd;

	if (!path || strlen(path + 1) >= sizeof(a.sun_path)) {
		errno = EINVAL;
		die(what);
	}
	type = what[0] == 'd'			 ? SOCK_DGRAM
	       : strncmp(what, "stream", 6) == 0 ? SOCK_STREAM
						 : SOCK_SEQPACKET;
	memcpy(a.sun_path, path + 1, strlen(path + 1) + 1);
	(void)unlink(a.sun_path);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die(what);
	if (type != SOCK_DGRAM && listen(fd, 128) < 0)
		die(what);
	return fd;
}

static void open_notify(struct pid1 *p)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const int on = 1;
	int n = snprintf(p->notify_name, sizeof(p->notify_name), "pmemlogd-pid1-%d", getpid());

	memcpy(a.sun_path + 1, p->notify_name, (size_t)n);
	p->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (p->notify_fd < 0 ||
	    bind(p->notify_fd, (struct sockaddr *)&a,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0 ||
	    setsockopt(p->notify_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		die("notify socket");
}

static void set_number(const char *name, uint64_t v)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, v);
	(void)setenv(name, text, 1);
}

static void set_journal_stream(void)
{
	char text[64];
	struct stat st;

	if (fstat(STDERR_FILENO, &st) < 0)
		die("stderr");
	(void)snprintf(text, sizeof(text), "%" PRIu64 ":%" PRIu64, (uint64_t)st.st_dev,
		       (uint64_t)st.st_ino);
	(void)setenv("JOURNAL_STREAM", text, 1);
}

/* Sockets become 3, 4, ... without close-on-exec. */
static void place_sockets(const struct pid1 *p)
{
	int copies[SOCKETS_MAX];

	for (int i = 0; i < p->n_sockets; i++) {
		copies[i] = fcntl(p->sockets[i], F_DUPFD_CLOEXEC, 64);
		if (copies[i] < 0)
			die("dup");
	}
	for (int i = 0; i < p->n_sockets; i++)
		if (dup2(copies[i], FIRST_FD + i) < 0)
			die("dup2");
}

__attribute__((noreturn)) static void run_child(const struct pid1 *p, char **argv)
{
	char name[80];
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)snprintf(name, sizeof(name), "@%s", p->notify_name);
	(void)setenv("NOTIFY_SOCKET", name, 1);
	if (p->watchdog_us) {
		set_number("WATCHDOG_USEC", p->watchdog_us);
		set_number("WATCHDOG_PID", (uint64_t)getpid());
	}
	if (p->n_sockets) {
		set_number("LISTEN_FDS", (uint64_t)p->n_sockets);
		set_number("LISTEN_PID", (uint64_t)getpid());
		place_sockets(p);
	}
	if (p->journal)
		set_journal_stream();
	(void)execvp(argv[0], argv);
	die(argv[0]);
}

/* One datagram of notifications: a line for each variable. */
static void on_notify(struct pid1 *p)
{
	char text[2048];
	struct iovec iov = { .iov_base = text, .iov_len = sizeof(text) - 1 };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *cm;
	struct ucred from = { 0 };
	ssize_t n = recvmsg(p->notify_fd, &m, MSG_DONTWAIT);
	char *save, *line;

	if (n <= 0)
		return;
	text[n] = '\0';
	cm = CMSG_FIRSTHDR(&m);
	if (cm && cm->cmsg_type == SCM_CREDENTIALS)
		memcpy(&from, CMSG_DATA(cm), sizeof(from));
	if (from.pid != p->child) {
		printf("%" PRIu64 " ignored notification of %d\n", now_us(), from.pid);
		return;
	}
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		printf("%" PRIu64 " %s\n", now_us(), line);
		if (strcmp(line, "WATCHDOG=1") == 0)
			p->fed_us = now_us();
	}
	(void)fflush(stdout);
}

/* The child's end: exit code, or -1. */
static int on_signal(struct pid1 *p)
{
	struct signalfd_siginfo info;
	int status;

	if (read(p->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return -1;
	if (info.ssi_signo != SIGCHLD) {
		(void)kill(p->child, (int)info.ssi_signo);
		return -1;
	}
	if (waitpid(p->child, &status, WNOHANG) != p->child)
		return -1;
	while (poll(&(struct pollfd){ .fd = p->notify_fd, .events = POLLIN }, 1, 0) > 0)
		on_notify(p);
	if (WIFEXITED(status)) {
		printf("%" PRIu64 " exit %d\n", now_us(), WEXITSTATUS(status));
		return WEXITSTATUS(status);
	}
	printf("%" PRIu64 " signal %d\n", now_us(), WTERMSIG(status));
	return 128 + WTERMSIG(status);
}

static int watch(struct pid1 *p)
{
	p->fed_us = now_us();
	for (;;) {
		struct pollfd fds[2] = { { .fd = p->notify_fd, .events = POLLIN },
					 { .fd = p->signal_fd, .events = POLLIN } };
		int timeout = -1, code;

		if (p->watchdog_us) {
			uint64_t end = p->fed_us + p->watchdog_us, now = now_us();

			if (now >= end) {
				printf("%" PRIu64 " watchdog\n", now);
				(void)fflush(stdout);
				(void)kill(p->child, SIGABRT);
				p->watchdog_us = 0;
				continue;
			}
			timeout = (int)((end - now) / 1000 + 1);
		}
		if (poll(fds, 2, timeout) <= 0)
			continue;
		if (fds[0].revents)
			on_notify(p);
		if (fds[1].revents) {
			code = on_signal(p);
			if (code >= 0)
				return code;
		}
	}
}

int main(int argc, char **argv)
{
	struct pid1 p = { 0 };
	sigset_t set;
	int i = 1;

	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--watchdog") == 0 && i + 1 < argc)
			p.watchdog_us = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--listen") == 0 && i + 1 < argc &&
			 p.n_sockets < SOCKETS_MAX)
			p.sockets[p.n_sockets++] = listen_on(argv[++i]);
		else if (strcmp(argv[i], "--journal") == 0)
			p.journal = true;
		else
			break;
	}
	if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
		(void)fprintf(stderr, "usage: see pid1.c\n");
		return 125;
	}
	open_notify(&p);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	p.signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (p.signal_fd < 0)
		die("signalfd");
	p.child = fork();
	if (p.child < 0)
		die("fork");
	if (p.child == 0)
		run_child(&p, argv + i + 1);
	/* its pid, for tests that look at it */
	printf("%" PRIu64 " pid %d\n", now_us(), p.child);
	(void)fflush(stdout);
	for (int s = 0; s < p.n_sockets; s++)
		(void)close(p.sockets[s]);
	return watch(&p);
}
