/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * signals FOLDER MODE: a timer's handler writes the file that the thread is writing.
 *
 *	write	the handler writes: with the library some of its writes may be refused with EDEADLK, nothing
 *		hangs, and every write that was acknowledged is in the file
 *	jump	the handler leaves by siglongjmp: the next calls must work, and nothing hangs
 *	altstack as write, on a signal stack
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define HANDLER_AT (1 << 20) /* the handler's blocks lie here, one after the other */
#define ROUNDS	   60000

static int fd;
static sigjmp_buf back;
static volatile sig_atomic_t jumps, handled, refused, wrong, may_jump;
static char good[200000]; /* 1: acknowledged */

static void on_timer(int signal)
{
	char c = 'h';
	int keep = errno;
	int at = handled;

	(void)signal;
	if (may_jump) {
		jumps++;
		siglongjmp(back, 1);
	}
	if (at >= (int)sizeof(good))
		return;
	handled++;
	if (pwrite(fd, &c, 1, HANDLER_AT + at) == 1)
		good[at] = 1;
	else if (errno == EDEADLK)
		refused++;
	else
		wrong++;
	errno = keep;
}

static void start_timer(int flags)
{
	struct sigaction action = { .sa_handler = on_timer, .sa_flags = flags };
	struct itimerval every = { { 0, 200 }, { 0, 200 } };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static void stop_timer(void)
{
	struct itimerval off = { { 0, 0 }, { 0, 0 } };

	setitimer(ITIMER_REAL, &off, NULL);
}

static int check(void)
{
	int lost = 0;
	char c = 0;

	for (int i = 0; i < handled; i++)
		if (good[i] && (pread(fd, &c, 1, HANDLER_AT + i) != 1 || c != 'h'))
			lost++;
	printf("handled %d refused %d wrong %d lost %d jumps %d\n", (int)handled, (int)refused,
	       (int)wrong, lost, (int)jumps);
	return wrong || lost;
}

/* Deeper frames than the one that was left, so that a stale mark lies above them. */
static int __attribute__((noinline)) deep(int n, const char *block)
{
	volatile char frame[512];

	frame[0] = (char)n;
	if (n > 0)
		return deep(n - 1, block) + (frame[0] & 0);
	return pwrite(fd, block, 512, 0) == 512 ? 0 : errno;
}

static int jump_mode(const char *block)
{
	volatile int bad = 0;

	for (volatile int i = 0; i < 400; i++) {
		if (sigsetjmp(back, 1) == 0) {
			may_jump = 1;
			/* from far below: the frame that is left stays as it is */
			for (;;)
				(void)deep(20, block);
		}
		may_jump = 0;
		/* From the same depth, and from far below. */
		if (pwrite(fd, block, 4096, 8192) != 4096)
			bad++;
		if (deep(i % 20, block) != 0)
			bad++;
	}
	stop_timer();
	if (bad)
		printf("calls after a jump: %d failed\n", bad);
	return bad != 0;
}

int main(int argc, char **argv)
{
	static char block[4096];
	static char stack[1 << 16];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	const char *mode = argc > 2 ? argv[2] : "";
	int bad = 0;

	if (argc < 3 || chdir(argv[1]) < 0)
		return 64;
	memset(block, 'b', sizeof(block));
	fd = open("log.1", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return 2;
	alarm(0);
	if (strcmp(mode, "altstack") == 0)
		sigaltstack(&ss, NULL);
	start_timer(strcmp(mode, "altstack") == 0 ? SA_ONSTACK : 0);
	if (strcmp(mode, "jump") == 0) {
		bad = jump_mode(block);
	} else {
		for (int i = 0; i < ROUNDS; i++)
			if (pwrite(fd, block, 4096, (i & 7) * 4096) != 4096 || fdatasync(fd) < 0)
				bad++;
		stop_timer();
	}
	return check() || bad;
}
