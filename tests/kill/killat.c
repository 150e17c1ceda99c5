/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * killat ORDERS PROGRAM ARGUMENT...: runs a program and kills or stops it at one of its events.
 *
 * An event is the entry or the exit of a system call of any of its threads and children; between the
 * exit of one and the entry of the next lie its stores to mapped memory, so both count; not the exit of
 * a call that changes nothing outside the process, since there the world is as at its entry. From the
 * event on `steps` single instructions can follow. ORDERS is a file of 4 KiB that the test maps, too
 * (scene.py knows the offsets): orders may be given while the program runs.
 *
 * Only the process that had the event dies. TERM, HUP and INT are passed on; the exit code is the
 * program's own, 128 + N after signal N. What is traced does not outlive this program.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum what {
	KILL = 0,
	STOP = 1
};

struct orders {
	/* written by the test */
	uint32_t at; /* the event; 0: none. The first one from here on, should it be past already */
	uint32_t steps; /* single instructions after it */
	uint32_t what;
	uint32_t only; /* events of this system call alone count, plus 1; 0: of all */
	/* written here */
	uint32_t events;
	uint32_t hit; /* 1: done */
	uint32_t call, leaving;
	uint32_t stepped;
	uint32_t pid; /* the program */
	uint32_t hit_pid;
	uint32_t reserved[5];
	char from[256]; /* events count from the first opening of this path; empty: at once */
};

static struct orders *o;
static pid_t child;
static bool counting;

static void pass_on(int signal)
{
	if (child > 0)
		(void)kill(child, signal);
}

static uint32_t load(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static void store(uint32_t *p, uint32_t value)
{
	__atomic_store_n(p, value, __ATOMIC_SEQ_CST);
}

/* Calls that leave no trace behind a process that dies. Locks and descriptors go with it anyway. */
static bool leaves_nothing(const struct __ptrace_syscall_info *entry)
{
	static const int calls[] = {
		SYS_read,	   SYS_pread64,		SYS_close,
		SYS_fstat,	   SYS_newfstatat,	SYS_statx,
		SYS_fstatfs,	   SYS_statfs,		SYS_lseek,
		SYS_mmap,	   SYS_munmap,		SYS_mprotect,
		SYS_brk,	   SYS_access,		SYS_getdents64,
		SYS_fgetxattr,	   SYS_getrandom,	SYS_rt_sigaction,
		SYS_uname,	   SYS_prctl,		SYS_getpid,
		SYS_readlink,	   SYS_rt_sigprocmask,	SYS_open_by_handle_at,
		SYS_clock_gettime, SYS_set_robust_list,
	};

	if (entry->entry.nr == SYS_openat)
		return (entry->entry.args[2] & (O_CREAT | O_TRUNC)) == 0;
	if (entry->entry.nr == SYS_ioctl) /* _IOR: asks only */
		return entry->entry.args[1] >> 30 == 2;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (entry->entry.nr == (uint64_t)calls[i])
			return true;
	return false;
}

/* The process that a thread belongs to. */
static pid_t process_of(pid_t tid)
{
	char path[64], line[128];
	pid_t r = tid;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &r) == 1)
			break;
	if (f)
		(void)fclose(f);
	return r;
}

static bool opens_from(pid_t tid, const struct __ptrace_syscall_info *info)
{
	char path[sizeof(o->from)] = "";
	struct iovec to = { path, sizeof(path) - 1 };
	struct iovec at = { .iov_len = strlen(o->from) + 1 };

	if (info->op != PTRACE_SYSCALL_INFO_ENTRY || info->entry.nr != SYS_openat)
		return false;
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process */
	at.iov_base = (void *)(uintptr_t)info->entry.args[1];
	if (process_vm_readv(tid, &to, 1, &at, 1, 0) <= 0)
		return false;
	return strcmp(path, o->from) == 0;
}

static void tick(int signal)
{
	(void)signal; /* interrupts a waitpid, that is all */
}

/* Ends early where the thread is gone, or waits for one that stands for us. */
static void step(pid_t tid, uint32_t n)
{
	const struct itimerval often = { { 0, 100000 }, { 0, 100000 } }, never = { 0 };
	int status;

	(void)setitimer(ITIMER_REAL, &often, NULL);
	for (uint32_t i = 0; i < n; i++) {
		if (ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL) < 0 ||
		    waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
			break;
		store(&o->stepped, i + 1);
	}
	(void)setitimer(ITIMER_REAL, &never, NULL);
}

static void act(pid_t tid)
{
	pid_t process = process_of(tid);

	store(&o->hit_pid, (uint32_t)process);
	step(tid, load(&o->steps));
	if (load(&o->what) == STOP)
		(void)kill(process, SIGSTOP);
	else
		(void)kill(process, SIGKILL);
	store(&o->at, 0);
	store(&o->hit, 1);
}

static void event(pid_t tid)
{
	struct __ptrace_syscall_info info = { 0 };
	static struct __ptrace_syscall_info last; /* threads may mix it up: an event more or less */
	uint32_t last_call, at, n;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0)
		return;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
		last = info;
	last_call = (uint32_t)last.entry.nr;
	if (!counting && (!*o->from || opens_from(tid, &info)))
		counting = true;
	if (!counting || (o->only && o->only != last_call + 1))
		return;
	if (info.op == PTRACE_SYSCALL_INFO_EXIT && leaves_nothing(&last))
		return;
	n = load(&o->events) + 1;
	store(&o->events, n);
	at = load(&o->at);
	if (at == 0 || n < at)
		return;
	store(&o->call, last_call);
	store(&o->leaving, info.op == PTRACE_SYSCALL_INFO_EXIT);
	act(tid);
}

/* One stop of one thread; goes on with it. */
static void stopped(pid_t tid, int status)
{
	int signal = WSTOPSIG(status), kind = status >> 16;

	if (kind == PTRACE_EVENT_STOP && signal != SIGTRAP) { /* the whole process stands */
		(void)ptrace(PTRACE_LISTEN, tid, NULL, NULL);
		return;
	}
	if (signal == (SIGTRAP | 0x80)) {
		event(tid);
		signal = 0;
	} else if (kind != 0 || signal == SIGTRAP) {
		signal = 0;
	}
	(void)ptrace(PTRACE_SYSCALL, tid, NULL, signal);
}

static void program(char **argv, int go)
{
	const char *library = getenv("KILLAT_PRELOAD");
	char byte;

	while (read(go, &byte, 1) < 0 && errno == EINTR)
		continue;
	(void)close(go);
	if (library)
		(void)setenv("LD_PRELOAD", library, 1);
	(void)unsetenv("KILLAT_PRELOAD");
	execv(argv[0], argv);
	_exit(127);
}

static bool seize(char **argv)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE |
			     PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
	int go[2], status;

	if (pipe2(go, O_CLOEXEC) < 0)
		return false;
	child = fork();
	if (child == 0) {
		(void)close(go[1]);
		program(argv, go[0]);
	}
	(void)close(go[0]);
	/* Interrupted in its read, so that each system call from there on is seen. */
	if (child < 0 || ptrace(PTRACE_SEIZE, child, NULL, options) < 0 ||
	    ptrace(PTRACE_INTERRUPT, child, NULL, NULL) < 0 ||
	    waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status))
		return false;
	store(&o->pid, (uint32_t)child);
	(void)ptrace(PTRACE_SYSCALL, child, NULL, NULL);
	return write(go[1], "", 1) == 1 && close(go[1]) == 0;
}

int main(int argc, char **argv)
{
	struct sigaction pass = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	struct sigaction interrupt = { .sa_handler = tick };
	int fd = argc > 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	int status, code = 1;

	if (fd < 0)
		return 64;
	o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (o == MAP_FAILED || !seize(argv + 2))
		return 125;
	(void)sigaction(SIGALRM, &interrupt, NULL);
	(void)sigaction(SIGTERM, &pass, NULL);
	(void)sigaction(SIGHUP, &pass, NULL);
	(void)sigaction(SIGINT, &pass, NULL);
	for (;;) {
		pid_t tid = waitpid(-1, &status, __WALL);

		if (tid < 0 && errno == EINTR)
			continue;
		if (tid < 0)
			return code;
		if (WIFSTOPPED(status))
			stopped(tid, status);
		else if (tid == child)
			code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
}
