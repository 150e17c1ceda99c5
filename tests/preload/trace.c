/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * trace FILE PROGRAM ARGUMENT...: runs a program of one thread and notes in FILE, line by line, those of
 * its system calls that make bytes durable, or could: name, descriptor, flags. The library's calls pass
 * libc by, so nothing but the kernel's own view shows them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct noted {
	unsigned long long number;
	const char *name;
};

static const struct noted noted[] = {
	{ SYS_pwritev2, "pwritev2" },	{ SYS_pwrite64, "pwrite" },
	{ SYS_write, "write" },		{ SYS_fsync, "fsync" },
	{ SYS_fdatasync, "fdatasync" }, { SYS_sync_file_range, "sync_file_range" },
	{ SYS_ftruncate, "ftruncate" }, { SYS_fallocate, "fallocate" },
};

static void note(FILE *out, const struct user_regs_struct *r)
{
	for (size_t i = 0; i < sizeof(noted) / sizeof(noted[0]); i++) {
		/* Standard output is the program's conversation with the test. */
		if (noted[i].number != r->orig_rax || r->rdi <= 2)
			continue;
		fprintf(out, "%s %lld %llu\n", noted[i].name, (long long)r->rdi,
			r->orig_rax == SYS_pwritev2 ? r->r9 : 0);
		fflush(out);
	}
}

int main(int argc, char **argv)
{
	FILE *out;
	int status, entering = 1;
	pid_t pid;

	if (argc < 3 || !(out = fopen(argv[1], "we")))
		return 64;
	pid = fork();
	if (pid == 0) {
		const char *library = getenv("TRACE_PRELOAD");

		if (library)
			setenv("LD_PRELOAD", library, 1);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execv(argv[2], argv + 2);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return 2;
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	for (int signal = 0;;) {
		if (ptrace(PTRACE_SYSCALL, pid, NULL, signal) < 0)
			return 2;
		if (waitpid(pid, &status, 0) != pid)
			return 2;
		signal = 0;
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		if (!WIFSTOPPED(status))
			return 3;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			struct user_regs_struct r;

			if (entering && ptrace(PTRACE_GETREGS, pid, NULL, &r) == 0)
				note(out, &r);
			entering = !entering;
		} else {
			signal = WSTOPSIG(status);
		}
	}
}
