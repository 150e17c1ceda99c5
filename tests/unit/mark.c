/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who comes from inside a call of its own thread, and whose call was left: exactly, where signals come by chance. */
#include "client/mark.h"

#include <string.h>

#include "env.h"

#define KEY 0x1122u

static struct mark_self self;
static struct caller who;

static int set_up(void **state)
{
	(void)state;
	memset(&self, 0, sizeof(self));
	return 0;
}

/* A call from a frame below the caller's. Who may begin is inside of nothing: a lock with its word in it was left. */
static int __attribute__((noinline)) call(uint64_t key)
{
	struct call_mark m;
	int r;

	who.stale_self = 0;
	r = mark_begin(&self, key, &m, &who);
	assert_int_equal(who.stale_self, r == 0);
	if (r == 0)
		mark_end(&self, &m);
	return r;
}

static void one_after_another(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(call(KEY), 0);
		assert_int_equal(who.tid, sys_gettid());
		assert_null(self.mark);
	}
}

/* A signal handler, on the thread's stack: the call that it came into goes on, so it cannot have the same locks. */
static void inside_is_refused(void **state)
{
	struct call_mark m;

	(void)state;
	assert_int_equal(mark_begin(&self, KEY, &m, &who), 0);
	assert_int_equal(call(KEY), -EDEADLK);
	assert_ptr_equal(self.mark, &m);
	assert_int_equal(call(KEY), -EDEADLK);
	mark_end(&self, &m);
	assert_int_equal(call(KEY), 0);
}

static struct call_mark high;
static volatile int refused;

static void on_signal(int signal)
{
	(void)signal;
	refused = call(KEY);
}

/* On a stack of its own, wherever that lies. */
static void inside_on_another_stack(void **state)
{
	static uint8_t stack[65536];
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) }, old;
	struct call_mark low;

	(void)state;
	assert_int_equal(sigaltstack(&ss, &old), 0);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	/* marks on either side of that stack: our own is above, and so may be what is static */
	for (unsigned i = 0; i < 2; i++) {
		struct call_mark *m = i ? &high : &low;

		assert_int_equal(mark_begin(&self, KEY, m, &who), 0);
		refused = 0;
		(void)raise(SIGUSR1);
		assert_int_equal(refused, -EDEADLK);
		mark_end(&self, m);
	}
	assert_int_equal(sigaltstack(&old, NULL), 0);
	(void)signal(SIGUSR1, SIG_DFL);
}

/* Begins a call and never ends it, as one that a handler leaves by longjmp. */
static void __attribute__((noinline)) leave(void)
{
	struct call_mark m;

	assert_int_equal(mark_begin(&self, KEY, &m, &who), 0);
}

/* From the very same place, and from above the frame that was left: whatever stands there. */
static void left_from_above(void **state)
{
	struct call_mark m;

	(void)state;
	for (int i = 0; i < 3; i++)
		leave();
	assert_true(self.mark < &m);
	assert_int_equal(mark_begin(&self, KEY, &m, &who), 0);
	mark_end(&self, &m);
	assert_int_equal(call(KEY), 0);
}

/* From below: other frames have been written over it. */
static void left_from_below(void **state)
{
	struct call_mark m;

	(void)state;
	assert_int_equal(mark_begin(&self, KEY, &m, &who), 0);
	memset(&m, 0x5a, sizeof(m));
	assert_int_equal(call(KEY), 0);
}

/* A child forked inside a call has a key of its own, and nothing of what its parent was at. */
static void forked_inside(void **state)
{
	struct call_mark m;

	(void)state;
	assert_int_equal(mark_begin(&self, KEY, &m, &who), 0);
	assert_int_equal(call(KEY + 1), 0);
	assert_null(self.mark);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup(f, set_up)
	const struct CMUnitTest tests[] = {
		CASE(one_after_another), CASE(inside_is_refused), CASE(inside_on_another_stack),
		CASE(left_from_above),	 CASE(left_from_below),	  CASE(forked_inside),
	};

	return cmocka_run_group_tests_name("mark", tests, NULL, NULL);
}
