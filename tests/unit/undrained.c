/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Killed, then the power: what lies twice in a pool (superblock, catalog entry, lane identity and tail) is written
 * by one who is killed, perhaps by another who is killed, and by a third while the power goes. What the dead stored
 * and did not drain reads well and is not durable. At every step of the third each image has a version that was
 * written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/pool.h"
#include "pool/crc.h"
#include "pool/dir/catalog.h"
#include "pool/dir/pool.h"
#include "pool/dir/superblock.h"
#include "pool/lane.h"
#include "pool/ops.h"
#include "pool/record.h"
#include "tests/crash/medium.h"

#define TIMES 1000u /* or a little more, that something is written while the power goes */
#define LAST  4u    /* version of the third writer; 1 is durable before */

static struct medium medium;
static struct rng chance;
static unsigned steps, die_at; /* 0: lives */
static bool dead;
static const struct thing *looked_at; /* while the power may go */

/* Something that lies twice. Of a dead writer no store arrives any more, though its call returns. */
struct thing {
	const char *name;
	void (*first)(void);
	void (*write)(uint32_t version);
	uint32_t (*read)(uint8_t *base); /* version; 0: lost */
};

/* ---- persistent memory -------------------------------------------------------------------------- */

static void look(void)
{
	static const enum image_kind kinds[] = { IMAGE_FLUSHED, IMAGE_ALL,   IMAGE_ONE_IN,
						 IMAGE_ONE_OUT, IMAGE_LINES, IMAGE_WORDS };
	enum image_kind tried[] = { IMAGE_NONE, IMAGE_WORDS,
				    kinds[rng_below(&chance, sizeof(kinds) / sizeof(kinds[0]))] };

	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		uint32_t found;

		medium_image(&medium, tried[i], medium.count ? rng_below(&chance, medium.count) : 0,
			     &chance);
		found = looked_at->read(medium.image);
		medium_restore(&medium);
		if (found == 0 || found > LAST)
			fail_msg("%s: lost at step %u (image: %s)", looked_at->name, steps,
				 image_names[tried[i]]);
	}
}

static void after_step(void)
{
	steps++;
	dead = die_at && steps >= die_at;
	if (looked_at)
		look();
}

static void copy(void *dst, const void *src, size_t n)
{
	for (size_t at = 0; at < n && !dead; at += LANE_ALIGN)
		medium_ops.copy((uint8_t *)dst + at, (const uint8_t *)src + at,
				n - at < LANE_ALIGN ? n - at : LANE_ALIGN);
}

static void flush(const void *p, size_t n)
{
	if (!dead)
		medium_ops.flush(p, n);
}

static void drain(void)
{
	if (!dead)
		medium_ops.drain();
}

static const struct pool_ops mortal_ops = { copy, flush, drain };

/* Another process: nobody drains for the one before. */
static void next_writer(unsigned dies_at)
{
	medium.thread++;
	steps = 0;
	die_at = dies_at;
	dead = false;
}

/* ---- what lies twice ---------------------------------------------------------------------------- */

static void write_identity(uint32_t version)
{
	struct lane l;

	assert_int_equal(lane_attach(&l, medium.work, MEDIUM_BYTES), 0);
	lane_set_incarnation(&l, version);
}

static void first_identity(void)
{
	struct lane l;

	assert_int_equal(lane_format(&l, medium.work, MEDIUM_BYTES, 1, MEDIUM_RING, 1), 0);
}

static uint32_t read_identity(uint8_t *base)
{
	struct lane l;

	return lane_attach(&l, base, MEDIUM_BYTES) < 0 ? 0 : (uint32_t)l.incarnation;
}

/* A record for each version to begin at. */
static uint32_t chains[LAST + 1];

static void first_tail(void)
{
	uint32_t crc = 0;
	struct lane l;

	assert_int_equal(lane_format(&l, medium.work, MEDIUM_BYTES, 1, MEDIUM_RING, 1), 0);
	for (uint32_t v = 0; v <= LAST; v++) {
		struct record_header h __attribute__((aligned(64))) = {
			.type = RECORD_TOUCH,
			.incarnation = 1,
			.position = (uint64_t)v * LANE_ALIGN,
			.file_id = 1,
			.chain = crc,
			.drained = (uint64_t)v * LANE_ALIGN,
		};

		chains[v] = crc;
		crc = crc32c(0, &h.type, sizeof(h) - offsetof(struct record_header, type));
		h.crc = crc;
		copy(lane_at(&l, h.position), &h, sizeof(h));
	}
	lane_tail_write(&l, LANE_ALIGN, chains[1]);
}

static void write_tail(uint32_t version)
{
	struct lane l;

	assert_int_equal(lane_attach(&l, medium.work, MEDIUM_BYTES), 0);
	lane_tail_write(&l, (uint64_t)version * LANE_ALIGN, chains[version]);
}

/* Recovery takes the first from which the chain goes on. */
static uint32_t read_tail(uint8_t *base)
{
	struct lane_tail_found found[2];
	struct lane l;
	int n;

	assert_int_equal(lane_attach(&l, base, MEDIUM_BYTES), 0);
	n = lane_tail_read(&l, found);
	for (int i = 0; i < n; i++)
		for (uint32_t v = 1; v <= LAST; v++)
			if (found[i].tail == (uint64_t)v * LANE_ALIGN &&
			    found[i].chain == chains[v])
				return v;
	return 0;
}

static void write_superblock(uint32_t version)
{
	static struct pool_superblock sb __attribute__((aligned(64)));

	memset(&sb, 0, sizeof(sb));
	memcpy(sb.magic, POOL_MAGIC, sizeof(sb.magic));
	sb.version = POOL_VERSION;
	sb.generation = 1;
	sb.uuid[0] = 1;
	sb.next_file_id = version;
	memset(sb.reserved, (int)version, sizeof(sb.reserved));
	assert_int_equal(superblock_write(medium.work, &sb), 0);
}

static void first_superblock(void)
{
	write_superblock(1);
}

static uint32_t read_superblock(uint8_t *base)
{
	static struct pool_superblock sb;
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("superblock", MFD_CLOEXEC);
	assert_int_equal(pwrite(fd, base, 2 * POOL_SB_BYTES, 0), 2 * POOL_SB_BYTES);
	return superblock_read(fd, "image", true, &sb, NULL) < 0 ? 0 : (uint32_t)sb.next_file_id;
}

/* The reader is not the writer, who holds its lock while we look. */
static struct pool *pool_at(uint8_t *base, bool read_only)
{
	static struct pool pools[2] = { { .lock = PTHREAD_MUTEX_INITIALIZER },
					{ .lock = PTHREAD_MUTEX_INITIALIZER } };
	struct pool *p = &pools[read_only];

	p->map = base;
	p->read_only = read_only;
	return p;
}

static void write_entry(uint32_t version)
{
	struct pool_domain d = { .uid = version };

	memset(d.name, 'a' + (int)version, sizeof(d.name) - 1);
	assert_int_equal(catalog_domain_put(pool_at(medium.work, false), 0, &d), 0);
}

static void first_entry(void)
{
	write_entry(1);
}

static uint32_t read_entry(uint8_t *base)
{
	struct pool_domain d;

	return catalog_domain_get(pool_at(base, true), 0, &d) < 0 ? 0 : d.uid;
}

/* ---- the test ------------------------------------------------------------------------------------- */

static unsigned begin(const struct thing *t)
{
	looked_at = NULL;
	medium_clear(&medium);
	next_writer(0);
	t->first();
	next_writer(0);
	return steps;
}

/* second: 0, nobody. */
static void killed(const struct thing *t, unsigned first, unsigned second)
{
	(void)begin(t);
	next_writer(first);
	t->write(2);
	if (second) {
		next_writer(second);
		t->write(3);
	}
	next_writer(0);
	looked_at = t;
	t->write(LAST);
	looked_at = NULL;
	medium_image(&medium, IMAGE_NONE, 0, &chance);
	assert_int_equal(t->read(medium.image), LAST);
}

static void each_kill(const struct thing *t)
{
	unsigned length;

	pool_ops = &mortal_ops;
	medium_use(&medium, after_step);
	(void)begin(t);
	t->write(2);
	length = steps;
	assert_true(length > 4);
	for (unsigned n = 0; n < TIMES || n % length; n++) {
		rng_seed(&chance, 1, n);
		killed(t, 1 + n % length,
		       rng_one_in(&chance, 2) ? 0 : 1 + rng_below(&chance, length));
	}
}

static void identity(void **state)
{
	(void)state;
	each_kill(
		&(struct thing){ "lane identity", first_identity, write_identity, read_identity });
}

static void tail(void **state)
{
	(void)state;
	each_kill(&(struct thing){ "lane tail", first_tail, write_tail, read_tail });
}

static void superblock(void **state)
{
	(void)state;
	each_kill(&(struct thing){ "superblock", first_superblock, write_superblock,
				   read_superblock });
}

static void entry(void **state)
{
	(void)state;
	each_kill(&(struct thing){ "catalog entry", first_entry, write_entry, read_entry });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identity),
		cmocka_unit_test(tail),
		cmocka_unit_test(superblock),
		cmocka_unit_test(entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
