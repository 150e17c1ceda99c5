/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From the bytes of a lane to what has to be replayed: torn ends, damage, fences, hostile records. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/pool.h"
#include "daemon/recover/plan.h"
#include "pool/crc.h"
#include "pool/guard.h"
#include "pool/ops.h"

#define RING 65536u

struct fixture {
	struct lane lane;
	int fd;
	uint64_t head;
	uint32_t chain;
	struct plan plan;
	const char *why;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	void *base;

	assert_non_null(f);
	pool_ops_select();
	f->fd = memfd_create("lane", MFD_CLOEXEC);
	if (f->fd < 0 || ftruncate(f->fd, LANE_HEADER_BYTES + RING) < 0)
		return -1;
	base = mmap(NULL, LANE_HEADER_BYTES + RING, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (base == MAP_FAILED)
		return -1;
	*state = f;
	return lane_format(&f->lane, base, LANE_HEADER_BYTES + RING, 1, RING, 0x1234);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	plan_free(&f->plan);
	munmap(f->lane.base, f->lane.map_bytes);
	(void)close(f->fd);
	free(f);
	return 0;
}

static uint64_t put(struct fixture *f, struct record_header h, uint8_t fill)
{
	uint8_t *p = lane_at(&f->lane, f->head);
	uint64_t at = f->head;
	bool payload = h.type == RECORD_WRITE || h.type == RECORD_LINES;

	h.incarnation = f->lane.incarnation;
	h.position = f->head;
	h.chain = f->chain;
	h.drained = f->head;
	if (h.time_ns == 0)
		h.time_ns = 1000 + f->head;
	if (payload)
		memset(p + RECORD_HEADER_BYTES, fill, h.length);
	h.crc = crc32c(0, (const uint8_t *)&h + 4, sizeof(h) - 4);
	if (payload)
		h.crc = crc32c(h.crc, p + RECORD_HEADER_BYTES, h.length);
	memcpy(p, &h, sizeof(h));
	f->chain = h.crc;
	f->head += record_bytes(h.length);
	return at;
}

static uint64_t put_write(struct fixture *f, uint64_t id, uint64_t offset, uint8_t fill,
			  uint32_t length)
{
	uint64_t room = RING - f->head % RING;
	struct record_header h = {
		.type = RECORD_WRITE, .file_id = id, .offset = offset, .length = length
	};

	if (record_bytes(length) > room)
		(void)put(f,
			  (struct record_header){ .type = RECORD_PAD,
						  .length = (uint32_t)room - RECORD_HEADER_BYTES },
			  0);
	return put(f, h, fill);
}

static int make(struct fixture *f)
{
	/* CMocka takes SIGBUS for itself before each test. */
	assert_int_equal(guard_install(), 0);
	plan_free(&f->plan);
	return plan_make(&f->plan, &f->lane, &f->why);
}

/* What was replayed, as text: "id:offset+length=fill ". */
struct seen {
	struct fixture *f;
	char text[8192];
	size_t n;
};

static int see(void *arg, size_t file, uint64_t offset, const void *payload, uint32_t length)
{
	struct seen *s = arg;

	s->n += (size_t)snprintf(s->text + s->n, sizeof(s->text) - s->n, "%llu:%llu+%u=%c ",
				 (unsigned long long)s->f->plan.files[file].id,
				 (unsigned long long)offset, length,
				 length ? *(const char *)payload : '-');
	return 0;
}

static const char *replay(struct fixture *f)
{
	static struct seen s;

	s = (struct seen){ .f = f };
	assert_int_equal(plan_each(&f->plan, &f->lane, see, &s), 0);
	return s.text;
}

static void test_empty(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.walked, 0);
	assert_int_equal(f->plan.n_files, 0);
	assert_int_equal(f->plan.head, 0);
	assert_string_equal(replay(f), "");
	assert_int_equal(plan_find(&f->plan, 7), -1);
}

static void test_order_and_counts(void **state)
{
	struct fixture *f = *state;

	put_write(f, 7, 0, 'a', 100);
	put_write(f, 9, 4096, 'b', 512);
	put_write(f, 7, 50, 'c', 100);
	put_write(f, 7, 200, 'd', 0);
	(void)put(f,
		  (struct record_header){ .type = RECORD_TOUCH, .file_id = 9, .time_ns = 1 << 30 },
		  0);
	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.walked, 5);
	assert_int_equal(f->plan.records, 4);
	assert_int_equal(f->plan.bytes, 712);
	assert_int_equal(f->plan.largest, 512);
	assert_int_equal(f->plan.newest_ns, 1 << 30);
	assert_int_equal(f->plan.head, f->head);
	assert_int_equal(f->plan.head_chain, f->chain);
	assert_int_equal(f->plan.n_files, 2);
	assert_int_equal(plan_find(&f->plan, 9), 1);
	assert_int_equal(f->plan.files[0].end, 200);
	assert_int_equal(f->plan.files[1].end, 4608);
	assert_string_equal(replay(f), "7:0+100=a 9:4096+512=b 7:50+100=c 7:200+0=- ");
}

static void test_fences(void **state)
{
	struct fixture *f = *state;
	uint64_t fence;

	put_write(f, 7, 0, 'a', 10);
	put_write(f, 9, 0, 'b', 10);
	fence = f->head;
	put_write(f, 7, 0, 'c', 10); /* between F and the FENCE record: stays live */
	(void)put(f, (struct record_header){ .type = RECORD_FENCE, .file_id = 7, .offset = fence },
		  0);
	/* an older F that comes later takes nothing back */
	(void)put(f, (struct record_header){ .type = RECORD_FENCE, .file_id = 7, .offset = 0 }, 0);
	(void)put(f, (struct record_header){ .type = RECORD_UNLINK, .file_id = 9 }, 0);
	put_write(f, 11, 0, 'd', 10);
	(void)put(f,
		  (struct record_header){ .type = RECORD_FENCE, .file_id = 11, .offset = f->head },
		  0);
	assert_int_equal(make(f), 0);
	assert_string_equal(replay(f), "9:0+10=b 7:0+10=c ");
	assert_true(f->plan.files[0].named);
	assert_true(f->plan.files[1].unlinked);
	assert_false(f->plan.files[2].named);
	assert_int_equal(f->plan.files[2].records, 0);
	/* killed between UNLINK and the call, or the call failed: it has a name still */
	put_write(f, 9, 20, 'e', 10);
	assert_int_equal(make(f), 0);
	assert_false(f->plan.files[1].unlinked);
}

/* Several times round the ring, trimmed behind: positions go on, PADs lie between. */
static void test_wrap(void **state)
{
	struct fixture *f = *state;
	uint64_t tail = 0;
	uint32_t chain = 0;

	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 5; i++)
			put_write(f, 7, (uint64_t)round, (uint8_t)('a' + i), 1900);
		assert_int_equal(make(f), 0);
		assert_int_equal(f->plan.tail, tail);
		assert_int_equal(f->plan.records, 5);
		assert_int_equal(f->plan.head, f->head);
		tail = f->head;
		chain = f->chain;
		lane_tail_write(&f->lane, tail, chain);
	}
	assert_true(tail > 4 * RING);
}

/* D11: torn from every 8-byte word of the last record on: the others are replayed. */
static void test_torn(void **state)
{
	struct fixture *f = *state;
	uint8_t image[704];
	uint64_t last = 0;

	for (unsigned i = 0; i < 20; i++)
		last = put_write(f, 7, i, (uint8_t)('a' + i), 640);
	memcpy(image, lane_at(&f->lane, last), sizeof(image));
	for (size_t at = 0; at < sizeof(image); at += 8) {
		memcpy(lane_at(&f->lane, last), image, sizeof(image));
		memset(lane_at(&f->lane, last) + at, 0, sizeof(image) - at);
		assert_int_equal(make(f), 0);
		assert_int_equal(f->plan.records, 19);
		assert_int_equal(f->plan.head, last);
	}
	memcpy(lane_at(&f->lane, last), image, sizeof(image));
	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.records, 20);
}

/* Any bit of a record in the middle: damage, and where. */
static void test_flips(void **state)
{
	struct fixture *f = *state;
	uint64_t middle = 0;

	for (unsigned i = 0; i < 20; i++) {
		uint64_t at = put_write(f, 7, i, (uint8_t)('a' + i), 640);

		middle = i == 10 ? at : middle;
	}
	for (size_t bit = 0; bit < 704 * 8; bit += 5) {
		uint8_t *byte = lane_at(&f->lane, middle) + bit / 8;

		*byte ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(make(f), -EBADMSG);
		assert_int_equal(f->plan.head, middle);
		assert_true(strlen(f->why) > 10);
		*byte ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(make(f), 0);
}

static void test_strange_records(void **state)
{
	struct fixture *f = *state;
	uint64_t good, head;
	uint32_t chain;

	put_write(f, 7, 0, 'a', 10);
	head = f->head;
	chain = f->chain;
	/* whole, chained, but of a later version: in the last place too */
	(void)put(f, (struct record_header){ .type = 7, .file_id = 7 }, 0);
	assert_int_equal(make(f), -EBADMSG);
	assert_non_null(strstr(f->why, "does not know"));
	f->head = head;
	f->chain = chain;
	(void)put(f, (struct record_header){ .type = RECORD_TOUCH, .file_id = 7, .flags = 0x80 },
		  0);
	assert_int_equal(make(f), -EBADMSG);
	f->head = head;
	f->chain = chain;
	put_write(f, 7, INT64_MAX - 5, 'a', 10);
	assert_int_equal(make(f), -EBADMSG);
	f->head = head;
	f->chain = chain;
	good = f->head;
	put_write(f, 7, INT64_MAX - 10, 'a', 10);
	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.records, 2);
	f->head = good;
	f->chain = chain;
	(void)put(f,
		  (struct record_header){ .type = RECORD_FENCE, .file_id = 7, .offset = good + 64 },
		  0);
	assert_int_equal(make(f), -EBADMSG);
}

/* LINES whose map has one byte of its sixteen. */
static void put_lines(struct fixture *f, uint64_t offset, unsigned at, uint8_t map, unsigned lines)
{
	uint8_t *payload = (uint8_t *)lane_at(&f->lane, f->head) + RECORD_HEADER_BYTES;
	struct record_header h = { .type = RECORD_LINES,
				   .file_id = 7,
				   .offset = offset,
				   .length = LINES_MAP_BYTES + lines * LINES_LINE };
	uint64_t position = put(f, h, 0);
	struct record_header *there = (void *)lane_at(&f->lane, position);

	payload[at] = map;
	for (unsigned i = 0; i < lines; i++)
		memset(payload + LINES_MAP_BYTES + i * LINES_LINE, 'p' + (int)i, LINES_LINE);
	there->crc = crc32c(0, (const uint8_t *)there + 4, sizeof(*there) - 4);
	there->crc = crc32c(there->crc, payload, h.length);
	f->chain = there->crc;
}

static void test_lines(void **state)
{
	struct fixture *f = *state;

	put_write(f, 7, 0, 'a', 8192);
	put_lines(f, 4096, 15, 0x80, 1);
	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.files[0].end, 4096 + 8192);
	put_lines(f, 8192, 0, 0x2c, 3);
	put_lines(f, 4096, 1, 0x01, 1);
	put_lines(f, 4096, 1, 0x00, 0);
	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.records, 5);
	assert_string_equal(replay(f), "7:0+8192=a 7:12224+64=p 7:8320+128=p 7:8512+64=r "
				       "7:4608+64=p ");
}

/* Found before anything is written. */
static void test_lines_map(void **state)
{
	struct fixture *f = *state;
	uint64_t head = f->head;
	uint32_t chain = f->chain;

	put_lines(f, 0, 3, 0x03, 1);
	assert_int_equal(make(f), -EBADMSG);
	assert_non_null(strstr(f->why, "LINES"));
	f->head = head;
	f->chain = chain;
	put_lines(f, 0, 3, 0x03, 3);
	assert_int_equal(make(f), -EBADMSG);
	/* those that a FENCE covers need no replay */
	(void)put(f,
		  (struct record_header){ .type = RECORD_FENCE, .file_id = 7, .offset = f->head },
		  0);
	put_write(f, 7, 0, 'a', 10);
	assert_int_equal(make(f), 0);
	assert_string_equal(replay(f), "7:0+10=a ");
}

/* A name that LINES are written to was not unlinked after all. */
static void test_lines_after_unlink(void **state)
{
	struct fixture *f = *state;

	(void)put(f, (struct record_header){ .type = RECORD_UNLINK, .file_id = 7 }, 0);
	put_lines(f, 0, 0, 0x01, 1);
	assert_int_equal(make(f), 0);
	assert_false(f->plan.files[0].unlinked);
}

/* A hostile domain: as many ids as records. Bounded work, no crash. */
static void test_many_ids(void **state)
{
	struct fixture *f = *state;

	for (uint64_t id = 1; id <= RING / 64 - 4; id++)
		(void)put(f, (struct record_header){ .type = RECORD_TOUCH, .file_id = id << 32 },
			  0);
	assert_int_equal(make(f), 0);
	assert_int_equal(f->plan.n_files, RING / 64 - 4);
	assert_int_equal(plan_find(&f->plan, UINT64_C(5) << 32), 4);
}

static void test_sigbus(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 20; i++)
		put_write(f, 7, i, 'a', 640);
	assert_int_equal(ftruncate(f->fd, 8192), 0);
	assert_int_equal(make(f), -EBADMSG);
	assert_non_null(strstr(f->why, "cannot be read"));
	assert_int_equal(ftruncate(f->fd, 0), 0);
	assert_int_equal(make(f), -EBADMSG);
}

/* The lane is changed between plan and replay, by a client that still has it mapped. */
static void test_changed_under_us(void **state)
{
	struct fixture *f = *state;
	static struct seen s;
	uint64_t second;

	put_write(f, 7, 0, 'a', 100);
	second = put_write(f, 7, 100, 'b', 100);
	put_write(f, 7, 200, 'c', 100);
	assert_int_equal(make(f), 0);
	lane_at(&f->lane, second)[70] ^= 1;
	s = (struct seen){ .f = f };
	assert_int_equal(plan_each(&f->plan, &f->lane, see, &s), -EBADMSG);
	assert_string_equal(s.text, "7:0+100=a ");
	assert_int_equal(ftruncate(f->fd, 4096), 0);
	s = (struct seen){ .f = f };
	assert_int_equal(plan_each(&f->plan, &f->lane, see, &s), -EBADMSG);
}

/*
 * Random damage anywhere in the lane: refused, or all but the newest record are there in their order, with
 * their bytes. Never fewer without a word, never others.
 */
static void test_random_damage(void **state)
{
	struct fixture *f = *state;
	static uint8_t image[LANE_HEADER_BYTES + RING];
	static char whole[8192];
	unsigned refused = 0, shorter = 0, same = 0;
	uint64_t tail = 0, before_last;
	uint32_t chain = 0;
	size_t end;

	srandom(20261130);
	for (unsigned i = 0; i < 60; i++) {
		if (i == 20) {
			tail = f->head;
			chain = f->chain;
		}
		put_write(f, 7 + i % 3, i * 1000, (uint8_t)('A' + i), (uint32_t)(random() % 2000));
		if (i == 20)
			lane_tail_write(&f->lane, tail, chain);
		if (i == 40)
			lane_beat_write(&f->lane, 1, f->head);
	}
	before_last = f->head;
	put_write(f, 7, 99999, 'z', 300);
	assert_int_equal(make(f), 0);
	(void)snprintf(whole, sizeof(whole), "%s", replay(f));
	end = strlen(whole);
	memcpy(image, f->lane.base, sizeof(image));

	for (unsigned n = 0; n < 4000; n++) {
		unsigned flips = 1 + (unsigned)random() % 3;
		struct lane l;
		size_t len;

		memcpy(f->lane.base, image, sizeof(image));
		while (flips-- > 0) {
			size_t at = (size_t)random() % sizeof(image);

			/* every fourth in the lines that are changed in place */
			if (random() % 4 == 0)
				at = (size_t)random() % 192;
			f->lane.base[at] ^= (uint8_t)(1u << random() % 8);
		}
		if (lane_attach(&l, f->lane.base, sizeof(image)) < 0) {
			refused++;
			continue;
		}
		f->lane = l;
		if (make(f) < 0) {
			refused++;
			continue;
		}
		(void)replay(f);
		len = strlen(replay(f));
		if (strncmp(replay(f), whole, len) != 0)
			fail_msg("other records in round %u", n);
		assert_true(f->plan.head >= before_last);
		if (len == end)
			same++;
		else
			shorter++;
	}
	print_message("refused %u, without the newest %u, whole %u\n", refused, shorter, same);
	assert_true(refused > 500 && same > 500);
}

static int stop(void *arg, size_t file, uint64_t offset, const void *payload, uint32_t length)
{
	(void)arg, (void)file, (void)offset, (void)payload, (void)length;
	return -ENOSPC;
}

static void test_stops(void **state)
{
	struct fixture *f = *state;

	put_write(f, 7, 0, 'a', 100);
	assert_int_equal(make(f), 0);
	assert_int_equal(plan_each(&f->plan, &f->lane, stop, NULL), -ENOSPC);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_empty),
		T(test_order_and_counts),
		T(test_fences),
		T(test_wrap),
		T(test_torn),
		T(test_flips),
		T(test_strange_records),
		T(test_lines),
		T(test_lines_map),
		T(test_lines_after_unlink),
		T(test_many_ids),
		T(test_sigbus),
		T(test_changed_under_us),
		T(test_stops),
		T(test_random_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
