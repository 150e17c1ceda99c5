/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rest of the machine: mounts, databases, daemon, kernel, clock. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"
#include "client/ctl/rules.h"

static void pool_mount(const struct facts *f, const char *id, struct json_object *list)
{
	const struct fact_mount *m = &f->pool;

	if (!m->found)
		advice_add(list, ADVICE_FAULT, id, "mount it, and put it into /etc/fstab",
			   "%s lies on nothing that is mounted", f->config->pool);
	else if (fact_option(m, "ro"))
		advice_add(list, ADVICE_FAULT, id,
			   "look for errors: journalctl -k; then mount it for writing",
			   "%s is mounted read-only", m->point);
	else if (strcmp(m->point, "/") == 0)
		advice_add(
			list, ADVICE_WARNING, id,
			"is its own file system mounted? findmnt; the folder may be the empty one "
			"below it",
			"%s lies on the root file system", f->config->pool);
	else
		advice_add(list, ADVICE_OK, id, "", "%s (%s) on %s", m->point, m->type, m->source);
}

/* ---- the databases ------------------------------------------------------------------------------- */

struct databases {
	const struct facts *f;
	const char *id;
	struct json_object *list;
	char points[16][256]; /* mounts that were judged */
	unsigned n, found;
	char cpus[256]; /* of the pool's node */
};

static bool trusted(const struct config *config, const char *type)
{
	static const char *const known[] = { "ext4", "xfs", "btrfs" };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(type, known[i]) == 0)
			return true;
	for (char **t = config->trust_fs; t && *t; t++)
		if (strcmp(type, *t) == 0)
			return true;
	return false;
}

static void judge_mount(struct databases *d, const struct fact_mount *m)
{
	if (!trusted(d->f->config, m->type))
		advice_add(
			d->list, ADVICE_FAULT, d->id,
			"put the logs on ext4, xfs or btrfs; or trust_fs in pmemlogd.conf, if it has "
			"handles, extended attributes and syncs that can be relied on",
			"%s is %s: files on it are not taken", m->point, m->type);
	else if (fact_option(m, "nouser_xattr"))
		advice_add(d->list, ADVICE_FAULT, d->id, "mount it without nouser_xattr",
			   "%s has no user attributes: files on it cannot bear the owner mark",
			   m->point);
	else if (fact_option(m, "nobarrier") || fact_option(m, "barrier=0"))
		advice_add(
			d->list, ADVICE_FAULT, d->id,
			"mount it with barriers, unless its disks have no cache that loses power",
			"%s is mounted without barriers: a sync says durable too early, and the "
			"records are freed on its word",
			m->point);
	else if (fact_option(m, "ro"))
		advice_add(d->list, ADVICE_FAULT, d->id, "journalctl -k; mount it for writing",
			   "%s is read-only", m->point);
	else
		advice_add(d->list, ADVICE_OK, d->id, "", "%s (%s)", m->point, m->type);
	if (fact_option(m, "lazytime"))
		advice_add(
			d->list, ADVICE_NOTE, d->id,
			"mount it without lazytime, if a foreign writer has to be noticed after a power "
			"cut, too",
			"%s has lazytime: the time of a change may be lost with the power, and with it "
			"the trace of a foreign writer",
			m->point);
}

static void take_mount(void *arg, const char *path, bool written)
{
	struct databases *d = arg;
	struct fact_mount m;

	if (!written || !rules_match(path))
		return;
	d->found++;
	facts_mount_of(d->f, path, &m);
	for (unsigned i = 0; i < d->n; i++)
		if (strcmp(d->points[i], m.point) == 0)
			return;
	if (!m.found || d->n == sizeof(d->points) / sizeof(*d->points))
		return;
	(void)snprintf(d->points[d->n++], sizeof(d->points[0]), "%s", m.point);
	judge_mount(d, &m);
}

static void look_at_mounts(void *arg, int pid)
{
	struct databases *d = arg;
	cleanup_free struct process *p = malloc(sizeof(*p));

	if (p && process_read(p, d->f->root, pid) == 0 && *p->library &&
	    rules_load(d->f->root, *p->rules ? p->rules : NULL, p->program) > 0)
		(void)process_files(p, take_mount, d);
}

static void data_mounts(const struct facts *f, const char *id, struct json_object *list)
{
	cleanup_free struct databases *d = calloc(1, sizeof(*d));

	if (!d)
		return;
	d->f = f;
	d->id = id;
	d->list = list;
	process_each(f->root, look_at_mounts, d);
	if (d->found == 0)
		advice_add(list, ADVICE_NOTE, id, "run it as root while the databases run",
			   "no log of a database can be seen: where they lie is not looked at");
}

static void look_at_cpus(void *arg, int pid)
{
	struct databases *d = arg;
	cleanup_free struct process *p = malloc(sizeof(*p));
	char path[CTL_PATH_MAX], line[512], *list = NULL;
	cleanup_fclose FILE *in = NULL;

	if (!p || process_read(p, d->f->root, pid) < 0 || !*p->library ||
	    rules_load(d->f->root, *p->rules ? p->rules : NULL, p->program) == 0)
		return;
	(void)snprintf(path, sizeof(path), "%s/proc/%d/status", d->f->root, pid);
	in = fopen(path, "re");
	while (in && !list && fgets(line, sizeof(line), in))
		if (strncmp(line, "Cpus_allowed_list:", 18) == 0)
			list = line + 18 + strspn(line + 18, "\t ");
	if (!list)
		return;
	list[strcspn(list, "\n")] = '\0';
	d->found++;
	for (unsigned cpu = 0; cpu < 4096; cpu++)
		if (fact_list_has(list, cpu) && fact_list_has(d->cpus, cpu))
			return;
	advice_add(
		d->list, ADVICE_WARNING, d->id,
		"CPUAffinity= or NUMAPolicy= of its unit: the CPUs next to the memory",
		"%s (pid %d) may use CPUs %s only, and the pool is next to %s: each store goes over "
		"the bridge between them",
		p->program, pid, list, d->cpus);
	d->n++;
}

static void numa(const struct facts *f, const char *id, struct json_object *list)
{
	cleanup_free struct databases *d = calloc(1, sizeof(*d));
	char node[16] = "-1", other[256];

	if (!d)
		return;
	(void)facts_line(f, node, sizeof(node), "%s/numa_node", f->nd);
	if (!*f->nd_name || node[0] == '-' ||
	    !facts_line(f, other, sizeof(other), "/sys/devices/system/node/node1/cpulist") ||
	    !facts_line(f, d->cpus, sizeof(d->cpus), "/sys/devices/system/node/node%s/cpulist",
			node)) {
		advice_add(list, ADVICE_OK, id, "",
			   "one node, or the platform does not say where the pool is");
		return;
	}
	d->f = f;
	d->id = id;
	d->list = list;
	process_each(f->root, look_at_cpus, d);
	if (d->n == 0)
		advice_add(list, ADVICE_OK, id, "", "the pool is next to CPUs %s (node %s)",
			   d->cpus, node);
}

/* ---- daemon, kernel, clock ----------------------------------------------------------------------- */

static void daemon_runs(const struct facts *f, const char *id, struct json_object *list)
{
	if (f->daemon)
		advice_add(list, ADVICE_OK, id, "", "pmemlogd runs, pid %d", f->daemon);
	else
		advice_add(list, ADVICE_FAULT, id,
			   "systemctl enable --now pmemlogd.socket pmemlogd.service; journalctl -u "
			   "pmemlogd",
			   "pmemlogd does not run, or cannot be seen (run this as root)");
}

static void memlock(const struct facts *f, const char *id, struct json_object *list)
{
	char path[CTL_PATH_MAX], line[256], soft[32] = "";
	cleanup_fclose FILE *in = NULL;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/limits", f->root, f->daemon);
	in = f->daemon ? fopen(path, "re") : NULL;
	while (in && fgets(line, sizeof(line), in))
		if (strncmp(line, "Max locked memory", 17) == 0)
			(void)sscanf(line + 17, " %31s", soft);
	if (!*soft)
		advice_add(list, ADVICE_NOTE, id, "run it as root while the daemon runs",
			   "the daemon's limits cannot be seen");
	else if (strcmp(soft, "unlimited") != 0)
		advice_add(list, ADVICE_WARNING, id, "LimitMEMLOCK=infinity in pmemlogd.service",
			   "the daemon may lock %s bytes only; its unit says infinity", soft);
	else
		advice_add(list, ADVICE_OK, id, "", "not limited");
}

static void kernel(const struct facts *f, const char *id, struct json_object *list)
{
	unsigned major = 0, minor = 0;
	char text[128] = "";

	(void)facts_line(f, text, sizeof(text), "/proc/sys/kernel/osrelease");
	(void)sscanf(text, "%u.%u", &major, &minor);
	/* 4.15: MAP_SYNC. 5.10: the oldest that this is tested on. */
	if (major < 4 || (major == 4 && minor < 15))
		advice_add(list, ADVICE_FAULT, id, "a kernel from 5.10 on",
			   "Linux %s has no MAP_SYNC (4.15)", text);
	else if (major < 5 || (major == 5 && minor < 10))
		advice_add(list, ADVICE_WARNING, id, "a kernel from 5.10 on",
			   "Linux %s is older than any that pmemlogd is tested on", text);
	else
		advice_add(list, ADVICE_OK, id, "", "Linux %s", text);
}

static bool synchronised(const struct facts *f)
{
	char line[8];
	struct timex t = { 0 };

	if (facts_line(f, line, sizeof(line), "/run/systemd/timesync/synchronized"))
		return true;
	/* Of this machine's kernel, which is not that of a tree. */
	return !*f->root && adjtimex(&t) >= 0 && !(t.status & STA_UNSYNC);
}

static void clock_check(const struct facts *f, const char *id, struct json_object *list)
{
	if (synchronised(f))
		advice_add(list, ADVICE_OK, id, "", "synchronised");
	else
		advice_add(
			list, ADVICE_WARNING, id,
			"systemctl enable --now systemd-timesyncd (or chrony), and "
			"After=time-sync.target for pmemlogd.service",
			"the clock is not synchronised: after a power cut recovery may have to wait "
			"for it, or a domain be quarantined");
}

static void cpu(const struct facts *f, const char *id, struct json_object *list)
{
	char path[CTL_PATH_MAX];
	cleanup_free char *line = NULL;
	cleanup_fclose FILE *in = NULL;
	size_t room = 0;
	const char *how = "clflush";

	(void)snprintf(path, sizeof(path), "%s/proc/cpuinfo", f->root);
	in = fopen(path, "re");
	while (in && getline(&line, &room, in) > 0) {
		if (strncmp(line, "flags", 5) != 0)
			continue;
		how = strstr(line, " clwb")	    ? "clwb"
		      : strstr(line, " clflushopt") ? "clflushopt"
						    : "clflush";
		break;
	}
	if (strcmp(how, "clflush") == 0)
		advice_add(list, ADVICE_NOTE, id,
			   "in a virtual machine: a CPU model that passes clwb on",
			   "the CPU has neither clwb nor clflushopt: flushes wait for each other");
	else
		advice_add(list, ADVICE_OK, id, "", "flushes by %s", how);
}

const struct doctor_check doctor_system[] = {
	{ "pool-mount", pool_mount },
	{ "data-mounts", data_mounts },
	{ "numa", numa },
	{ "daemon", daemon_runs },
	{ "memlock", memlock },
	{ "kernel", kernel },
	{ "clock", clock_check },
	{ "cpu", cpu },
	{ NULL, NULL },
};
