/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "base/sys.h"

/* Reads to the end: 0, -ETIMEDOUT or another negative errno. */
static int read_all(int fd, char *to, size_t most, int timeout_ms)
{
	uint64_t end = now_monotonic_ns() + (uint64_t)timeout_ms * 1000000;
	size_t at = 0;
	char drop[1024];

	for (;;) {
		uint64_t now = now_monotonic_ns();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (now >= end)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
			continue;
		n = at < most ? read(fd, to + at, most - at) : read(fd, drop, sizeof(drop));
		if (n <= 0)
			return n < 0 ? -errno : 0;
		if (at < most)
			at += (size_t)n;
		to[at] = '\0';
	}
}

static int spawn(const char *const *argv, int out, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	char **words;
	int r;

	memcpy(&words, &argv, sizeof(words)); /* posix_spawnp only reads them */
	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return -r;
	r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
						     0);
	if (r == 0)
		r = posix_spawnp(ret, argv[0], &actions, NULL, words, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	return -r;
}

int command_run(const char *const *argv, size_t most, int timeout_ms, char **ret)
{
	int pipes[2], status = 0, r;
	pid_t pid;

	*ret = calloc(1, most + 1);
	if (!*ret)
		return -ENOMEM;
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	r = spawn(argv, pipes[1], &pid);
	close_fd(&pipes[1]);
	if (r == 0) {
		r = read_all(pipes[0], *ret, most, timeout_ms);
		if (r < 0)
			(void)kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		if (r == 0)
			r = WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
	}
	close_fd(&pipes[0]);
	return r;
}
