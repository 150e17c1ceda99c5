/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Positions of a native log: none twice, none left out, whoever dies where. */
#include "env.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "pool/lanelock.h"
#include "pool/log.h"
#include "pool/log_read.h"
#include "pool/ops.h"
#include "pool/record.h"
#include "pool/space.h"
#include "pool/walk.h"

#define RING	65536u
#define PAYLOAD 2048u

static struct env e;
static struct log_ref ref;
static uint8_t *shared; /* what lies behind the control file */

static int setup(void **state)
{
	(void)state;
	env_make(&e, RING);
	e.s.head_copy.bypass_size = PAYLOAD;
	shared = mmap(NULL, CTL_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(shared != MAP_FAILED);
	log_ref_at(&ref, shared, 0);
	ref.f = env_file(&e, 0);
	ref.id = ref.f->id;
	ref.l->id = ref.id;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	(void)munmap(shared, CTL_LOG_BYTES);
	env_free(&e);
	return 0;
}

/* The byte of the log at an LSN. */
static uint8_t byte_at(uint64_t lsn)
{
	return (uint8_t)(lsn * 31 + (lsn >> 7));
}

typedef int append_call(struct session *s, const struct caller *who, const struct log_ref *r,
			const struct iovec *iov, int iovcnt, uint32_t length, uint64_t *ret_lsn);

/* Appends n bytes that belong at `lsn`, in two pieces. */
static int put(append_call *call, uint64_t lsn, uint32_t n, uint64_t *ret)
{
	uint8_t bytes[PAYLOAD];
	struct iovec iov[2] = { { bytes, n / 3 }, { bytes + n / 3, n - n / 3 } };
	struct caller who = env_caller();

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = byte_at(lsn + i);
	return call(&e.s, &who, &ref, iov, 2, n, ret);
}

static void good(append_call *call, uint64_t lsn, uint32_t n)
{
	uint64_t got = UINT64_MAX;

	assert_int_equal(put(call, lsn, n, &got), LOG_OK);
	assert_int_equal(got, lsn);
}

static int move(uint64_t lsn)
{
	struct caller who = env_caller();

	return log_move(&e.s, &who, &ref, lsn);
}

/* Every record of the log between tail and head, in order, without a gap, as it was appended. Returns how many. */
static unsigned check_lane(uint64_t from, uint64_t to)
{
	struct record_header h;
	uint64_t lsn = from;
	unsigned n = 0;
	struct walk w;
	int r;

	walk_begin(&w, &e.s.lane, e.s.ctl.hot->tail, lane_header(&e.s.lane)->tail.chain[0],
		   control_head(&e.s.ctl).head);
	while ((r = walk_next(&w, &h)) == WALK_RECORD) {
		uint8_t bytes[PAYLOAD];

		if (h.type != RECORD_WRITE || h.file_id != ref.id)
			continue;
		assert_int_equal(h.offset, lsn);
		assert_int_equal(h.flags, 0);
		assert_int_equal(record_payload(&e.s.lane, &h, bytes), 0);
		for (uint32_t i = 0; i < h.length; i++)
			assert_int_equal(bytes[i], byte_at(lsn + i));
		lsn += h.length;
		n++;
	}
	assert_int_equal(r, WALK_END);
	assert_int_equal(lsn, to);
	assert_int_equal(log_end(&ref), to);
	return n;
}

static void dense(void **state)
{
	uint64_t lsn = 0;

	(void)state;
	for (uint32_t n = 1; n < 200; n += 7) {
		good(log_append, lsn, n);
		lsn += n;
		/* Another file's records lie between. */
		assert_int_equal(env_write(&e, env_file(&e, 1), 0, n, NULL), 0);
	}
	assert_int_equal(check_lane(0, lsn), 29);
	assert_int_equal(ref.l->staged, lsn);
}

static void staged_comes_first(void **state)
{
	(void)state;
	good(log_append, 0, 10);
	good(log_stage, 10, 20);
	good(log_stage, 30, 30);
	assert_int_equal(log_end(&ref), 10);
	good(log_append, 60, 5);
	assert_int_equal(check_lane(0, 65), 4);
	good(log_stage, 65, 7);
	good(log_stage, 72, 8);
	/* One wait makes all durable. */
	assert_int_equal(move(65), LOG_OK);
	assert_int_equal(check_lane(0, 80), 6);
	assert_int_equal(move(79), LOG_OK);
	assert_int_equal(move(80), -ENXIO);
}

/* One barrier for a batch, of the thread that stored it. */
static unsigned drains;

static const struct pool_ops *ops_real;
static void count_drain(void)
{
	drains++;
	ops_real->drain();
}

static void one_drain(void **state)
{
	struct pool_ops counting = *pool_ops;

	(void)state;
	ops_real = pool_ops;
	counting.drain = count_drain;
	for (unsigned i = 0; i < 50; i++)
		good(log_stage, 10u * i, 10);
	pool_ops = &counting;
	drains = 0;
	assert_int_equal(move(499), LOG_OK);
	assert_int_equal(drains, 1);
	good(log_append, 500, 10);
	assert_int_equal(drains, 2);
	pool_ops = ops_real;
	assert_int_equal(check_lane(0, 510), 51);
}

static void stage_wraps_and_fills(void **state)
{
	uint64_t lsn = 0, got;
	unsigned full = 0;

	(void)state;
	for (unsigned i = 0; i < 600; i++) {
		uint32_t n = 1 + (i * 977) % 2000;
		int r = put(log_stage, lsn, n, &got);

		if (r == LOG_STAGE_FULL) {
			full++;
			while ((r = move(lsn - 1)) == LOG_FULL)
				env_trim(&e, control_head(&e.s.ctl).head,
					 control_head(&e.s.ctl).chain);
			assert_int_equal(r, LOG_OK);
			r = put(log_stage, lsn, n, &got);
		}
		assert_int_equal(r, LOG_OK);
		assert_int_equal(got, lsn);
		lsn += n;
	}
	assert_true(full >= 2);
	assert_true(ref.l->in > CTL_LOG_STAGE);
	while (move(lsn - 1) == LOG_FULL)
		env_trim(&e, control_head(&e.s.ctl).head, control_head(&e.s.ctl).chain);
	assert_int_equal(log_end(&ref), lsn);
	assert_int_equal(put(log_stage, lsn, PAYLOAD, &got), LOG_OK);
}

static void limits(void **state)
{
	uint64_t got = 77;
	uint8_t b[1];
	struct iovec iov = { b, 1 };
	struct caller who = env_caller();

	(void)state;
	assert_int_equal(log_append(&e.s, &who, &ref, &iov, 1, 0, &got), -EINVAL);
	assert_int_equal(log_append(&e.s, &who, &ref, &iov, 1, 2, &got), -EINVAL);
	assert_int_equal(log_append(&e.s, &who, &ref, &iov, 1, PAYLOAD + 1, &got), -EINVAL);
	good(log_append, 0, PAYLOAD);
	ref.l->capacity = PAYLOAD + 100;
	assert_int_equal(put(log_append, 0, 101, &got), -ENOSPC);
	assert_int_equal(put(log_stage, 0, 101, &got), -ENOSPC);
	good(log_stage, PAYLOAD, 100);
	assert_int_equal(put(log_append, 0, 1, &got), -ENOSPC);
	ref.l->first = 1;
	good(log_append, PAYLOAD + 100, 1);
	ref.l->capacity = 0;
	ref.l->staged = ref.l->lsn = INT64_MAX - 5;
	assert_int_equal(put(log_append, 0, 6, &got), -EOVERFLOW);
	ref.l->id = 99;
	assert_int_equal(put(log_append, 0, 1, &got), -ESTALE);
	assert_int_equal(put(log_stage, 0, 1, &got), -ESTALE);
	assert_int_equal(ref.f->lock.word, 0);
	assert_int_equal(e.s.ctl.hot->lane_lock.word, 0);
}

/* A full lane takes nothing of a record, and what was staged before it keeps its place. */
static void full(void **state)
{
	uint64_t lsn = 0, got;
	int r;

	(void)state;
	while ((r = put(log_append, lsn, 1000, &got)) == LOG_OK)
		lsn += 1000;
	assert_int_equal(r, LOG_FULL);
	check_lane(0, lsn);
	good(log_stage, lsn, 500);
	assert_int_equal(put(log_append, lsn + 500, 1000, &got), LOG_FULL);
	assert_int_equal(move(lsn), LOG_FULL);
	assert_int_equal(log_end(&ref), lsn);
	env_trim(&e, control_head(&e.s.ctl).head, control_head(&e.s.ctl).chain);
	good(log_append, lsn + 500, 1000);
	assert_int_equal(check_lane(lsn, lsn + 1500), 2);
}

/* ---- deaths ------------------------------------------------------------------------------------- */

static unsigned countdown;

static void step(void)
{
	if (countdown-- == 0)
		_exit(0);
}

static void dying_copy(void *dst, const void *src, size_t n)
{
	step();
	ops_real->copy(dst, src, n);
}

static void dying_drain(void)
{
	step();
	ops_real->drain();
	step();
}

/* A process dies at its n-th step in an append behind staged records. True if it came through. */
static bool die_in_append(uint64_t lsn, unsigned n)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct pool_ops dying = *pool_ops;
		uint64_t got;

		ops_real = pool_ops;
		dying.copy = dying_copy;
		dying.drain = dying_drain;
		pool_ops = &dying;
		countdown = n;
		/* A slot of its own would do the same: the thread that holds the lock is gone. */
		_exit(put(log_append, lsn, 50, &got) == LOG_OK ? 1 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status) == 1;
}

static void dies_anywhere(void **state)
{
	uint64_t lsn = 0;
	bool through = false;

	(void)state;
	for (unsigned n = 0; n < 40 && !through; n++) {
		uint64_t from = lsn;

		good(log_stage, lsn, 30);
		good(log_stage, lsn + 30, 40);
		through = die_in_append(lsn + 70, n);
		lsn += through ? 120 : 70;
		/* The dead one's record is not there, the staged ones are, once. */
		good(log_append, lsn, 10);
		lsn += 10;
		check_lane(from, lsn);
		env_trim(&e, control_head(&e.s.ctl).head, control_head(&e.s.ctl).chain);
	}
	assert_true(through);
}

/* What a dead owner's batch leaves behind its first record is none where a later record ends. */
static void dies_in_a_batch(void **state)
{
	bool through = false;

	(void)state;
	for (unsigned n = 0; n < 40 && !through; n++) {
		struct ctl_cell to;
		const char *why = "";
		uint32_t chain;
		struct walk w;

		for (unsigned i = 0; i < 2; i++)
			good(log_stage, ref.l->staged, 100);
		through = die_in_append(ref.l->staged, n);
		if (through)
			ref.l->staged += 50;
		/* As long as the first of them. */
		assert_int_equal(env_write(&e, env_file(&e, 1), 0, 100, NULL), 0);
		to = control_head(&e.s.ctl);
		env_trim(&e, to.head, to.chain);
		assert_int_equal(walk_find_head(&e.s.lane, &w, &chain, &why), 0);
		assert_string_equal(why ? why : "", "");
		assert_int_equal(w.position, to.head);
		if (!through)
			assert_int_equal(move(ref.l->staged - 1), LOG_OK);
		to = control_head(&e.s.ctl);
		env_trim(&e, to.head, to.chain);
	}
	assert_true(through);
}

/* Behind the head and before lsn: the words say what was about to be stored. */
static void dies_behind_head(void **state)
{
	struct caller who = env_caller();
	uint64_t head;

	(void)state;
	good(log_append, 0, 10);
	head = control_head(&e.s.ctl).head;
	good(log_append, 10, 20);
	ref.l->lsn = 10;
	ref.l->next_lsn = 30;
	ref.l->next_out = 0;
	ref.l->next_at = head + 1;
	assert_int_equal(log_settle(&e.s, &who, &ref), 0);
	assert_int_equal(log_end(&ref), 30);
	assert_int_equal(ref.l->next_at, 0);
	/* Before the head: another file's record stands there by now. */
	head = control_head(&e.s.ctl).head;
	ref.l->next_lsn = 99;
	ref.l->next_at = head + 1;
	assert_int_equal(env_write(&e, env_file(&e, 1), 30, 64, NULL), 0);
	good(log_append, 30, 5);
	check_lane(0, 35);
	/* And one of its own that was never published. */
	ref.l->next_lsn = 99;
	ref.l->next_at = control_head(&e.s.ctl).head + 1;
	good(log_append, 35, 5);
	check_lane(0, 40);
}

static void hold_entry(void *arg)
{
	struct log_ref *r = arg;
	struct caller who = env_caller();

	(void)lock_acquire(&e.s.ctl, &r->f->lock, &e.s.me, who.tid, LOCK_FOREVER, 0);
	/* The count is ahead of the frame. */
	r->l->staged += 1000;
}

static void producer_dies(void **state)
{
	int pid;

	(void)state;
	good(log_append, 0, 10);
	good(log_stage, 10, 10);
	pid = env_fork(hold_entry, &ref);
	env_kill(pid);
	good(log_stage, 20, 10);
	good(log_append, 30, 10);
	assert_int_equal(check_lane(0, 40), 4);
}

/* The log goes while somebody waits for the lane, to move what is staged: behind the mark of who removes it
 * nothing may come. */
static void *move_it(void *arg)
{
	*(int *)arg = move(10);
	return NULL;
}

static void removed_while_it_waits(void **state)
{
	struct caller who = env_caller();
	uint64_t head;
	pthread_t t;
	int r = 0;

	(void)state;
	good(log_append, 0, 10);
	good(log_stage, 10, 10);
	head = control_head(&e.s.ctl).head;
	assert_int_equal(lane_lock(&e.s, &who), 0);
	assert_int_equal(pthread_create(&t, NULL, move_it, &r), 0);
	while (atomic_load_seq(&e.s.ctl.hot->lane_lock.waiters) == 0)
		(void)usleep(1000);
	atomic_store_release(&ref.l->id, 0);
	lane_unlock(&e.s);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(r, -ESTALE);
	assert_int_equal(control_head(&e.s.ctl).head, head);
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void reads(void **state)
{
	struct log_place place = { .known = false };
	struct log_buffer b = { .bytes = NULL };
	struct record_header h;
	uint32_t need = 0;
	uint64_t tail;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		good(log_append, 100u * i, 100);
		assert_int_equal(env_write(&e, env_file(&e, 1), 0, 300, NULL), 0);
	}
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 1050, &b, &h, &need), -ENOBUFS);
	assert_int_equal(need, 100);
	assert_int_equal(log_buffer_room(&b, need), 0);
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 1050, &b, &h, &need), 1);
	assert_int_equal(h.offset, 1000);
	assert_int_equal(b.bytes[50], byte_at(1050));
	/* Backwards, from a place that is ahead. */
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 0, &b, &h, &need), 1);
	assert_int_equal(h.offset, 0);
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 2000, &b, &h, &need), 0);
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 1999, &b, &h, &need), 1);
	/* Trimmed: said to be elsewhere, never read as what lies there now. */
	tail = h.position;
	env_trim(&e, tail, h.chain);
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 1800, &b, &h, &need), 0);
	assert_int_equal(log_lane_read(&e.s, &ref, &place, 1900, &b, &h, &need), 1);
	log_buffer_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(dense, setup, teardown),
		cmocka_unit_test_setup_teardown(staged_comes_first, setup, teardown),
		cmocka_unit_test_setup_teardown(one_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(stage_wraps_and_fills, setup, teardown),
		cmocka_unit_test_setup_teardown(limits, setup, teardown),
		cmocka_unit_test_setup_teardown(full, setup, teardown),
		cmocka_unit_test_setup_teardown(dies_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(dies_in_a_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(dies_behind_head, setup, teardown),
		cmocka_unit_test_setup_teardown(producer_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(removed_while_it_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(reads, setup, teardown),
	};

	pool_ops_select();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
