/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What killat knows of the world that a killed program leaves behind: the calls that its threads are in, and
 * the bytes of the files that it has mapped shared and writable. One thread, killat's own.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/types.h>

struct call {
	pid_t tid;   /* 0: free */
	uint32_t nr; /* the call that it is in, or was in last */
	uint64_t args[6];
	bool inside;
	bool leaves_nothing; /* behind a process that dies: its end is no event */
};

/* The thread's; a new one if it has none. */
struct call *world_call(pid_t tid);

void world_entered(struct call *call, const struct __ptrace_syscall_info *info);

/* After an mmap the file is one of those that world_stored looks at. */
void world_left(struct call *call, const struct __ptrace_syscall_info *info);

void world_gone(pid_t tid);

/* True: another thread is inside a call that changes something, and may have done so. */
bool world_others_inside(const struct call *call);

/* True if any mapped file holds other bytes, or is longer or shorter, than at the call before. */
bool world_stored(void);
