/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/bundle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "client/ctl/ctl.h"
#include "client/ctl/verify.h"
#include "pool/guard.h"

#define FILE_MAX_BYTES (1u << 20)

/* A text in the making: never more than it was given room for. */
struct page {
	char *text;
	size_t n;
	FILE *out;
};

static bool page_begin(struct page *p)
{
	*p = (struct page){ 0 };
	p->out = open_memstream(&p->text, &p->n);
	return p->out != NULL;
}

static void page_end(struct page *p, struct bundle *b, const char *name)
{
	(void)fclose(p->out);
	bundle_put(b, name, p->text ? p->text : "");
	free(p->text);
}

/* A file with a line that names it; at most 1 MiB; what is no regular file (of /proc and /sys, too) is only
 * named. */
static void add_file(FILE *out, const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	cleanup_free char *text = malloc(FILE_MAX_BYTES);
	struct stat st;
	size_t at = 0;
	ssize_t n;

	(void)fprintf(out, "---- %s\n", path);
	if (fd < 0 || !text || fstat(fd, &st) < 0) {
		(void)fprintf(out, "(%s)\n", strerror(errno));
		return;
	}
	if (!S_ISREG(st.st_mode)) {
		(void)fprintf(out, "(no regular file)\n");
		return;
	}
	while (at < FILE_MAX_BYTES && (n = read(fd, text + at, FILE_MAX_BYTES - at)) > 0)
		at += (size_t)n;
	/* NUL bytes would end the section */
	for (size_t i = 0; i < at; i++)
		if (text[i] == '\0')
			text[i] = ' ';
	(void)fwrite(text, 1, at, out);
	if (at == 0 || text[at - 1] != '\n')
		(void)fprintf(out, "\n");
}

static void add_matching(FILE *out, const char *pattern)
{
	glob_t found;

	if (glob(pattern, 0, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		add_file(out, found.gl_pathv[i]);
	globfree(&found);
}

void bundle_configuration(struct bundle *b, const char *config_path)
{
	struct page p;

	if (!page_begin(&p))
		return;
	add_file(p.out, config_path ? config_path : CONFIG_DEFAULT_PATH);
	add_matching(p.out, "/etc/pmemlogd/preload.d/*");
	add_matching(p.out, "/etc/systemd/system/*.d/pmemlogd*");
	add_matching(p.out, "/etc/systemd/system/pmemlogd.*.d/*");
	add_matching(p.out, "/etc/apparmor.d/local/usr.sbin.m*");
	page_end(&p, b, "configuration");
}

static void add_folder(FILE *out, const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *e;

	(void)fprintf(out, "---- %s\n", path);
	if (!folder) {
		(void)fprintf(out, "(%s)\n", strerror(errno));
		return;
	}
	while ((e = readdir(folder))) {
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(dirfd(folder), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		(void)fprintf(out, "%06o %5u %5u %12lld %lld.%09ld %s\n", (unsigned)st.st_mode,
			      (unsigned)st.st_uid, (unsigned)st.st_gid, (long long)st.st_size,
			      (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, e->d_name);
	}
	(void)closedir(folder);
}

static int copy(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
	return 0;
}

static int copy_guarded(void *dst, const void *src, size_t n)
{
	return GUARD(copy(dst, src, n));
}

/* Rows of zeros are left out. */
static void add_hex(FILE *out, const char *name, const uint8_t *bytes, size_t n)
{
	static const uint8_t zero[32];

	(void)fprintf(out, "---- %s\n", name);
	for (size_t at = 0; at + sizeof(zero) <= n; at += sizeof(zero)) {
		if (memcmp(bytes + at, zero, sizeof(zero)) == 0)
			continue;
		(void)fprintf(out, "%06zx ", at);
		for (size_t i = 0; i < sizeof(zero); i++)
			(void)fprintf(out, "%s%02x", i % 8 ? "" : " ", bytes[at + i]);
		(void)fprintf(out, "\n");
	}
}

/* The header of a lane holds no payload: that begins behind it. */
static void add_lane(FILE *out, struct pool_copy *pool, uint32_t lane)
{
	cleanup_free uint8_t *header = malloc(LANE_HEADER_BYTES);
	uint8_t *base;
	struct pool_error error = { "" };
	char name[32];
	size_t bytes;

	(void)snprintf(name, sizeof(name), "lane-%06" PRIu32, lane);
	if (pool_copy_map_raw(pool, lane, &base, &bytes, &error) < 0) {
		(void)fprintf(out, "---- %s\n(%s)\n", name, error.text);
		return;
	}
	if (!header || copy_guarded(header, base, LANE_HEADER_BYTES) < 0)
		(void)fprintf(out, "---- %s\n(cannot be read)\n", name);
	else
		add_hex(out, name, header, LANE_HEADER_BYTES);
	(void)munmap(base, bytes);
}

static void add_headers(struct bundle *b, struct pool_copy *pool)
{
	struct pool_domain d;
	struct page p;

	if (!page_begin(&p))
		return;
	add_hex(p.out, "superblock A", pool->pool.map, POOL_SB_BYTES);
	add_hex(p.out, "superblock B", pool->pool.map + POOL_SB_BYTES, POOL_SB_BYTES);
	for (uint32_t i = 0; i < POOL_DOMAINS; i++)
		if (catalog_domain_get(&pool->pool, i, &d) == 0)
			add_lane(p.out, pool, d.lane);
	page_end(&p, b, "headers");
}

static void add_folders(struct bundle *b, const struct config *config)
{
	char path[512];
	struct page p;

	if (!page_begin(&p))
		return;
	add_folder(p.out, config->pool);
	add_folder(p.out, config->state_dir);
	(void)snprintf(path, sizeof(path), "%s/pool.state", config->state_dir);
	add_file(p.out, path);
	(void)snprintf(path, sizeof(path), "%s/quarantine", config->state_dir);
	add_folder(p.out, path);
	add_folder(p.out, config->run_dir);
	(void)snprintf(path, sizeof(path), "%s/control", config->run_dir);
	add_folder(p.out, path);
	(void)snprintf(path, sizeof(path), "%s/bypass", config->run_dir);
	add_folder(p.out, path);
	page_end(&p, b, "folders");
}

void bundle_pool(struct bundle *b, const struct config *config)
{
	struct pool_error error = { "" };
	struct pool_copy *pool;
	bool good;

	add_folders(b, config);
	if (guard_install() < 0 || pool_copy_open(&pool, config->pool, &error) < 0) {
		bundle_put(b, "pool", error.text);
		return;
	}
	(void)json_object_object_add(b->sections, "pool", verify_pool(pool, &good));
	add_headers(b, pool);
	pool_copy_close(pool);
}

static void add_users(struct bundle *b)
{
	struct page p;
	glob_t found;

	if (!page_begin(&p))
		return;
	if (glob("/proc/[0-9]*/maps", 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++) {
			cleanup_fclose FILE *f = fopen(found.gl_pathv[i], "re");
			char line[1024]; /* a longer path is cut off */

			while (f && fgets(line, sizeof(line), f)) {
				if (!strstr(line, "/libpmemlogd-preload.so"))
					continue;
				(void)fprintf(p.out, "%s: %s", found.gl_pathv[i],
					      strchr(line, '/'));
				break;
			}
		}
		globfree(&found);
	}
	page_end(&p, b, "processes with the library");
}

void bundle_system(struct bundle *b)
{
	struct page p;

	if (page_begin(&p)) {
		add_file(p.out, "/etc/os-release");
		add_file(p.out, "/proc/cmdline");
		add_file(p.out, "/proc/self/mountinfo");
		add_file(p.out, "/proc/meminfo");
		add_matching(p.out, "/sys/bus/nd/devices/*/mode");
		add_matching(p.out, "/sys/bus/nd/devices/*/size");
		add_matching(p.out, "/sys/bus/nd/devices/*/align");
		add_matching(p.out, "/sys/bus/nd/devices/*/numa_node");
		add_matching(p.out, "/sys/bus/nd/devices/*/persistence_domain");
		add_matching(p.out, "/sys/bus/nd/devices/*/nfit/dirty_shutdown");
		add_matching(p.out, "/sys/bus/nd/devices/*/nfit/flags");
		add_matching(p.out, "/sys/block/pmem*/badblocks");
		add_matching(p.out, "/sys/block/pmem*/queue/dax");
		add_matching(p.out, "/sys/block/pmem*/queue/write_cache");
		page_end(&p, b, "system");
	}
	add_users(b);
}
