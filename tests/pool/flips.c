/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bit flipped, or bytes zeroed or set, in every field of superblock, catalog, lane header and records; in
 * one copy, in both. Each time: harmless, or named; see verdict.h.
 *
 *	pool-flips [--share N] [--first K] [--only GLOB] [--list] [ext4|xfs]
 *
 * --share N: each N-th case, the K-th (0...) first. Last line: `pool faults N wrong N silent N`.
 */

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/pool/layout.h"
#include "tests/pool/verdict.h"

LAYOUT_TABLE(superblock_fields, LAYOUT_SUPERBLOCK);
LAYOUT_TABLE(domain_fields, LAYOUT_DOMAIN);
LAYOUT_TABLE(file_fields, LAYOUT_FILE);
LAYOUT_TABLE(identity_fields, LAYOUT_IDENTITY);
LAYOUT_TABLE(tail_fields, LAYOUT_TAIL);
LAYOUT_TABLE(beat_fields, LAYOUT_BEAT);
LAYOUT_TABLE(header_fields, LAYOUT_HEADER);
LAYOUT_TABLE(record_fields, LAYOUT_RECORD);

static const struct layout_field tail_copy = { "tail", 0, 8 }, chain_copy = { "chain", 0, 4 };
/* What poison leaves that was cleared: a block of zeros, over more than one field. */
static const struct layout_field cleared[] = {
	{ "tail and beat", offsetof(struct lane_header, tail), 128 },
	{ "first 256", 0, 256 },
	{ "all", 0, LANE_HEADER_BYTES },
	{ NULL, 0, 0 },
};

enum how {
	ZERO = -2,
	ONES = -1
}; /* else the number of the bit to flip */

struct run {
	struct world world;
	struct scene scene;
	const char *only;
	bool list;
	unsigned share, first, number;
	unsigned done, counts[VERDICTS];
};

/* A place in a file of the pool folder, once or twice. */
struct place {
	char name[64];
	uint32_t lane; /* 0: the file `pool` */
	uint64_t offset[2];
	unsigned copies;
	bool newest; /* it is in the newest record */
	/* What lies twice: one copy's loss costs nothing, and without either nothing is guessed. */
	bool exact;
	enum verdict one, both;
};

static bool damage(const struct scene *s, const struct place *p, unsigned copy, size_t offset,
		   size_t bytes, int how)
{
	char path[256];
	static uint8_t old[4096];
	uint8_t *map;
	struct stat st;
	bool changed;
	int fd;

	if (p->lane)
		(void)snprintf(path, sizeof(path), "%s/lane-%06u", s->w->pool_dir, p->lane);
	else
		(void)snprintf(path, sizeof(path), "%s/pool", s->w->pool_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0 && bytes <= sizeof(old));
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	memcpy(old, map + p->offset[copy] + offset, bytes);
	if (how >= 0)
		map[p->offset[copy] + offset + (size_t)how / 8] ^= (uint8_t)(1u << (how % 8));
	else
		memset(map + p->offset[copy] + offset, how == ZERO ? 0 : 0xff, bytes);
	changed = memcmp(old, map + p->offset[copy] + offset, bytes) != 0;
	(void)munmap(map, (size_t)st.st_size);
	(void)close(fd);
	return changed;
}

static const char *const beat_names[] = { "seen", "before", "old" };
static const char *const end_names[] = { "write", "single", "pad", "fence", "unlink", "empty" };

/* copies: bit mask. */
static void one_case(struct run *r, enum scene_beat beat, enum scene_end end, const struct place *p,
		     unsigned copies, const struct layout_field *f, int how)
{
	struct scene *s = &r->scene;
	char name[200], what[16], why[700] = "";
	bool changed = false;
	enum verdict v;

	(void)snprintf(what, sizeof(what), how == ZERO ? "zero" : how == ONES ? "ones" : "%d", how);
	(void)snprintf(name, sizeof(name), "%s-%s/%s.%s%s/%s", beat_names[beat], end_names[end],
		       p->name, f->name,
		       p->copies < 2 ? ""
		       : copies == 3 ? "@both"
		       : copies == 1 ? "@1"
				     : "@2",
		       what);
	if (r->only ? fnmatch(r->only, name, 0) != 0
		    : r->number++ % r->share != r->first % r->share)
		return;
	if (r->list) {
		puts(name);
		return;
	}
	scene_make(s, beat, end);
	for (unsigned c = 0; c < p->copies; c++)
		if (copies & (1u << c))
			changed = damage(s, p, c, f->offset, f->bytes, how) || changed;
	if (changed) {
		v = verdict_of(s, p->newest && beat != BEAT_HEAD, why, sizeof(why));
		if (p->exact && v < SILENT && v != (copies == 3 ? p->both : p->one)) {
			printf("%s: %s is not what is expected\n", name, verdict_names[v]);
			v = WRONG;
		}
		r->done++;
		r->counts[v]++;
		if (v >= NEWEST || r->only)
			printf("%-40s %s: %s\n", name, verdict_names[v], why);
		(void)fflush(stdout);
	}
	s->w->pool = pool_close(s->w->pool);
	scene_clear(s);
}

/* Bits of a field: all of a short one, some all over a long one. */
static void field(struct run *r, enum scene_beat beat, enum scene_end end, const struct place *p,
		  const struct layout_field *f)
{
	size_t bits = f->bytes * 8;
	size_t step = bits <= 64 ? 1 : bits / 32 + 1;

	for (unsigned copies = 1; copies < (1u << p->copies); copies++) {
		for (size_t bit = 0; bit < bits; bit += step)
			one_case(r, beat, end, p, copies, f, (int)bit);
		one_case(r, beat, end, p, copies, f, ZERO);
		one_case(r, beat, end, p, copies, f, ONES);
	}
}

static void fields(struct run *r, enum scene_beat beat, enum scene_end end, const struct place *p,
		   const struct layout_field *f)
{
	for (; f->name; f++)
		field(r, beat, end, p, f);
}

static void twice(struct run *r, const char *name, uint64_t offset, const struct layout_field *f,
		  size_t stride)
{
	struct place p = { .offset = { offset, offset + stride }, .copies = 2, .exact = true };

	p.one = HARMLESS;
	/* A free entry of a file is nobody's; one of a domain may have been anybody's. */
	p.both = strcmp(name, "free file") == 0 ? HARMLESS : NAMED;

	(void)snprintf(p.name, sizeof(p.name), "%s", name);
	fields(r, BEAT_HEAD, END_WRITE, &p, f);
}

/* The catalog's entries are in the order in which they were made. */
static void superblock_and_catalog(struct run *r)
{
	twice(r, "superblock", 0, superblock_fields, POOL_SB_BYTES);
	twice(r, "domain", POOL_DOMAINS_OFFSET, domain_fields, POOL_ENTRY_BYTES);
	twice(r, "free domain", POOL_DOMAINS_OFFSET + 2ul * 7 * POOL_ENTRY_BYTES, domain_fields,
	      POOL_ENTRY_BYTES);
	twice(r, "file", POOL_FILES_OFFSET, file_fields, POOL_ENTRY_BYTES);
	twice(r, "unlinked file", POOL_FILES_OFFSET + 2ul * 2 * POOL_ENTRY_BYTES, file_fields,
	      POOL_ENTRY_BYTES);
	twice(r, "free file", POOL_FILES_OFFSET + 2ul * 99 * POOL_ENTRY_BYTES, file_fields,
	      POOL_ENTRY_BYTES);
}

static void lane_header_fields(struct run *r, enum scene_beat beat, enum scene_end end)
{
	struct place identity = { .name = "identity",
				  .lane = 1,
				  .offset = { 0, LANE_COPY_OFFSET },
				  .copies = 2,
				  .exact = true,
				  .one = HARMLESS,
				  .both = NAMED };
	struct place tail = { .name = "tail", .lane = 1, .copies = 1 };
	uint64_t at = offsetof(struct lane_header, tail);
	struct place tails = { "tail", 1, { at, at + 8 }, 2, 0, 0, 0, 0 };
	struct place chains = { "tail", 1, { at + 16, at + 20 }, 2, 0, 0, 0, 0 };
	struct place hb = { .name = "beat", .lane = 1, .copies = 1 };
	struct place whole = { .name = "header", .lane = 1, .copies = 1 };

	tail.offset[0] = at;
	hb.offset[0] = offsetof(struct lane_header, beat);
	if (beat == BEAT_HEAD && end == END_WRITE)
		fields(r, beat, end, &identity, identity_fields);
	fields(r, beat, end, &tail, tail_fields);
	field(r, beat, end, &tails, &tail_copy);
	field(r, beat, end, &chains, &chain_copy);
	for (const struct layout_field *f = cleared; f->name; f++)
		one_case(r, beat, end, &whole, 1, f, ZERO);
	fields(r, beat, end, &hb, beat_fields);
	fields(r, beat, end, &whole, header_fields);
}

static void records(struct run *r, enum scene_beat beat, enum scene_end end)
{
	struct scene *s = &r->scene;
	struct scene_record list[SCENE_RECORDS];
	unsigned n;

	/* Where they are is the same each time. */
	scene_make(s, beat, end);
	n = s->n_records;
	memcpy(list, s->records, sizeof(list));
	scene_clear(s);
	for (unsigned i = 0; i < n; i++) {
		bool newest = i == n - 1 || (i == n - 2 && list[i].type == RECORD_PAD);
		struct place p = { .lane = 1,
				   .offset = { LANE_HEADER_BYTES + list[i].position % SCENE_RING },
				   .copies = 1,
				   .newest = newest };
		uint32_t length = list[i].length;
		const struct layout_field payload[] = {
			{ "payload first", RECORD_HEADER_BYTES, 1 },
			{ "payload middle", RECORD_HEADER_BYTES + length / 2, 1 },
			{ "payload last", RECORD_HEADER_BYTES + length - 1, 1 },
			{ "payload", RECORD_HEADER_BYTES, length },
			{ "behind the payload", RECORD_HEADER_BYTES + length,
			  record_bytes(length) - RECORD_HEADER_BYTES - length },
			{ NULL, 0, 0 },
		};

		(void)snprintf(p.name, sizeof(p.name), "record %u type %u", i, list[i].type);
		fields(r, beat, end, &p, record_fields);
		for (unsigned k = 0; length && payload[k].name; k++)
			if (payload[k].bytes)
				field(r, beat, end, &p, &payload[k]);
	}
}

static void all(struct run *r)
{
	superblock_and_catalog(r);
	for (int beat = 0; beat < BEAT_KINDS; beat++) {
		for (int end = 0; end < END_KINDS; end++) {
			lane_header_fields(r, (enum scene_beat)beat, (enum scene_end)end);
			records(r, (enum scene_beat)beat, (enum scene_end)end);
		}
	}
}

int main(int argc, char **argv)
{
	static struct run r = { .share = 1 };
	const char *fs = "ext4";

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--share") == 0 && i + 1 < argc)
			r.share = (unsigned)atoi(argv[++i]);
		else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc)
			r.first = (unsigned)atoi(argv[++i]);
		else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
			r.only = argv[++i];
		else if (strcmp(argv[i], "--list") == 0)
			r.list = true;
		else
			fs = argv[i];
	}
	if (r.share == 0)
		r.share = 1;
	log_init(-1);
	world_need_mounts();
	world_begin(&r.world, fs);
	r.scene.w = &r.world;
	all(&r);
	world_end(&r.world);
	for (unsigned v = 0; v < VERDICTS; v++)
		printf("%s %u\n", verdict_names[v], r.counts[v]);
	printf("pool faults %u wrong %u silent %u\n", r.done, r.counts[WRONG], r.counts[SILENT]);
	return r.counts[WRONG] || r.counts[SILENT] || (!r.done && !r.list);
}
