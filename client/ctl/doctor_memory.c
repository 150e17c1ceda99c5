/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Is the pool's memory what it has to be? */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"

#define HUGE_PAGE (UINT64_C(2) << 20)

/* What makes no sense where there is no persistent memory: said once, by `namespace`. */
static bool no_memory(const struct facts *f, const char *id, struct json_object *list)
{
	if (*f->nd_name)
		return false;
	advice_add(list, ADVICE_NOTE, id, "",
		   "not looked at: the pool is not on persistent memory");
	return true;
}

static void namespace(const struct facts *f, const char *id, struct json_object *list)
{
	char provider[64] = "";

	(void)facts_line(f, provider, sizeof(provider), "%s/../provider", f->region);
	if (!*f->nd_name)
		advice_add(list, ADVICE_FAULT, id,
			   "ndctl create-namespace --mode=fsdax, mkfs, mount -o dax=always; then "
			   "`pool` in pmemlogd.conf",
			   "NOT DURABLE: %s lies on %s (%s), which is no persistent memory",
			   f->config->pool, f->pool.found ? f->pool.source : "nothing mounted",
			   f->pool.type);
	else if (strcmp(provider, "e820") == 0)
		advice_add(list, ADVICE_FAULT, id,
			   "take memmap= off the kernel's command line; it is for tests and trials",
			   "NOT DURABLE: %s is ordinary memory that the kernel was told to call "
			   "persistent",
			   f->whole);
	else if (strncmp(f->nd_name, "btt", 3) == 0)
		advice_add(
			list, ADVICE_FAULT, id,
			"ndctl create-namespace --force --reconfig=NAMESPACE --mode=fsdax (destroys "
			"what is on it)",
			"%s is a namespace in sector mode: it cannot be mapped", f->whole);
	else if (strncmp(f->nd_name, "pfn", 3) != 0)
		advice_add(
			list, ADVICE_FAULT, id,
			"ndctl create-namespace --force --reconfig=NAMESPACE --mode=fsdax (destroys "
			"what is on it)",
			"%s is a namespace in raw mode: DAX is not reliable on it", f->whole);
	else
		advice_add(list, ADVICE_OK, id, "", "%s (%s) is in fsdax mode", f->whole,
			   f->nd_name);
}

static void dax(const struct facts *f, const char *id, struct json_object *list)
{
	const struct fact_mount *m = &f->pool;
	uint64_t queue = 0;

	if (no_memory(f, id, list))
		return;
	(void)facts_number(f, &queue, "/sys/block/%s/queue/dax", f->whole);
	if (!queue)
		advice_add(list, ADVICE_FAULT, id, "is the namespace in fsdax mode? ndctl list -N",
			   "the kernel offers no DAX on %s", f->whole);
	else if (fact_option(m, "dax=never") ||
		 (!fact_option(m, "dax") && !fact_option(m, "dax=always") &&
		  !fact_option(m, "dax=inode")))
		advice_add(
			list, ADVICE_FAULT, id,
			"mount -o remount does not do it: umount, mount -o dax=always, and so in "
			"/etc/fstab",
			"%s is mounted without dax", m->point);
	else if (fact_option(m, "dax=inode"))
		advice_add(
			list, ADVICE_WARNING, id,
			"mount with dax=always, or xfs_io -c 'chattr +x' on the pool's folder before "
			"the pool is made",
			"%s has dax=inode: only files with the attribute are mapped directly",
			m->point);
	else
		advice_add(list, ADVICE_OK, id, "", "%s is mounted with dax", m->point);
}

/* VmFlags of the daemon's mappings of lanes: `sf` is a synchronous fault, MAP_SYNC. */
static void map_sync(const struct facts *f, const char *id, struct json_object *list)
{
	char path[CTL_PATH_MAX], line[CTL_PATH_MAX], lane[CTL_PATH_MAX];
	unsigned mapped = 0, synchronous = 0;
	cleanup_fclose FILE *in = NULL;
	bool inside = false;

	if (no_memory(f, id, list))
		return;
	(void)snprintf(lane, sizeof(lane), " %s/", f->config->pool);
	(void)snprintf(path, sizeof(path), "%s/proc/%d/smaps", f->root, f->daemon);
	in = f->daemon ? fopen(path, "re") : NULL;
	while (in && fgets(line, sizeof(line), in)) {
		if (strchr("0123456789abcdef", line[0]) && strchr(line, '-')) {
			inside = strstr(line, lane) != NULL;
			mapped += inside;
		} else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
			line[strcspn(line, "\n")] = ' ';
			synchronous += strstr(line, " sf ") != NULL;
		}
	}
	if (mapped == 0)
		advice_add(list, ADVICE_NOTE, id, "run it as root while the daemon runs",
			   "no mapping of the pool can be seen");
	else if (synchronous < mapped)
		advice_add(
			list, ADVICE_FAULT, id,
			"mount with dax=always, restart the daemon; ext4 and xfs on fsdax can do it",
			"%u of %u mappings of the pool are without MAP_SYNC", mapped - synchronous,
			mapped);
	else
		advice_add(list, ADVICE_OK, id, "", "all %u mappings of the pool have MAP_SYNC",
			   mapped);
}

static void granularity(const struct facts *f, const char *id, struct json_object *list)
{
	uint64_t cached = 1;
	char line[64];

	if (no_memory(f, id, list))
		return;
	if (!facts_number(f, &cached, "/sys/block/%s/dax/write_cache", f->whole) &&
	    facts_line(f, line, sizeof(line), "/sys/block/%s/queue/write_cache", f->whole))
		cached = strcmp(line, "write back") == 0;
	advice_add(list, ADVICE_OK, id, "",
		   cached ? "stores are flushed by cache line (64 bytes)"
			  : "stores are durable by byte: the caches are flushed by the platform");
}

static void persistence_domain(const struct facts *f, const char *id, struct json_object *list)
{
	char domain[64] = "";

	if (no_memory(f, id, list))
		return;
	(void)facts_line(f, domain, sizeof(domain), "%s/persistence_domain", f->region);
	if (strcmp(domain, "cpu_cache") == 0)
		advice_add(list, ADVICE_OK, id, "", "eADR: the CPU's caches survive a power cut");
	else if (strcmp(domain, "memory_controller") == 0)
		advice_add(list, ADVICE_OK, id, "",
			   "ADR: what was flushed to the memory controller survives a power cut");
	else
		advice_add(
			list, ADVICE_FAULT, id,
			"enable ADR in the firmware, look for a firmware update of board and "
			"modules; in a virtual machine: nvdimm-persistence=mem-ctrl, if its host has "
			"that",
			"the platform does not say that flushed stores survive a power cut "
			"(persistence domain \"%s\")",
			domain);
}

struct modules {
	uint64_t unsafe, seen;
	char failed[128];
};

static void look_at_modules(const struct facts *f, struct modules *m)
{
	char path[CTL_PATH_MAX];
	struct dirent *e;
	DIR *folder;

	(void)snprintf(path, sizeof(path), "%s/sys/bus/nd/devices", f->root);
	folder = opendir(path);
	while (folder && (e = readdir(folder))) {
		char flags[128] = "";
		uint64_t n;

		if (strncmp(e->d_name, "nmem", 4) != 0)
			continue;
		if (facts_number(f, &n, "/sys/bus/nd/devices/%s/nfit/dirty_shutdown", e->d_name)) {
			m->seen++;
			m->unsafe += n;
		}
		(void)facts_line(f, flags, sizeof(flags), "/sys/bus/nd/devices/%s/nfit/flags",
				 e->d_name);
		if (*flags && strcmp(flags, "smart_notify") != 0)
			(void)snprintf(m->failed, sizeof(m->failed), "%.31s: %.90s", e->d_name,
				       flags);
	}
	if (folder)
		(void)closedir(folder);
}

static void unsafe_shutdown(const struct facts *f, const char *id, struct json_object *list)
{
	struct modules m = { 0 };

	if (no_memory(f, id, list))
		return;
	look_at_modules(f, &m);
	if (*m.failed)
		advice_add(list, ADVICE_FAULT, id,
			   "ndctl list -DH; replace the module, its battery or its power supply",
			   "a module says that it may not save what it holds (%s)", m.failed);
	else if (m.seen == 0)
		advice_add(
			list, ADVICE_NOTE, id, "",
			"no module counts unsafe shutdowns: a failure of the power path is noticed "
			"only as damage of the records");
	else
		advice_add(list, ADVICE_OK, id, "",
			   "%" PRIu64
			   " unsafe shutdowns counted in the life of the modules; a new one "
			   "quarantines what was live",
			   m.unsafe);
}

static void bad_blocks(const struct facts *f, const char *id, struct json_object *list)
{
	char first[64] = "";

	if (no_memory(f, id, list))
		return;
	(void)facts_line(f, first, sizeof(first), "/sys/block/%s/badblocks", f->whole);
	if (*first)
		advice_add(
			list, ADVICE_FAULT, id,
			"pmemlogctl pool verify; move the pool to another namespace, have the module "
			"replaced. Clearing the block (ndctl clear-errors) loses what is in it",
			"%s has bad blocks, the first at sector and length %s", f->whole, first);
	else
		advice_add(list, ADVICE_OK, id, "", "%s has no bad block", f->whole);
}

static void huge_pages(const struct facts *f, const char *id, struct json_object *list)
{
	uint64_t resource = 0, align = HUGE_PAGE, start = 0;

	if (no_memory(f, id, list))
		return;
	(void)facts_number(f, &resource, "%s/resource", f->nd);
	(void)facts_number(f, &align, "%s/align", f->nd);
	(void)facts_number(f, &start, "/sys/class/block/%s/start", f->disk);
	if (align % HUGE_PAGE || resource % HUGE_PAGE || start * 512 % HUGE_PAGE)
		advice_add(
			list, ADVICE_WARNING, id,
			"ndctl create-namespace --align=2M; parted with sectors that are multiples of "
			"4096, or no partition at all",
			"%s is not aligned to 2 MiB: its pages are mapped by 4 KiB, which makes first "
			"touches slow",
			f->disk);
	else
		advice_add(list, ADVICE_OK, id, "", "%s is aligned to 2 MiB", f->disk);
}

const struct doctor_check doctor_memory[] = {
	{ "namespace", namespace },
	{ "dax", dax },
	{ "map-sync", map_sync },
	{ "granularity", granularity },
	{ "persistence-domain", persistence_domain },
	{ "unsafe-shutdown", unsafe_shutdown },
	{ "bad-blocks", bad_blocks },
	{ "huge-pages", huge_pages },
	{ NULL, NULL },
};
