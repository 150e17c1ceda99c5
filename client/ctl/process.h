/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A process as /proc shows it, below a root, so that a tree can stand for a machine. What may not be read (it
 * is somebody else's, and we are not root) is empty. */

#include <stdbool.h>
#include <stdint.h>

struct process {
	const char *root;
	int pid, parent;
	uint32_t uid;
	char exe[512];	   /* the program file; "": not to be read, or a kernel thread */
	char program[64];  /* its last part, as rules name it */
	char library[512]; /* our library as it is mapped; "": it is not */
	bool library_old;  /* and the file is another one by now: it was replaced */
	bool maps_read, environment_read;
	bool dynamic;	   /* a loader is mapped */
	int secure;	   /* AT_SECURE: 1, 0; -1: not to be read */
	char preload[512]; /* LD_PRELOAD of its start; "": not set */
	char socket[128];  /* PMEMLOGD_SOCKET; "": the usual one */
	char rules[512];   /* PMEMLOGD_PRELOAD_CONFIG; "": the usual folder */
	char label[128];   /* of AppArmor or SELinux; "": none */
	char unit[128];	   /* of its cgroup; "": none */
	char name[32];	   /* comm */
};

/* 0, -ESRCH, or another negative errno. */
int process_read(struct process *p, const char *root, int pid);

/* Only what tells whether a rule can concern it: exe, program, and what its environment says; false: nothing is
 * to be read. Cheap: for looking at all processes. */
bool process_peek(struct process *p, const char *root, int pid);

/* Calls each(arg, pid) for every process. */
void process_each(const char *root, void (*each)(void *arg, int pid), void *arg);

/* Calls each(arg, path, written) for every descriptor of a file that has a name; written: open for writing. False: not to be read. */
bool process_files(const struct process *p, void (*each)(void *arg, const char *path, bool written),
		   void *arg);

/* True if it has a file of the folder DIR/ open (a control file: it has a session; a token: it went without the
 * daemon). */
bool process_has_of(const struct process *p, const char *dir);
