/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Appending beside others: a destager that sleeps, owners that die, threads, memory that changes. */
#include "appending.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "pool/append_internal.h"
#include "pool/lanelock.h"
#include "pool/record.h"
#include "pool/slot.h"
#include "pool/space.h"
#include "pool/walk.h"

/* ---- the destager's sleep ---- */

static void wakes(void **state)
{
	uint32_t *asleep = &e.s.ctl.hot->asleep;

	(void)state;
	*asleep = 2;
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 64, 0), 0);
	assert_int_equal(*asleep, 2);
	while (control_head(&e.s.ctl).head + 128 <= RING / 4)
		assert_int_equal(append(NULL, RECORD_WRITE, 0, 64, 0), 0);
	assert_int_equal(*asleep, 2); /* a quarter, and not more */
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 64, 0), 0);
	assert_int_equal(*asleep, 0);
	*asleep = 1;
	assert_int_equal(append(NULL, RECORD_WRITE, 0, 64, 0), 0);
	assert_int_equal(*asleep, 0);
}

/* Sleeps as the destager does: store, look at head again, wait. */
static void *sleeper(void *arg)
{
	struct ctl_hot *hot = e.s.ctl.hot;
	uint64_t *seen = arg;

	while (*seen < 64 * 3000) {
		atomic_store_seq(&hot->asleep, 1);
		if (control_head(&e.s.ctl).head == *seen &&
		    futex_wait(&hot->asleep, 1, UINT64_C(5000000000)) == -ETIMEDOUT)
			return arg; /* a lost wake */
		atomic_store_seq(&hot->asleep, 0);
		*seen = control_head(&e.s.ctl).head;
		(void)space_publish_tail(&e.s, &(struct caller){ .tid = sys_gettid() }, *seen);
	}
	return NULL;
}

static void no_lost_wake(void **state)
{
	pthread_t t;
	uint64_t seen = 0;
	void *bad;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, sleeper, &seen), 0);
	for (unsigned i = 0; i < 3000;) {
		if (append(NULL, RECORD_WRITE, 0, 0, 0) == APPEND_OK)
			i++;
		for (unsigned spin = i * 37 % 1000; spin; spin--)
			cpu_relax();
	}
	pthread_join(t, &bad);
	assert_null(bad);
}

/* ---- death inside ---- */

static void dies_inside(void *arg)
{
	struct session s = e.s;
	struct caller who = env_caller();
	struct ctl_file *f = &e.s.ctl.files[0];

	(void)arg;
	if (slot_take(&s.ctl, ENV_INCARNATION, &s.me) < 0 || space_reserve(&s, &who, 4096) < 0 ||
	    lock_acquire(&s.ctl, &s.ctl.hot->lane_lock, &s.me, who.tid, LOCK_FOREVER, 0) !=
		    LOCK_TAKEN)
		abort();
	f->last = 5 * 64; /* it had come as far as the entry */
}

static void owner_died(void **state)
{
	struct ctl_file *f = env_file(&e, 0);
	struct record_header h;
	uint64_t at;
	int pid;

	(void)state;
	/* its record is whole, and nobody was told of it */
	assert_int_equal(env_write(&e, f, 0, 64, &at), 0);
	e.s.ctl.hot->cell[0] = (struct ctl_cell){ 0 };
	e.s.ctl.hot->index = 0;
	e.s.ctl.hot->live_files = 0;
	f->last = 0;
	assert_int_equal(record_check(&e.s.lane, 0, 0, &h), 0);
	pid = env_fork(dies_inside, NULL);
	env_kill(pid);

	assert_int_equal(lane_lock(&e.s, &e.who), 0);
	lane_unlock(&e.s);
	assert_int_equal(e.s.ctl.hot->owner_died, 1);
	assert_int_equal(record_check(&e.s.lane, 0, 0, &h), -EBADMSG);
	assert_int_equal(e.s.ctl.hot->reserved_bytes, 0);
	assert_int_equal(e.s.ctl.hot->live_files, 1);
	assert_int_equal(env_write(&e, f, 0, 64, &at), 0);
	assert_int_equal(at, 0);
}

static void dies_in_publish(void *arg)
{
	struct session s = e.s;
	struct caller who = env_caller();

	(void)arg;
	if (slot_take(&s.ctl, ENV_INCARNATION, &s.me) < 0 || lane_lock(&s, &who) < 0)
		abort();
}

/* It died between its entry and its head, with a PAD before its record; the next one has none. */
static void first_is_not_behind_a_pad(void **state)
{
	struct ctl_file *f = env_file(&e, 1), *other = env_file(&e, 2);
	struct ctl_cell cell, was[2];
	uint32_t index;
	uint64_t at;

	(void)state;
	while (control_head(&e.s.ctl).head < RING - 2048) {
		assert_int_equal(env_write(&e, other, 0, 960, NULL), 0);
		cell = control_head(&e.s.ctl);
		env_trim(&e, cell.head, cell.chain);
	}
	memcpy(was, e.s.ctl.hot->cell, sizeof(was));
	index = e.s.ctl.hot->index;
	assert_int_equal(env_write(&e, f, 0, 4096, &at), 0);
	assert_int_equal(at, RING);
	memcpy(e.s.ctl.hot->cell, was, sizeof(was));
	e.s.ctl.hot->index = index;
	env_kill(env_fork(dies_in_publish, NULL));

	assert_int_equal(env_write(&e, f, 0, 64, &at), 0);
	assert_int_equal(at, cell.head);
	assert_true(f->first <= at);
}

/* ---- threads ---- */

static void *appends_one(void *arg)
{
	const struct append_request touch = { .type = RECORD_TOUCH };
	struct caller who = env_caller();

	(void)arg;
	if (append_record(&e.s, &who, NULL, 2, &touch, NULL) != APPEND_OK)
		abort();
	return NULL;
}

/* Who waits for the lock finds its place behind the record of whom it waited for. */
static void no_place_before_the_lock(void **state)
{
	const struct append_request touch = { .type = RECORD_TOUCH };
	struct ctl_hot *hot = e.s.ctl.hot;
	struct record_header h;
	struct place at;
	struct walk w;
	pthread_t t;

	(void)state;
	assert_int_equal(lane_lock(&e.s, &e.who), 0);
	assert_int_equal(pthread_create(&t, NULL, appends_one, NULL), 0);
	while (atomic_load_relaxed(&hot->lane_lock.waiters) == 0)
		env_sleep_ms(1);
	assert_int_equal(append_place(&e.s, NULL, &touch, control_head(&e.s.ctl), &at), APPEND_OK);
	append_publish(hot, &at, append_store(&e.s, &touch, 1, &at, 1));
	lane_unlock(&e.s);
	pthread_join(t, NULL);

	walk_begin(&w, &e.s.lane, 0, 0, UINT64_MAX);
	for (uint64_t id = 1; id <= 2; id++) {
		assert_int_equal(walk_next(&w, &h), WALK_RECORD);
		assert_int_equal(h.file_id, id);
	}
	assert_int_equal(control_head(&e.s.ctl).head, w.position);
}

#define THREADS 8u
#define EACH	4000u

static struct env many;

static void *appends(void *arg)
{
	unsigned thread = (unsigned)(uintptr_t)arg;
	struct caller who = env_caller();
	uint8_t bytes[700];

	for (unsigned i = 0; i < EACH; i++) {
		uint32_t n = (thread * 131 + i * 7) % 700;
		struct iovec iov = { bytes, n };
		struct append_request r = {
			.type = RECORD_WRITE, .offset = i, .iov = &iov, .iovcnt = 1, .length = n
		};

		memset(bytes, (int)(thread * 17 + i), n);
		if (append_record(&many.s, &who, NULL, thread + 1, &r, NULL) != APPEND_OK)
			abort();
	}
	return NULL;
}

static void all_seen_dense(void **state)
{
	pthread_t t[THREADS];
	unsigned next[THREADS] = { 0 };
	struct walk w;
	struct record_header h;
	uint8_t out[700];
	uint64_t head;

	(void)state;
	env_make(&many, 32 << 20);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, appends, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);

	head = control_head(&many.s.ctl).head;
	walk_begin(&w, &many.s.lane, 0, 0, UINT64_MAX);
	while (walk_next(&w, &h) == WALK_RECORD) {
		unsigned thread = (unsigned)h.file_id - 1;

		assert_true(thread < THREADS);
		assert_int_equal(h.offset, next[thread]++); /* in each thread's own order */
		assert_int_equal(h.drained, h.position);
		assert_int_equal(record_payload(&many.s.lane, &h, out), 0);
		for (uint32_t i = 0; i < h.length; i++)
			assert_int_equal(out[i], (uint8_t)(thread * 17 + h.offset));
	}
	assert_int_equal(w.position, head);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(next[i], EACH);
	assert_int_equal(many.s.ctl.hot->records, THREADS * EACH);
	env_free(&many);
}

/* A race on purpose: nothing for the thread sanitizer. */
#ifdef __SANITIZE_THREAD__
#define RACING(f)
#else
#define RACING(f) CASE(f),

static uint64_t moving[512];
static int stop;

static void *changes(void *arg)
{
	for (uint64_t i = 0; !atomic_load_relaxed(&stop); i++)
		for (unsigned j = 0; j < 512; j += 8)
			atomic_store_relaxed(&moving[j], i);
	return arg;
}

/* The caller's memory changes while it is appended: the record is valid all the same. */
static void changing_underfoot(void **state)
{
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, changes, NULL), 0);
	for (unsigned i = 0; i < 20000; i++) {
		struct iovec iov = { moving, sizeof(moving) };
		struct append_request r = {
			.type = RECORD_WRITE, .iov = &iov, .iovcnt = 1, .length = sizeof(moving)
		};
		struct record_header h;
		uint64_t at;

		assert_int_equal(append_record(&e.s, &e.who, NULL, 1, &r, &at), 0);
		assert_int_equal(record_check(&e.s.lane, at, at, &h), 0);
		env_trim(&e, control_head(&e.s.ctl).head, h.crc);
	}
	atomic_store_relaxed(&stop, 1);
	pthread_join(t, NULL);
}
#endif

int append_peers_run(void);

int append_peers_run(void)
{
	const struct CMUnitTest tests[] = {
		CASE(wakes),
		CASE(no_lost_wake),
		CASE(owner_died),
		CASE(first_is_not_behind_a_pad),
		CASE(no_place_before_the_lock),
		RACING(changing_underfoot) CASE(all_seen_dense),
	};

	return cmocka_run_group_tests_name("append peers", tests, NULL, NULL);
}
