/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "env.h"
#include "pool/lanelock.h"
#include "pool/slot_word.h"
#include "pool/space.h"

static struct env e;
static struct control other; /* the daemon's view */

static int set_up(void **state)
{
	(void)state;
	env_make(&e, 65536);
	other = env_other(&e);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	control_unmap(&other, false); /* a close would drop the slot that the test holds */
	env_free(&e);
	return 0;
}

static void child_takes(void *arg)
{
	struct holder me;

	if (slot_take(&e.s.ctl, ENV_INCARNATION, &me) < 0)
		abort();
	if (arg)
		*(struct holder *)arg = me;
}

static void takes(void **state)
{
	int a, b;
	unsigned versions[3];

	(void)state;
	assert_int_equal(e.s.me.slot, 1);
	assert_int_equal(e.s.me.generation, 1);
	assert_int_equal(e.s.ctl.slots[1].pid, getpid());
	assert_int_equal(e.s.ctl.slots[1].version, CTL_VERSION);
	assert_true(e.s.ctl.slots[1].since_ns > 0);
	assert_int_equal(slot_count(&other, versions, 3), 1);

	a = env_fork(child_takes, NULL);
	b = env_fork(child_takes, NULL);
	assert_int_equal(e.s.ctl.slots[2].pid, a);
	assert_int_equal(e.s.ctl.slots[3].pid, b);
	assert_int_equal(slot_count(&other, versions, 3), 3);
	assert_int_equal(versions[0], 0);
	assert_int_equal(versions[CTL_VERSION], 3);
	assert_true(slot_any_live(&other));

	env_kill(a);
	assert_int_equal(slot_count(&other, versions, 3), 2);
	a = env_fork(child_takes, NULL);
	assert_int_equal(e.s.ctl.slots[2].pid, a);
	assert_int_equal(e.s.ctl.slots[2].generation, 2);
	env_kill(a);
	env_kill(b);
}

/* Nobody is there once the last process has ended, however it ended. */
static void any_live(void **state)
{
	int a;

	(void)state;
	close(other.fd); /* drops this process's slot: POSIX locks */
	assert_false(slot_any_live(&e.s.ctl));
	a = env_fork(child_takes, NULL);
	assert_true(slot_any_live(&e.s.ctl));
	env_kill(a);
	assert_false(slot_any_live(&e.s.ctl));
}

static void dead_or_not(void **state)
{
	struct holder h = { .slot = 2, .generation = 1 };
	int a;

	(void)state;
	assert_false(slot_dead(&other, word_of(&e.s.me, 5)));
	assert_true(slot_dead(&other, word_of(&h, 5))); /* never taken */
	a = env_fork(child_takes, NULL);
	assert_false(slot_dead(&other, word_of(&h, 5)));
	h.generation = 2;
	assert_true(slot_dead(&other, word_of(&h, 5)));
	h.generation = 1;
	env_kill(a);
	assert_true(slot_dead(&other, word_of(&h, 5)));
	assert_true(slot_dead(&other, ~UINT64_C(0)));
}

static void closed(void **state)
{
	struct holder me;
	int pid;

	(void)state;
	close(other.fd);
	atomic_store_release(&e.s.ctl.head->state, CTL_CLOSED);
	assert_int_equal(slot_take(&e.s.ctl, ENV_INCARNATION, &me), -ESTALE);
	assert_false(slot_any_live(&e.s.ctl)); /* the byte is given back */
	atomic_store_release(&e.s.ctl.head->state, CTL_NEW);
	assert_int_equal(slot_take(&e.s.ctl, ENV_INCARNATION, &me), -ESTALE);
	atomic_store_release(&e.s.ctl.head->state, CTL_OPEN);
	assert_int_equal(slot_take(&e.s.ctl, ENV_INCARNATION + 1, &me), -ESTALE);
	assert_false(slot_any_live(&e.s.ctl));
	pid = env_fork(child_takes, NULL);
	env_kill(pid);
}

static void generation_skips_zero(void **state)
{
	int pid;

	(void)state;
	e.s.ctl.slots[2].generation = 0xffffff;
	pid = env_fork(child_takes, NULL);
	assert_int_equal(e.s.ctl.slots[2].generation, 0x1000001);
	env_kill(pid);
}

static void reserves(void *arg)
{
	struct session s = e.s;
	struct caller who = env_caller();

	if (slot_take(&s.ctl, ENV_INCARNATION, &s.me) < 0 ||
	    space_reserve(&s, &who, 4096) != SPACE_OK)
		abort();
	if (arg && lane_lock(&s, &who) < 0) /* and dies with the lane lock held */
		abort();
}

/* What the last holder had reserved goes before the slot is used again. */
static void strikes_note(void **state)
{
	int pid = env_fork(reserves, NULL);

	(void)state;
	assert_int_equal(e.s.ctl.slots[2].note, 4096);
	assert_int_equal(e.s.ctl.hot->reserved_bytes, 4096);
	env_kill(pid);
	pid = env_fork(child_takes, NULL);
	assert_int_equal(e.s.ctl.slots[2].note, 0);
	assert_int_equal(e.s.ctl.hot->reserved_bytes, 0);
	env_kill(pid);
}

/* slot_take maps no lane: the header at head stays for the next that locks the lane. */
static void hands_dead_lane_lock_on(void **state)
{
	int pid = env_fork(reserves, &e);
	uint8_t *head = lane_at(&e.s.lane, 0);

	(void)state;
	head[0] = 1;
	env_kill(pid);
	pid = env_fork(child_takes, NULL);
	assert_true(e.s.ctl.hot->lane_lock.word == WORD_DIED);
	assert_int_equal(e.s.ctl.hot->reserved_bytes, 0);
	assert_int_equal(head[0], 1);
	assert_int_equal(lane_lock(&e.s, &e.who), 0);
	assert_int_equal(head[0], 0);
	lane_unlock(&e.s);
	assert_true(e.s.ctl.hot->lane_lock.word == 0);
	env_kill(pid);
}

static void daemon_slot(void **state)
{
	struct holder a, b;
	struct control third = env_other(&e);

	(void)state;
	assert_false(slot_daemon_live(&third));
	assert_int_equal(slot_take_daemon(&other, &a), 0);
	assert_int_equal(a.slot, CTL_SLOT_DAEMON);
	assert_int_equal(a.generation, 1);
	assert_int_equal(slot_take_daemon(&third, &b), -EBUSY);
	assert_true(slot_daemon_live(&third));
	assert_int_equal(e.s.ctl.slots[0].generation, 1);
	control_unmap(&other, true);
	assert_false(slot_daemon_live(&third));
	assert_int_equal(slot_take_daemon(&third, &b), 0);
	assert_int_equal(b.generation, 2);
	other = third;
}

static void holds_session_lock(void *arg)
{
	struct flock l = { .l_type = F_RDLCK, .l_start = CTL_LOCK_SESSION, .l_len = 1 };

	(void)arg;
	if (fcntl(e.s.ctl.fd, F_SETLK, &l) < 0)
		abort();
}

static void session_lock(void **state)
{
	struct holder me;
	int pid = env_fork(holds_session_lock, NULL);
	uint64_t begin = env_ms();

	(void)state;
	assert_int_equal(session_lock_exclusive(&other, 50), -EAGAIN);
	assert_true(env_ms() - begin >= 50);
	env_kill(pid);
	assert_int_equal(session_lock_exclusive(&other, 50), 0);
	assert_int_equal(slot_take(&e.s.ctl, ENV_INCARNATION, &me), -EAGAIN);
	session_unlock(&other);
	pid = env_fork(child_takes, NULL);
	env_kill(pid);
}

static void no_free_slot(void **state)
{
	struct flock all = { .l_type = F_WRLCK,
			     .l_start = CTL_LOCK_SLOT(2),
			     .l_len = CTL_SLOTS - 2 };
	struct holder me;
	int status, pid;

	(void)state;
	assert_int_equal(fcntl(other.fd, F_OFD_SETLK, &all), 0);
	pid = fork();
	if (pid == 0)
		_exit(slot_take(&e.s.ctl, ENV_INCARNATION, &me) == -EMFILE ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(takes),	    CASE(any_live),
		CASE(dead_or_not),  CASE(closed),
		CASE(strikes_note), CASE(generation_skips_zero),
		CASE(daemon_slot),  CASE(hands_dead_lane_lock_on),
		CASE(session_lock), CASE(no_free_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
