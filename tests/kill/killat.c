/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * killat ORDERS PROGRAM ARGUMENT...: runs a program and kills or stops it at one of its events.
 *
 * An event is the entry or the exit of a system call of any of its threads and children; between the
 * exit of one and the entry of the next lie its stores to mapped memory, so both count; not the exit of
 * a call that changes nothing outside the process, since there the world is as at its entry. An event is
 * fresh where the world is not what it was at the event before: a call that changes something has ended,
 * or a file that the program has mapped holds other bytes (world.h); one run lists them for others. From the event on `steps` single
 * instructions can follow. ORDERS is a file that the test maps, too (orders.py knows the offsets): orders
 * may be given while the program runs.
 *
 * Only the process that had the event dies. TERM, HUP and INT are passed on; the exit code is the
 * program's own, 128 + N after signal N. What is traced does not outlive this program.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
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

#include "world.h"

#define FRESH_MAX 8000u
#define CALLS_MAX 512u

enum what {
	KILL = 0,
	STOP = 1
};

/* An event by what it is, the n-th of its kind: what other threads do seldom shifts it. */
struct kind {
	uint16_t call;
	uint16_t leaving; /* 1: the exit */
	uint32_t n;	  /* from 1 */
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
	/* by the test */
	uint32_t side;	/* with `only`: `at` counts 1: its entries, 2: its exits; 0: both */
	uint32_t look;	/* list what is fresh: milliseconds for each event */
	uint32_t begin; /* another value than before: count, and list, from 0 again */
	/* here */
	uint32_t fresh; /* in the list; more than FRESH_MAX: the first ones */
	uint32_t reserved;
	char from[256]; /* events count from the first opening of this path; empty: at once */
	struct {
		struct kind event;
		struct kind before; /* n is 0: there was none */
		uint32_t stored;    /* 1: mapped files hold other bytes than at the one before */
	} list[FRESH_MAX];
};

static struct orders *o;
static pid_t child;
static bool counting;
static bool
	filtered; /* the ordered call and openat alone stop the program: most of the time goes into stops */

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

	if (info->op == PTRACE_SYSCALL_INFO_EXIT || info->entry.nr != SYS_openat)
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

/* Counts it as one of its kind. */
static struct kind kind_of(const struct call *call, bool leaving)
{
	static uint32_t seen[CALLS_MAX][2];
	static uint32_t begun;
	struct kind k = { (uint16_t)(call->nr % CALLS_MAX), leaving, 0 };

	if (begun != load(&o->begin)) {
		begun = load(&o->begin);
		memset(seen, 0, sizeof(seen));
		store(&o->events, 0);
		store(&o->fresh, 0);
	}
	k.n = ++seen[k.call][leaving];
	return k;
}

/* Notes the event if the world is another one than at the event before. */
static void look(struct kind event, bool others_inside)
{
	static struct kind before;
	bool stored = world_stored();
	uint32_t i = load(&o->fresh);

	if (load(&o->events) == 0)
		before = (struct kind){ 0 };
	if (event.leaving || stored || others_inside || before.n == 0) {
		if (i < FRESH_MAX) {
			o->list[i].event = event;
			o->list[i].before = before;
			o->list[i].stored = stored && before.n != 0;
		}
		store(&o->fresh, i + 1);
	}
	before = event;
}

/* True: this is the one that the test has ordered. */
static bool meant(struct kind kind)
{
	uint32_t at = load(&o->at), only = load(&o->only), side = load(&o->side), n;

	if (only && only != kind.call + 1u)
		return false;
	n = load(&o->events) + 1;
	store(&o->events, n);
	if (side && side != kind.leaving + 1u)
		return false;
	return at != 0 && (side ? kind.n : n) >= at;
}

static void event(pid_t tid)
{
	struct __ptrace_syscall_info info = { 0 };
	struct call *call = world_call(tid);
	struct kind kind;
	bool leaving;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0)
		return;
	leaving = info.op == PTRACE_SYSCALL_INFO_EXIT;
	if (leaving)
		world_left(call, &info);
	else
		world_entered(call, &info);
	if (!counting && (!*o->from || opens_from(tid, &info)))
		counting = true;
	if (!counting || (leaving && call->leaves_nothing))
		return;
	kind = kind_of(call, leaving);
	if (load(&o->look))
		look(kind, world_others_inside(call));
	if (!meant(kind))
		return;
	store(&o->call, call->nr);
	store(&o->leaving, leaving);
	act(tid);
}

/* One stop of one thread; goes on with it. */
static void stopped(pid_t tid, int status)
{
	int signal = WSTOPSIG(status), kind = status >> 16;
	bool exit_wanted = false;

	if (kind == PTRACE_EVENT_STOP && signal != SIGTRAP) { /* the whole process stands */
		(void)ptrace(PTRACE_LISTEN, tid, NULL, NULL);
		return;
	}
	if (signal == (SIGTRAP | 0x80)) {
		event(tid);
		signal = 0;
	} else if (kind == PTRACE_EVENT_SECCOMP) { /* its entry: the other one of it never comes */
		event(tid);
		signal = 0;
		exit_wanted = load(&o->side) == 2 && world_call(tid)->nr + 1 == load(&o->only);
	} else if (kind != 0 || signal == SIGTRAP) {
		signal = 0;
	}
	(void)ptrace(filtered && !exit_wanted ? PTRACE_CONT : PTRACE_SYSCALL, tid, NULL, signal);
}

static bool filter(uint32_t call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
	};
	const struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static void program(char **argv, int go)
{
	const char *library = getenv("KILLAT_PRELOAD");
	char byte;

	while (read(go, &byte, 1) < 0 && errno == EINTR)
		continue;
	(void)close(go);
	if (filtered && !filter(load(&o->only) - 1))
		_exit(126);
	if (library)
		(void)setenv("LD_PRELOAD", library, 1);
	(void)unsetenv("KILLAT_PRELOAD");
	execv(argv[0], argv);
	_exit(127);
}

static bool seize(char **argv)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE |
			     PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
			     PTRACE_O_TRACESECCOMP;
	int go[2], status;

	/* orders that are there already, and will not change */
	filtered = load(&o->side) && !load(&o->look);
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
	(void)ptrace(filtered ? PTRACE_CONT : PTRACE_SYSCALL, child, NULL, NULL);
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
		if (WIFSTOPPED(status)) {
			stopped(tid, status);
			continue;
		}
		world_gone(tid);
		if (tid == child)
			code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
}
