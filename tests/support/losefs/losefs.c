/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * losefs: a file system in memory that can lose what was never synced.
 *
 *   losefs MOUNTPOINT
 *
 * Root, Linux. It says `ready` when it is mounted, then takes one command a line on its standard input and
 * answers each with a line:
 *   sync                       all that is there now is durable
 *   cut none|all|rand SEED     the power cut (undo.h); every call fails with EIO from now on
 *   up                         power back: mounted anew, nothing of the kernel's caches is left
 *   rule journal|strict        what makes names durable
 *   badsync on|off             every sync fails with EIO
 *   linger MS                  so long between seeing that a call is there and reading it
 *   count                      writes, syncs, undo records
 * It ends with its standard input. syncfs and sync do not reach a FUSE file system: no program that relies
 * on them can be tested here.
 */
#include "tests/support/losefs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <unistd.h>

#include "tests/support/losefs/undo.h"

static const char *mountpoint;
static struct fuse_session *session;
static char line[256];
static size_t line_n;
static int linger_ms;

/* The mount is made here and not by libfuse, so that it can go lazily while a killed program lets go. */
static int start(void)
{
	char program[] = "losefs", fd_name[32], options[128];
	char *argv[] = { program, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	/* Does not wait: a call that poll saw is gone again if its program is killed before it is read. */
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	(void)snprintf(options, sizeof(options),
		       "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
		       fd);
	if (mount("losefs", mountpoint, "fuse.losefs", MS_NOSUID | MS_NODEV, options) < 0)
		return -errno;
	session = fuse_session_new(&args, &losefs_ops, sizeof(losefs_ops), NULL);
	(void)snprintf(fd_name, sizeof(fd_name), "/dev/fd/%d", fd);
	return session && fuse_session_mount(session, fd_name) == 0 ? 0 : -EIO;
}

static void stop(void)
{
	/* Closes the connection first: calls under way fail, and the mount can go. */
	fuse_session_destroy(session);
	session = NULL;
	if (umount2(mountpoint, MNT_DETACH) < 0)
		perror("losefs: umount");
	node_forget_lookups();
}

static const char *do_cut(const char *kind, const char *seed)
{
	static const char *const kinds[] = {
		[CUT_NONE] = "none", [CUT_ALL] = "all", [CUT_RAND] = "rand"
	};

	for (unsigned i = 0; kind && seed && i < 3; i++) {
		if (strcmp(kind, kinds[i]) != 0)
			continue;
		undo_cut((enum cut_kind)i, strtoull(seed, NULL, 10));
		ops_state.dead = true;
		return "ok";
	}
	return "cut none|all|rand SEED";
}

static void command(char *text)
{
	char *save = NULL, *word = strtok_r(text, " ", &save), *a = strtok_r(NULL, " ", &save);
	const char *answer = "ok";

	if (!word)
		return;
	if (strcmp(word, "sync") == 0) {
		undo_sync_all();
	} else if (strcmp(word, "cut") == 0) {
		answer = do_cut(a, strtok_r(NULL, " ", &save));
	} else if (strcmp(word, "up") == 0) {
		stop();
		ops_state.dead = false;
		if (start() < 0)
			answer = "cannot mount";
	} else if (strcmp(word, "rule") == 0 && a) {
		undo_strict = strcmp(a, "strict") == 0;
	} else if (strcmp(word, "badsync") == 0 && a) {
		ops_state.badsync = strcmp(a, "on") == 0;
	} else if (strcmp(word, "linger") == 0 && a) {
		linger_ms = atoi(a);
	} else if (strcmp(word, "count") == 0) {
		printf("writes %lu syncs %lu undo %" PRIu64 "\n", ops_state.writes, ops_state.syncs,
		       undo_records);
		return;
	} else {
		answer = "unknown command";
	}
	puts(answer);
}

/* False: nobody is there any more. */
static bool commands(void)
{
	ssize_t r = read(STDIN_FILENO, line + line_n, sizeof(line) - 1 - line_n);
	char *end;

	if (r <= 0)
		return r < 0 && errno == EINTR;
	line_n += (size_t)r;
	line[line_n] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		command(line);
		line_n -= (size_t)(end + 1 - line);
		memmove(line, end + 1, line_n + 1);
	}
	return line_n < sizeof(line) - 1;
}

static void serve(void)
{
	struct fuse_buf buf = { .mem = NULL };

	for (;;) {
		struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				      { .fd = fuse_session_fd(session), .events = POLLIN } };
		int n;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents && !commands())
			break;
		if (p[0].revents || !p[1].revents)
			continue; /* the session may be another one now */
		if (linger_ms)
			(void)poll(NULL, 0, linger_ms);
		n = fuse_session_receive_buf(session, &buf);
		if (n == -EINTR || n == -EAGAIN)
			continue;
		if (n <= 0)
			break;
		if (!ops_statx(p[1].fd, buf.mem, (size_t)n))
			fuse_session_process_buf(session, &buf);
	}
	free(buf.mem);
}

int main(int argc, char **argv)
{
	int r;

	if (argc != 2) {
		fprintf(stderr, "usage: losefs MOUNTPOINT\n");
		return 64;
	}
	mountpoint = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (getrandom(ops_state.uuid, sizeof(ops_state.uuid), 0) != sizeof(ops_state.uuid))
		return 1;
	(void)node_new(S_IFDIR | 0755, 0, 0); /* NODE_ROOT */
	r = start();
	if (r < 0) {
		fprintf(stderr, "losefs: %s: %s\n", mountpoint, strerror(-r));
		return 1;
	}
	puts("ready");
	serve();
	stop();
	return 0;
}
