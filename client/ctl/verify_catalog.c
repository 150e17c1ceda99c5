/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/ctl/verify.h"
#include "pool/dir/twin.h"

/* One copy by itself: 0, -ENOENT (zero), -EBADMSG. The memory is private. */
static int copy_state(const struct twin_layout *t, const uint8_t *copy, void *ret, void *scratch)
{
	return twin_read(t, copy, copy, ret, scratch, NULL);
}

static uint64_t sequence_of(const struct twin_layout *t, const uint8_t *copy)
{
	uint64_t v;

	memcpy(&v, copy + t->sequence_offset, sizeof(v));
	return v;
}

/* True where at least one copy can be used, or it was never written. */
static bool both_copies(struct verify *v, const struct twin_layout *t, const uint8_t *a,
			const uint8_t *b, const char *where)
{
	cleanup_free uint8_t *work = malloc(2 * t->bytes);
	int ra, rb;

	if (!work)
		return false;
	ra = copy_state(t, a, work, work + t->bytes);
	rb = copy_state(t, b, work, work + t->bytes);
	if (ra == 0 && rb == 0) {
		if (sequence_of(t, a) != sequence_of(t, b))
			verify_say(
				v, FINDING_NOTE, where,
				"the two copies are of different age: a write of it was cut off, "
				"or is under way");
		return true;
	}
	if (ra == -ENOENT && rb == -ENOENT)
		return true;
	if (ra < 0 && rb < 0) {
		/* Zero and torn: the first write of it did not end, and nothing hangs on it. */
		bool first = ra == -ENOENT || rb == -ENOENT;

		verify_say(v, first ? FINDING_NOTE : FINDING_DAMAGE, where, "%s",
			   first ? "its first write was cut off: it counts as free"
				 : "both copies are damaged");
		return first;
	}
	verify_say(v, FINDING_DEGRADED, where,
		   "copy %c is damaged; the other one is whole, and the next write mends it",
		   ra < 0 ? 'A' : 'B');
	return true;
}

static void check_superblock(struct verify *v)
{
	static const struct twin_layout layout = {
		.bytes = POOL_SB_BYTES,
		.crc_offset = offsetof(struct pool_superblock, crc),
		.sequence_offset = offsetof(struct pool_superblock, sequence),
	};
	const uint8_t *map = v->pool->pool.map;

	/* blank, of another version, or senseless */
	if (both_copies(v, &layout, map, map + POOL_SB_BYTES, "superblock") && v->pool->why.text[0])
		verify_say(v, FINDING_DAMAGE, "superblock", "%s", v->pool->why.text);
}

static const struct twin_layout entry_layout = {
	.bytes = POOL_ENTRY_BYTES,
	.crc_offset = offsetof(struct pool_domain, crc),
	.sequence_offset = offsetof(struct pool_domain, sequence),
};

static void check_copies(struct verify *v, uint32_t offset, uint32_t entries, const char *what)
{
	for (uint32_t i = 0; i < entries; i++) {
		const uint8_t *a = v->pool->pool.map + offset + (size_t)i * 2 * POOL_ENTRY_BYTES;
		char where[32];

		(void)snprintf(where, sizeof(where), "%s entry %" PRIu32, what, i);
		(void)both_copies(v, &entry_layout, a, a + POOL_ENTRY_BYTES, where);
	}
}

static bool lane_known(struct pool *p, uint32_t lane)
{
	struct pool_domain d;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++)
		if (catalog_domain_get(p, i, &d) == 0 && d.lane == lane)
			return true;
	return false;
}

static void check_domains(struct verify *v)
{
	struct pool *p = &v->pool->pool;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		struct pool_domain d, other;
		char where[32];

		if (catalog_domain_get(p, i, &d) < 0)
			continue;
		(void)snprintf(where, sizeof(where), "domain entry %" PRIu32, i);
		for (uint32_t k = 0; k < i; k++) {
			if (catalog_domain_get(p, k, &other) < 0)
				continue;
			if (other.lane == d.lane)
				verify_say(v, FINDING_DAMAGE, where,
					   "lane %" PRIu32 " is entry %" PRIu32 "'s as well",
					   d.lane, k);
			if (other.uid == d.uid && strcmp(other.name, d.name) == 0)
				verify_say(v, FINDING_DAMAGE, where,
					   "entry %" PRIu32 " is of the same user and name", k);
		}
		if (d.verdict > VERDICT_REPLAY)
			verify_say(v, FINDING_DAMAGE, where, "its verdict (%" PRIu32 ") is none",
				   d.verdict);
	}
}

static void check_files(struct verify *v)
{
	struct pool *p = &v->pool->pool;

	for (uint32_t i = 0; i < POOL_FILES; i++) {
		struct pool_file f;
		char where[32];

		if (catalog_file_get(p, i, &f) < 0)
			continue;
		(void)snprintf(where, sizeof(where), "file entry %" PRIu32, i);
		if (!lane_known(p, f.lane) && !v->pool->domains_damaged)
			verify_say(v, FINDING_DAMAGE, where,
				   "is of lane %" PRIu32 ", which no domain has", f.lane);
		if (!v->pool->why.text[0] && f.id >= p->sb.next_file_id)
			verify_say(v, FINDING_DAMAGE, where,
				   "its id %" PRIu64 " was never given out (next: %" PRIu64 ")",
				   f.id, p->sb.next_file_id);
		if (f.flags & POOL_FILE_DEGRADED)
			verify_say(v, FINDING_NOTE, where,
				   "file %" PRIu64 " is degraded: its disk refused a sync", f.id);
	}
}

void verify_catalog(struct verify *v)
{
	if (v->pool->file_bytes != POOL_BYTES)
		verify_say(v, v->pool->file_bytes < POOL_BYTES ? FINDING_DAMAGE : FINDING_NOTE,
			   "pool", "has %" PRIu64 " bytes and should have %" PRIu64,
			   v->pool->file_bytes, (uint64_t)POOL_BYTES);
	if (v->pool->unreadable)
		verify_say(v, FINDING_DAMAGE, "pool", "%" PRIu64 " bytes cannot be read",
			   v->pool->unreadable);
	check_superblock(v);
	check_copies(v, POOL_DOMAINS_OFFSET, POOL_DOMAINS, "domain");
	check_copies(v, POOL_FILES_OFFSET, POOL_FILES, "file");
	check_domains(v);
	check_files(v);
}
