/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/control.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "env.h"
#include "pool/append.h"
#include "pool/space.h"

static void create_and_map(void **state)
{
	struct env e;
	struct control c;
	struct ctl_head head;
	struct ctl_cell cell;

	(void)state;
	env_make(&e, 65536);
	c = env_other(&e);
	assert_int_equal(control_map(&c, c.fd, &head), 0);
	assert_int_equal(head.lane, 7);
	assert_int_equal(head.size, CTL_BYTES);
	assert_int_equal(head.state, CTL_OPEN);
	assert_true(head.incarnation == ENV_INCARNATION);
	cell = control_head(&c);
	assert_int_equal(cell.head, 0);
	control_unmap(&c, true);
	assert_int_equal(c.fd, -1);
	env_free(&e);
}

static void starts_at_a_position(void **state)
{
	struct ctl_head src = { .ring_size = 65536 }, head;
	struct control c;
	int fd = memfd_create("control", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(control_create(&c, fd, &src, 6401, 5), -EINVAL);
	assert_int_equal(control_create(&c, fd, &src, 6400, 5), 0);
	assert_int_equal(c.head->state, CTL_NEW);
	assert_int_equal(control_head(&c).head, 6400);
	assert_int_equal(control_head(&c).chain, 5);
	assert_int_equal(c.hot->tail, 6400);
	control_unmap(&c, false);
	assert_int_equal(control_map(&c, fd, &head), 0);
	assert_int_equal(control_head(&c).head, 6400);
	control_unmap(&c, true);
}

/* Each word of the constant part that is wrong is refused. */
static void refuses(void **state)
{
	struct env e;
	struct control c;
	struct ctl_head head, keep;

	(void)state;
	env_make(&e, 65536);
	keep = *e.s.ctl.head;
#define WRONG(change, error)                                                   \
	do {                                                                   \
		change;                                                        \
		assert_int_equal(control_map(&c, e.s.ctl.fd, &head), (error)); \
		*e.s.ctl.head = keep;                                          \
	} while (0)
	WRONG(e.s.ctl.head->magic[7] ^= 1, -EPROTO);
	WRONG(e.s.ctl.head->version++, -EPROTO);
	WRONG(e.s.ctl.head->size++, -EINVAL);
	WRONG(e.s.ctl.head->slots++, -EINVAL);
	WRONG(e.s.ctl.head->files++, -EINVAL);
	WRONG(e.s.ctl.head->ring_size++, -EINVAL);
	WRONG(e.s.ctl.head->ring_size = 64, -EINVAL);
	WRONG(e.s.ctl.head->ring_size = LANE_RING_MAX + 64, -EINVAL);
	/* texts end, whatever stands there */
	memset(e.s.ctl.head->domain, 'x', sizeof(head.domain));
	memset(e.s.ctl.head->lane_path, 'x', sizeof(head.lane_path));
	assert_int_equal(control_map(&c, e.s.ctl.fd, &head), 0);
	assert_int_equal(strlen(head.domain), sizeof(head.domain) - 1);
	assert_int_equal(strlen(head.lane_path), sizeof(head.lane_path) - 1);
	control_unmap(&c, false);

	assert_int_equal(ftruncate(e.s.ctl.fd, CTL_BYTES - 1), 0);
	assert_int_equal(control_map(&c, e.s.ctl.fd, &head), -EINVAL);
	env_free(&e);
}

static void finds(void **state)
{
	struct env e;
	struct ctl_file *f;

	(void)state;
	env_make(&e, 65536);
	f = env_file(&e, 9);
	f->handle_type = 1;
	f->handle_bytes = 8;
	memcpy(f->handle, "abcdefgh", 8);
	assert_int_equal(control_find(&e.s.ctl, 1, "abcdefgh", 8), 9);
	assert_int_equal(control_find(&e.s.ctl, 2, "abcdefgh", 8), -1);
	assert_int_equal(control_find(&e.s.ctl, 1, "abcdefgh", 7), -1);
	assert_int_equal(control_find(&e.s.ctl, 1, "abcdefgx", 8), -1);
	assert_int_equal(control_find(&e.s.ctl, 1, "abcdefgh", CTL_HANDLE_MAX + 1), -1);
	f->id = 0;
	assert_int_equal(control_find(&e.s.ctl, 1, "abcdefgh", 8), -1);
	env_free(&e);
}

static struct env shared;
static int stop;

/* What is seen as head and chain belongs together: the record that ends there has that CRC. */
static void *reader(void *arg)
{
	uint64_t last = 0, *count = arg;

	while (!atomic_load_relaxed(&stop)) {
		struct ctl_cell cell = control_head(&shared.s.ctl);
		const struct record_header *h;

		if (cell.head == 0)
			continue;
		if (cell.head < last)
			return arg;
		last = cell.head;
		/* the ring is never reused here, so the record stays what it was */
		h = (const void *)lane_at(&shared.s.lane, cell.head - 128);
		if (h->crc != cell.chain)
			return arg;
		(*count)++;
	}
	return NULL;
}

static void head_and_chain_as_one(void **state)
{
	pthread_t t;
	uint64_t count = 0;
	void *bad;

	(void)state;
	env_make(&shared, 16 << 20);
	assert_int_equal(pthread_create(&t, NULL, reader, &count), 0);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal(env_write(&shared, NULL, i, 64, NULL), 0);
	atomic_store_relaxed(&stop, 1);
	pthread_join(t, &bad);
	assert_null(bad);
	assert_true(count > 0);
	env_free(&shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_and_map),
		cmocka_unit_test(starts_at_a_position),
		cmocka_unit_test(refuses),
		cmocka_unit_test(finds),
		cmocka_unit_test(head_and_chain_as_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
