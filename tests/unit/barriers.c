/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the stores, flushes and barriers are made of: each is run one instruction at a time by a tracer that reads
 * the instructions. No simulation, no kill and no virtual machine shows a missing SFENCE or CLWB.
 */
#include "pool/ops.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env.h"
#include "pool/session.h"

#define STEPS_MAX 2000000u
#define LINE	  64u

struct seen {
	unsigned sfences;
	unsigned flushes;   /* CLWB, CLFLUSHOPT, CLFLUSH */
	size_t streamed;    /* bytes stored past the cache */
	uint8_t calls[512]; /* system calls by number */
};

static uint8_t memory[1024] __attribute__((aligned(64)));
static uint8_t source[1024] __attribute__((aligned(64)));

/* Width of a VEX or EVEX store, from its length bits. */
static size_t width(unsigned bits)
{
	return (size_t)16 << (bits & 3);
}

static void classify(const uint8_t *p, struct seen *seen)
{
	bool word = false;

	if (p[0] == 0xc5 && p[2] == 0xe7) { /* VMOVNTDQ */
		seen->streamed += width(p[1] >> 2 & 1);
		return;
	}
	if (p[0] == 0xc4 && p[3] == 0xe7) {
		seen->streamed += width(p[2] >> 2 & 1);
		return;
	}
	if (p[0] == 0x62 && p[4] == 0xe7) {
		seen->streamed += width(p[3] >> 5 & 3);
		return;
	}
	if (*p == 0x66) {
		word = true;
		p++;
	}
	if ((*p & 0xf0) == 0x40) /* REX */
		p++;
	if (p[0] != 0x0f)
		return;
	if (p[1] == 0xc3) /* MOVNTI */
		seen->streamed += 8;
	else if (word && p[1] == 0xe7) /* MOVNTDQ */
		seen->streamed += 16;
	else if (p[1] == 0xae && p[2] == 0xf8)
		seen->sfences++;
	else if (p[1] == 0xae && p[2] < 0xc0 &&
		 ((p[2] >> 3 & 7) == 7 || (word && (p[2] >> 3 & 7) == 6)))
		seen->flushes++;
}

static void look(pid_t pid, struct seen *seen)
{
	struct user_regs_struct regs;
	union {
		long word[2];
		uint8_t bytes[16];
	} code;

	assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
	code.word[0] = ptrace(PTRACE_PEEKTEXT, pid, (void *)regs.rip, NULL);
	code.word[1] = ptrace(PTRACE_PEEKTEXT, pid, (void *)(regs.rip + 8), NULL);
	if (code.bytes[0] == 0x0f && code.bytes[1] == 0x05 && regs.rax < 512)
		seen->calls[regs.rax]++;
	classify(code.bytes, seen);
}

static struct seen trace(void (*body)(void *), void *arg)
{
	struct seen seen = { 0 };
	unsigned steps = 0;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		(void)raise(SIGSTOP);
		body(arg);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("SKIP: ptrace is not permitted\n");
		exit(77);
	}
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	do {
		look(pid, &seen);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status) && ++steps < STEPS_MAX);
	} while (WSTOPSIG(status) != SIGSTOP);
	(void)ptrace(PTRACE_KILL, pid, NULL, NULL);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	return seen;
}

static const struct pool_ops *table;
static size_t length;

static void body_copy(void *arg)
{
	(void)arg;
	table->copy(memory, source, length);
}

static void body_flush(void *arg)
{
	(void)arg;
	table->flush(memory + 1, length);
}

static void body_drain(void *arg)
{
	(void)arg;
	table->drain();
}

static void copies(void **state)
{
	(void)state;
	for (unsigned i = 0; (table = pool_ops_nth(i)); i++)
		for (length = 8; length <= 328; length += 40)
			assert_int_equal(trace(body_copy, NULL).streamed, length);
}

static void flushes(void **state)
{
	(void)state;
	for (unsigned i = 0; (table = pool_ops_nth(i)); i++)
		for (length = 1; length <= 300; length += 61)
			assert_int_equal(trace(body_flush, NULL).flushes, length / LINE + 1);
}

static void drains(void **state)
{
	(void)state;
	for (unsigned i = 0; (table = pool_ops_nth(i)); i++)
		assert_int_equal(trace(body_drain, NULL).sfences, 1);
}

static void body_fsync(void *arg)
{
	(void)session_sys_io.fsync(*(int *)arg);
}

static void body_fdatasync(void *arg)
{
	(void)session_sys_io.fdatasync(*(int *)arg);
}

/* The sessions' syncs are the kernel's own. */
static void syncs(void **state)
{
	int fd = 1;

	(void)state;
	assert_int_equal(trace(body_fsync, &fd).calls[SYS_fsync], 1);
	assert_int_equal(trace(body_fdatasync, &fd).calls[SYS_fdatasync], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(flushes),
		cmocka_unit_test(drains),
		cmocka_unit_test(syncs),
	};

#ifdef __SANITIZE_THREAD__
	/* It reads the instructions that run, and these are the sanitizer's calls. */
	puts("SKIP: the stores are not the product's own under this sanitizer");
	return 77;
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
