/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/overflow.h"
#include "client/ctl/look.h"
#include "client/ctl/verify.h"
#include "daemon/recover/plan.h"
#include "pool/crc.h"
#include "pool/guard.h"

#define PAGE 4096u

static int touch(const uint8_t *page)
{
	(void)*(const volatile uint8_t *)page;
	return 0;
}

static int touch_guarded(const uint8_t *page)
{
	return GUARD(touch(page));
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

/* True if the identity there is whole: its magic and its CRC. */
static bool identity_whole(const uint8_t *at)
{
	struct lane_identity id;
	uint32_t crc;

	if (copy_guarded(&id, at, sizeof(id)) < 0 ||
	    memcmp(id.magic, LANE_MAGIC, sizeof(id.magic)) != 0)
		return false;
	crc = id.crc;
	id.crc = 0;
	return crc32c(0, &id, sizeof(id)) == crc;
}

static void check_header(struct verify *v, const uint8_t *base, const char *where)
{
	bool a = identity_whole(base), b = identity_whole(base + LANE_COPY_OFFSET);

	if (a != b)
		verify_say(v, FINDING_DEGRADED, where,
			   "one copy of its header is damaged; the other one is whole");
}

/* Poison, or a hole at the end of a file that was cut off. */
static void check_pages(struct verify *v, const uint8_t *base, size_t bytes, const char *where)
{
	uint64_t bad = 0, first = 0;

	for (size_t at = 0; at < bytes; at += PAGE) {
		if (touch_guarded(base + at) == 0)
			continue;
		if (bad++ == 0)
			first = at;
	}
	if (bad)
		verify_say(v, FINDING_DAMAGE, where,
			   "%" PRIu64 " pages cannot be read, the first at byte %" PRIu64, bad,
			   first);
}

static void check_owner(struct verify *v, const struct pool_domain *d, const char *where)
{
	struct stat st;

	if (fstatat(v->pool->pool.dir_fd, where, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (st.st_uid != d->uid || (st.st_mode & 0077) != 0)
		verify_say(v, FINDING_NOTE, where,
			   "belongs to uid %u with mode %04o: in use it must be uid %" PRIu32
			   "'s alone",
			   (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777), d->uid);
}

static bool file_known(struct pool *p, uint32_t lane, uint64_t id)
{
	struct pool_file f;
	uint32_t from = 0;
	int index;

	while ((index = catalog_file_next(p, lane, from, &f)) >= 0) {
		if (f.id == id)
			return true;
		from = (uint32_t)index + 1;
	}
	return false;
}

struct counted {
	uint64_t records, bytes, newest_ns;
};

static void count(void *arg, const struct record_header *h)
{
	struct counted *c = arg;

	c->newest_ns = max_of(c->newest_ns, h->time_ns);
	if (h->type != RECORD_WRITE && h->type != RECORD_LINES)
		return;
	c->records++;
	c->bytes += h->length;
}

static void put_records(struct json_object *o, uint64_t tail, uint64_t head,
			const struct counted *c, const char *why)
{
	doc_put_number(o, "tail", tail);
	doc_put_number(o, "head", head);
	doc_put_number(o, "records", c->records);
	doc_put_number(o, "live_bytes", c->bytes);
	doc_put_number(o, "newest_record_ns", c->newest_ns);
	doc_put_text(o, "damage", why);
}

/* In use: each record is whole. Which of them are live, and of which files, moves. */
static void check_moving(struct verify *v, const struct lane *l, struct json_object *o,
			 const char *where)
{
	struct counted c = { 0 };
	struct look look;
	int r = look_head(&look, l, true);

	if (r == 0)
		r = look_each(&look, count, &c);
	put_records(o, look.tail, look.head, &c, r < 0 ? look.why : "");
	if (r < 0)
		verify_say(v, FINDING_DAMAGE, where, "position %" PRIu64 ": %s", look.head,
			   look.why);
}

/* At rest: what recovery would make of it, the maps of LINES and the files that are named included. */
static void check_records(struct verify *v, const struct lane *l, struct json_object *o,
			  const char *where)
{
	struct counted c;
	struct plan plan;
	const char *why = "";
	int r = plan_make(&plan, l, &why);

	if (r == -ENOMEM)
		why = "there is too little memory to read it";
	c = (struct counted){ plan.records, plan.bytes, plan.newest_ns };
	put_records(o, plan.tail, plan.head, &c, r < 0 ? why : "");
	if (r < 0)
		verify_say(v, FINDING_DAMAGE, where, "position %" PRIu64 ": %s", plan.head, why);
	for (size_t i = 0; r == 0 && i < plan.n_files; i++)
		if (plan.files[i].named && !file_known(&v->pool->pool, l->number, plan.files[i].id))
			verify_say(v, FINDING_DAMAGE, where,
				   "records name file %" PRIu64 ", which the catalog does not know",
				   plan.files[i].id);
	plan_free(&plan);
}

static void check_identity(struct verify *v, const struct pool_domain *d, const struct lane *l,
			   const char *where)
{
	if (l->number != d->lane)
		verify_say(v, FINDING_DAMAGE, where, "its header is lane %" PRIu32 "'s", l->number);
	if (l->ring_size != d->ring_size)
		verify_say(v, FINDING_DAMAGE, where,
			   "its ring has %" PRIu64 " bytes, the catalog says %" PRIu64,
			   l->ring_size, d->ring_size);
	/* Read before the header, it may be one life behind in a pool that is in use. */
	if (!v->in_use && !pool_lane_is(d, l))
		verify_say(v, FINDING_DAMAGE, where,
			   "is not the one that its domain wrote last: an older copy, or another "
			   "pool's");
}

static void check_lane(struct verify *v, const struct pool_domain *d)
{
	struct json_object *o = json_object_new_object();
	struct pool_error error = { "" };
	struct lane l = { 0 };
	char where[32];
	uint8_t *base;
	size_t bytes;

	(void)snprintf(where, sizeof(where), "lane-%06" PRIu32, d->lane);
	doc_put_text(o, "name", d->name);
	doc_put_number(o, "uid", d->uid);
	doc_put_number(o, "lane", d->lane);
	doc_put_number(o, "ring_size", d->ring_size);
	(void)json_object_array_add(v->domains, o);
	if (d->verdict != VERDICT_NONE)
		verify_say(v, FINDING_NOTE, where, "domain %s is not decided clean: %s", d->name,
			   *d->reason ? d->reason : "recovery has not ended");
	check_owner(v, d, where);
	if (pool_copy_map_raw(v->pool, d->lane, &base, &bytes, &error) == 0) {
		check_header(v, base, where);
		check_pages(v, base, bytes, where);
		(void)munmap(base, bytes);
	}
	if (pool_copy_map(v->pool, d->lane, &l, &error) < 0) {
		verify_say(v, FINDING_DAMAGE, where, "%s", error.text);
		return;
	}
	check_identity(v, d, &l, where);
	if (v->in_use)
		check_moving(v, &l, o, where);
	else
		check_records(v, &l, o, where);
	pool_copy_unmap(&l);
}

static bool named(struct pool *p, const char *file)
{
	struct pool_domain d;
	char name[32];

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d) < 0)
			continue;
		(void)snprintf(name, sizeof(name), "lane-%06" PRIu32, d.lane);
		if (strcmp(name, file) == 0)
			return true;
	}
	return false;
}

static void check_folder(struct verify *v)
{
	int fd = openat(v->pool->pool.dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!folder)
		return;
	while ((e = readdir(folder))) {
		if (strncmp(e->d_name, "lane-", 5) == 0 && !named(&v->pool->pool, e->d_name))
			verify_say(
				v, v->in_use ? FINDING_NOTE : FINDING_DAMAGE, e->d_name,
				"no domain of the catalog has it: either a cut came while it was "
				"made, or the catalog has lost its domain; see what is in it: "
				"pmemlogctl dump %s",
				e->d_name);
	}
	(void)closedir(folder);
}

void verify_lanes(struct verify *v)
{
	struct pool_domain d;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++)
		if (catalog_domain_get(&v->pool->pool, i, &d) == 0)
			check_lane(v, &d);
	check_folder(v);
}
