/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/process.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"

#define SMALL	1024
#define DELETED " (deleted)"

/* ROOT/proc/PID/NAME into buf, terminated; the length, or a negative errno. */
static ssize_t read_of(const struct process *p, const char *name, char *buf, size_t n)
{
	char path[CTL_PATH_MAX];
	cleanup_close int fd = -1;
	size_t at = 0;
	ssize_t got = 0;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/%s", p->root, p->pid, name);
	buf[0] = '\0';
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	while (at < n - 1 && (got = read(fd, buf + at, n - 1 - at)) > 0)
		at += (size_t)got;
	buf[at] = '\0';
	return got < 0 ? -errno : (ssize_t)at;
}

/* Cuts " (deleted)" off; true if it was there. */
static bool cut_deleted(char *path)
{
	size_t n = strlen(path), m = strlen(DELETED);

	if (n <= m || strcmp(path + n - m, DELETED) != 0)
		return false;
	path[n - m] = '\0';
	return true;
}

static void read_exe(struct process *p)
{
	char path[CTL_PATH_MAX], *slash;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/exe", p->root, p->pid);
	n = readlink(path, p->exe, sizeof(p->exe) - 1);
	p->exe[n > 0 ? n : 0] = '\0';
	/* an upgrade of the database under it */
	(void)cut_deleted(p->exe);
	slash = strrchr(p->exe, '/');
	(void)snprintf(p->program, sizeof(p->program), "%.63s", slash ? slash + 1 : p->exe);
}

static void read_maps(struct process *p)
{
	char path[CTL_PATH_MAX], line[SMALL];
	cleanup_fclose FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/maps", p->root, p->pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *name = strchr(line, '/');

		p->maps_read = true;
		if (!name)
			continue;
		name[strcspn(name, "\n")] = '\0';
		if (strstr(name, "/ld-linux") || strstr(name, "/ld-2.") || strstr(name, "/ld.so"))
			p->dynamic = true;
		if (*p->library || !strstr(name, "/libpmemlogd-preload.so"))
			continue;
		p->library_old = cut_deleted(name);
		(void)snprintf(p->library, sizeof(p->library), "%.511s", name);
	}
}

static void read_secure(struct process *p)
{
	Elf64_auxv_t vector[64];
	ssize_t n = read_of(p, "auxv", (char *)vector, sizeof(vector));

	p->secure = -1;
	for (size_t i = 0; n > 0 && i < (size_t)n / sizeof(*vector); i++)
		if (vector[i].a_type == AT_SECURE)
			p->secure = vector[i].a_un.a_val != 0;
}

static void read_environment(struct process *p)
{
	const size_t most = 64 * 1024; /* more is not looked at; malloc would map it */
	cleanup_free char *text = malloc(most);
	ssize_t n = text ? read_of(p, "environ", text, most) : -ENOMEM;

	p->environment_read = n >= 0;
	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(text + at) + 1) {
		const char *one = text + at;

		if (strncmp(one, "LD_PRELOAD=", 11) == 0)
			(void)snprintf(p->preload, sizeof(p->preload), "%.511s", one + 11);
		if (strncmp(one, "PMEMLOGD_SOCKET=", 16) == 0)
			(void)snprintf(p->socket, sizeof(p->socket), "%.127s", one + 16);
		if (strncmp(one, "PMEMLOGD_PRELOAD_CONFIG=", 24) == 0)
			(void)snprintf(p->rules, sizeof(p->rules), "%.511s", one + 24);
	}
}

static void read_label(struct process *p)
{
	char text[SMALL];

	if (read_of(p, "attr/current", text, sizeof(text)) <= 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	if (strcmp(text, "unconfined") != 0)
		(void)snprintf(p->label, sizeof(p->label), "%.127s", text);
}

static void read_unit(struct process *p)
{
	char text[SMALL], *end, *begin;

	if (read_of(p, "cgroup", text, sizeof(text)) <= 0)
		return;
	end = strstr(text, ".service\n");
	if (!end)
		return;
	end[8] = '\0';
	begin = strrchr(text, '/');
	if (begin)
		(void)snprintf(p->unit, sizeof(p->unit), "%.127s", begin + 1);
}

static int read_status(struct process *p)
{
	char text[4 * SMALL / 2], *at;
	ssize_t n = read_of(p, "status", text, sizeof(text));

	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;
	(void)sscanf(text, "Name:\t%31[^\n]", p->name);
	at = strstr(text, "\nPPid:");
	if (at)
		(void)sscanf(at, "\nPPid: %d", &p->parent);
	at = strstr(text, "\nUid:");
	if (at)
		(void)sscanf(at, "\nUid: %*u %u", &p->uid);
	return 0;
}

int process_read(struct process *p, const char *root, int pid)
{
	int r;

	memset(p, 0, sizeof(*p));
	p->root = root;
	p->pid = pid;
	r = read_status(p);
	if (r < 0)
		return r;
	read_exe(p);
	read_maps(p);
	read_secure(p);
	read_environment(p);
	read_label(p);
	read_unit(p);
	return 0;
}

bool process_peek(struct process *p, const char *root, int pid)
{
	memset(p, 0, sizeof(*p));
	p->root = root;
	p->pid = pid;
	read_exe(p);
	if (!*p->exe)
		return false;
	read_environment(p);
	return true;
}

void process_each(const char *root, void (*each)(void *arg, int pid), void *arg)
{
	char path[CTL_PATH_MAX];
	struct dirent *e;
	DIR *folder;

	(void)snprintf(path, sizeof(path), "%s/proc", root);
	folder = opendir(path);
	while (folder && (e = readdir(folder)))
		if (isdigit((unsigned char)e->d_name[0]))
			each(arg, atoi(e->d_name)); /* NOLINT: digits */
	if (folder)
		(void)closedir(folder);
}

/* From "flags:\t0100002": open for writing? */
static bool is_written(const struct process *p, const char *fd)
{
	char name[64], text[SMALL], *at;
	unsigned flags = 0;

	(void)snprintf(name, sizeof(name), "fdinfo/%.32s", fd);
	if (read_of(p, name, text, sizeof(text)) <= 0)
		return false;
	at = strstr(text, "flags:");
	return at && sscanf(at, "flags: %o", &flags) == 1 && (flags & O_ACCMODE) != O_RDONLY;
}

bool process_files(const struct process *p, void (*each)(void *arg, const char *path, bool written),
		   void *arg)
{
	char path[CTL_PATH_MAX], name[CTL_PATH_MAX];
	struct dirent *e;
	DIR *folder;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/fd", p->root, p->pid);
	folder = opendir(path);
	if (!folder)
		return false;
	while ((e = readdir(folder))) {
		ssize_t n = readlinkat(dirfd(folder), e->d_name, name, sizeof(name) - 1);

		if (n <= 0 || name[0] != '/')
			continue;
		name[n] = '\0';
		if (!cut_deleted(name))
			each(arg, name, is_written(p, e->d_name));
	}
	(void)closedir(folder);
	return true;
}

struct within {
	const char *dir;
	bool found;
};

static void look_within(void *arg, const char *path, bool written)
{
	struct within *w = arg;
	size_t n = strlen(w->dir);

	(void)written;
	w->found |= strncmp(path, w->dir, n) == 0 && path[n] == '/';
}

bool process_has_of(const struct process *p, const char *dir)
{
	struct within w = { .dir = dir };

	(void)process_files(p, look_within, &w);
	return w.found;
}
