/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/recover/world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/crc.h"
#include "pool/ops.h"
#include "pool/walk.h"

#define FS_SHUTDOWN _IOR('X', 125, uint32_t)

void run(const char *format, ...)
{
	char command[1024];
	va_list args;
	int r;

	va_start(args, format);
	(void)vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	r = system(command);
	if (r != 0)
		fail_msg("%s: exit %d", command, r);
}

static void cannot_run(const char *why)
{
	printf("SKIP: %s\n", why);
	exit(77);
}

void world_need_mounts(void)
{
	if (geteuid() != 0)
		cannot_run("loop mounts need root");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		cannot_run("no mount namespace of our own");
	/* Large pages: half of the time goes into the catalog's small ones. Not each kernel has them. */
	if (mount("recover-test", "/mnt", "tmpfs", 0, "size=1g,mode=755,huge=within_size") < 0 &&
	    mount("recover-test", "/mnt", "tmpfs", 0, "size=1g,mode=755") < 0)
		cannot_run("tmpfs cannot be mounted");
	if (system("cd /mnt && truncate -s 16M probe && mkfs.ext4 -q -b 4096 probe && mkdir p && "
		   "mount -o loop probe p 2>/dev/null && umount p && rm -rf probe p") != 0)
		cannot_run("loop devices cannot be mounted");
}

void world_begin(struct world *w, const char *fs)
{
	static unsigned number;

	memset(w, 0, sizeof(*w));
	w->fs = fs;
	w->lane_fd = -1;
	(void)snprintf(w->base, sizeof(w->base), "/mnt/%s-%u", fs, number++);
	(void)snprintf(w->mount, sizeof(w->mount), "%s/fs", w->base);
	(void)snprintf(w->image, sizeof(w->image), "%s/image", w->base);
	(void)snprintf(w->pool_dir, sizeof(w->pool_dir), "%s/pool", w->base);
	(void)snprintf(w->state_dir, sizeof(w->state_dir), "%s/state", w->base);
	run("rm -rf %s; mkdir -p %s", w->base, w->mount);
	if (strcmp(fs, "xfs") == 0)
		run("truncate -s 320M %s && mkfs.xfs -q %s", w->image, w->image);
	else
		run("truncate -s 32M %s && mkfs.ext4 -q -b 4096 %s", w->image, w->image);
	world_mount(w);
}

void world_end(struct world *w)
{
	world_close(w);
	/* Also what a test that failed left mounted below. */
	run("awk '$5 ~ \"^%s/\" {print $5}' /proc/self/mountinfo | sort -r | "
	    "while read -r m; do umount -l \"$(printf %%b \"$m\")\"; done; rm -rf %s",
	    w->base, w->base);
}

void world_mount(struct world *w)
{
	run("mount -o loop%s %s %s", strcmp(w->fs, "xfs") == 0 ? ",nouuid" : "", w->image,
	    w->mount);
}

void world_umount(struct world *w)
{
	run("umount %s", w->mount);
}

void world_cut(struct world *w)
{
	uint32_t no_flush = 2;
	int fd = open(w->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, FS_SHUTDOWN, &no_flush), 0);
	(void)close(fd);
	world_umount(w);
	world_mount(w);
}

void world_open(struct world *w)
{
	struct pool_error e = { "" };

	if (pool_open(&w->pool, w->pool_dir, w->state_dir, true, false, &e) < 0)
		fail_msg("pool_open: %s", e.text);
	w->index = catalog_domain_find(w->pool, 0, "db");
	if (w->index < 0)
		return;
	assert_int_equal(catalog_domain_get(w->pool, (uint32_t)w->index, &w->domain), 0);
	if (pool_lane_open(w->pool, &w->domain, &w->lane, &w->lane_fd, &e) < 0)
		w->lane_fd = -1;
}

void world_close(struct world *w)
{
	if (w->lane_fd >= 0)
		pool_lane_close(&w->lane, w->lane_fd);
	w->lane_fd = -1;
	w->pool = pool_close(w->pool);
}

void world_pool(struct world *w)
{
	struct pool_error e = { "" };
	struct pool_domain d = { .name = "db" };

	world_close(w);
	run("rm -rf %s %s", w->pool_dir, w->state_dir);
	if (pool_create(w->pool_dir, w->state_dir, true, false, &e) < 0)
		fail_msg("pool_create: %s", e.text);
	world_open(w);
	if (pool_lane_create(w->pool, &d, WORLD_RING, &w->lane, &w->lane_fd, &e) < 0)
		fail_msg("pool_lane_create: %s", e.text);
	w->index = catalog_domain_find(w->pool, 0, "db");
	assert_true(w->index >= 0);
	w->domain = d;
	w->head = 0;
	w->chain = 0;
	w->time_ns = 0;
}

void world_file(struct world *w, unsigned i, const char *name, uint8_t fill, size_t size)
{
	struct world_file *f = &w->files[i];
	struct pool_error e = { "" };
	uint8_t *bytes = malloc(size + 1);
	int fd, own;

	(void)snprintf(f->path, sizeof(f->path), "%s/%s", w->mount, name);
	(void)unlink(f->path);
	fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && bytes);
	memset(bytes, fill, size);
	assert_int_equal(write(fd, bytes, size), (ssize_t)size);
	assert_int_equal(fsync(fd), 0);
	free(bytes);
	if (register_stamp(w->pool, fd, w->domain.lane, f->path, NULL, &f->entry, &f->index, &own,
			   &e) < 0)
		fail_msg("register_stamp: %s", e.text);
	(void)close(own);
	(void)close(fd);
}

void world_record(struct world *w, uint16_t type, uint64_t id, uint64_t offset, uint8_t fill,
		  uint32_t length)
{
	struct record_header h = {
		.type = type,
		.incarnation = w->lane.incarnation,
		.file_id = id,
		.offset = offset,
		.length = length,
		.time_ns = w->time_ns ? w->time_ns : now_realtime_ns(),
	};
	uint64_t room = WORLD_RING - w->head % WORLD_RING;
	bool payload = type == RECORD_WRITE || type == RECORD_LINES;
	uint8_t *p;

	if (payload && record_bytes(length) > room)
		world_record(w, RECORD_PAD, 0, 0, 0, (uint32_t)(room - RECORD_HEADER_BYTES));
	h.position = w->head;
	h.drained = w->head;
	h.chain = w->chain;
	p = lane_at(&w->lane, w->head);
	if (payload)
		memset(p + RECORD_HEADER_BYTES, fill, length);
	h.crc = crc32c(0, (const uint8_t *)&h + 4, sizeof(h) - 4);
	if (payload)
		h.crc = crc32c(h.crc, p + RECORD_HEADER_BYTES, length);
	memcpy(p, &h, sizeof(h));
	w->chain = h.crc;
	w->head += type == RECORD_PAD || payload ? record_bytes(length) : RECORD_HEADER_BYTES;
}

void world_write(struct world *w, unsigned i, uint64_t offset, uint8_t fill, uint32_t length)
{
	world_record(w, RECORD_WRITE, w->files[i].entry.id, offset, fill, length);
}

void world_beat(struct world *w, uint64_t time_ns, uint64_t head)
{
	lane_beat_write(&w->lane, time_ns, head);
}

int world_recover(struct world *w, struct recover_options o, struct json_object **ret_report)
{
	return recover_domain(w->pool, (uint32_t)w->index, &o, ret_report);
}

struct pool_domain world_domain(struct world *w)
{
	struct pool_domain d;

	assert_int_equal(catalog_domain_get(w->pool, (uint32_t)w->index, &d), 0);
	return d;
}

unsigned world_entries(struct world *w)
{
	struct pool_file f;
	unsigned n = 0;

	for (uint32_t i = 0; i < POOL_FILES; i++)
		n += catalog_file_get(w->pool, i, &f) == 0;
	return n;
}

bool world_lane_empty(struct world *w)
{
	struct pool_domain d = world_domain(w);
	struct lane l;
	struct walk walk;
	const char *why;
	uint32_t chain;
	bool empty;
	int fd;

	assert_int_equal(pool_lane_open(w->pool, &d, &l, &fd, NULL), 0);
	empty = walk_find_head(&l, &walk, &chain, &why) == 0 && walk.position == walk.tail;
	pool_lane_close(&l, fd);
	return empty;
}

bool world_holds(const char *path, uint64_t offset, uint8_t fill, size_t n)
{
	uint8_t *bytes = malloc(n);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool holds = bytes && fd >= 0 && pread(fd, bytes, n, (off_t)offset) == (ssize_t)n;

	for (size_t i = 0; holds && i < n; i++)
		holds = bytes[i] == fill;
	if (fd >= 0)
		(void)close(fd);
	free(bytes);
	return holds;
}

bool world_marked(const char *path)
{
	return getxattr(path, "user.pmemlogd.owner", NULL, 0) > 0;
}

bool world_immutable(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), flags = 0;

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, FS_IOC_GETFLAGS, &flags), 0);
	(void)close(fd);
	return flags & FS_IMMUTABLE_FL;
}

void world_set_immutable(const char *path, bool on)
{
	run("chattr %si %s", on ? "+" : "-", path);
}

unsigned world_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static struct json_object *member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	(void)json_object_object_get_ex(o, key, &v);
	return v;
}

const char *report_row(struct json_object *report, uint64_t id)
{
	struct json_object *files = member(report, "files");

	for (size_t i = 0; files && i < json_object_array_length(files); i++) {
		struct json_object *f = json_object_array_get_idx(files, i);

		if (json_object_get_uint64(member(f, "id")) == id)
			return json_object_get_string(member(f, "row"));
	}
	return "";
}

const char *report_text(struct json_object *report, const char *key)
{
	const char *text = json_object_get_string(member(report, key));

	return text ? text : "";
}
