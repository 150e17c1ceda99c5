/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Models: tests/models/slots.pml (bytes, generations), tests/models/attach.pml (taking and closing). */
#include "pool/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"
#include "pool/lock.h"
#include "pool/slot_word.h"
#include "pool/space.h"

#define SESSION_TRY_NS	 UINT64_C(1000000)    /* pause between tries for the session lock: 1 ms */
#define SESSION_LIMIT_NS UINT64_C(1000000000) /* a holder keeps it for microseconds */
#define LANE_LOCK_NS	 UINT64_C(1000000000)

/* One fcntl lock call on [start, start + len). 0 or a negative errno. */
static int byte_lock(int fd, int command, short type, int64_t start, int64_t len)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len
	};

	return (int)sys_call3(SYS_fcntl, fd, command, &lock);
}

/* The number may have been closed behind our back, and mean another file now; the description and its locks live
 * on in the mapping. */
static bool descriptor_lost(const struct control *c)
{
	struct stat st;

	return c->ofd &&
	       (sys_call2(SYS_fstat, c->fd, &st) < 0 || st.st_dev != c->dev || st.st_ino != c->ino);
}

/* True if anybody but this description holds a lock in [start, start + len). */
static bool byte_locked(const struct control *c, int64_t start, int64_t len)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len
	};

	/* A descriptor that cannot be asked tells nothing: nobody is declared dead for that. */
	if (descriptor_lost(c) || sys_call3(SYS_fcntl, c->fd, F_OFD_GETLK, &lock) < 0)
		return true;
	return lock.l_type != F_UNLCK;
}

static void pause_ns(uint64_t ns)
{
	struct timespec t = { .tv_sec = 0, .tv_nsec = (long)ns };

	(void)sys_call2(SYS_nanosleep, &t, NULL);
}

/* Tries for at most limit_ns. The last try's errno: -EAGAIN or -EACCES when somebody holds it. */
static int lock_within(int fd, int command, short type, uint64_t limit_ns)
{
	uint64_t end = now_monotonic_ns() + limit_ns;
	int r;

	while ((r = byte_lock(fd, command, type, CTL_LOCK_SESSION, 1)) < 0) {
		if (r != -EAGAIN && r != -EACCES && r != -EINTR)
			return r;
		if (now_monotonic_ns() >= end)
			return -EAGAIN;
		pause_ns(SESSION_TRY_NS);
	}
	return 0;
}

/* The generation first: whoever still believes in the last holder learns that it is gone. */
static uint32_t raise_generation(struct ctl_slot *slot)
{
	uint64_t g = atomic_load_relaxed(&slot->generation) + 1;

	/* 0 in the bits that stand in lock words would make a word that looks free */
	if ((g & WORD_GENERATION_MASK) == 0)
		g++;
	atomic_store_seq(&slot->generation, g);
	return (uint32_t)(g & WORD_GENERATION_MASK);
}

static void describe(struct ctl_slot *slot)
{
	/* Relaxed: for people (status). */
	atomic_store_relaxed(&slot->pid, (uint32_t)sys_call0(SYS_getpid));
	atomic_store_relaxed(&slot->version, CTL_VERSION);
	atomic_store_relaxed(&slot->since_ns, now_realtime_ns());
}

/* Strikes out what the last holder of the slot had noted. */
static int strike_note(const struct control *c, const struct holder *me)
{
	int r = lock_acquire(c, &c->hot->lane_lock, me, sys_gettid(), LANE_LOCK_NS, 0);

	if (r < 0)
		return r;
	/* Relaxed, like all that touches notes but a new daemon's: under the lane lock. */
	atomic_store_relaxed(&c->slots[me->slot].note, 0);
	space_recount_notes(c, me);
	/* The dead owner's header in the lane is still to be struck out, by somebody who maps it. */
	if (r == LOCK_OWNER_DIED)
		lock_release_died(&c->hot->lane_lock);
	else
		lock_release(&c->hot->lane_lock);
	return 0;
}

/* POSIX locks end with the process, whatever happens to its descriptors, and serve the shim, whose descriptors are
 * hidden from the program; a library's may be closed by the program, but its mapping may not. */
static int slot_command(const struct control *c)
{
	return c->ofd ? F_OFD_SETLK : F_SETLK;
}

/* With the session lock held shared. */
static int take_free_byte(const struct control *c, uint64_t incarnation, struct holder *ret)
{
	uint32_t slot;
	int r = -EMFILE;

	for (slot = CTL_SLOT_DAEMON + 1; slot < CTL_SLOTS; slot++) {
		r = byte_lock(c->fd, slot_command(c), F_WRLCK, CTL_LOCK_SLOT(slot), 1);
		if (r == 0)
			break;
		if (r != -EAGAIN && r != -EACCES)
			return r;
	}
	if (slot == CTL_SLOTS)
		return -EMFILE;

	ret->slot = slot;
	ret->generation = raise_generation(&c->slots[slot]);

	/* Read after the byte is held: who closes the file sees the byte, or we see CLOSED. Acquire:
	 * pairs with the daemon's store of CTL_OPEN. */
	if (atomic_load_acquire(&c->head->state) != CTL_OPEN ||
	    atomic_load_relaxed(&c->head->incarnation) != incarnation)
		r = -ESTALE;
	else
		r = strike_note(c, ret);
	if (r < 0) {
		(void)byte_lock(c->fd, slot_command(c), F_UNLCK, CTL_LOCK_SLOT(slot), 1);
		return r;
	}
	describe(&c->slots[slot]);
	return 0;
}

int slot_take(const struct control *c, uint64_t incarnation, struct holder *ret)
{
	int r = lock_within(c->fd, slot_command(c), F_RDLCK, SESSION_LIMIT_NS);

	if (r < 0)
		return r;
	r = take_free_byte(c, incarnation, ret);
	(void)byte_lock(c->fd, slot_command(c), F_UNLCK, CTL_LOCK_SESSION, 1);
	return r;
}

int slot_take_daemon(const struct control *c, struct holder *ret)
{
	struct ctl_slot *slot = &c->slots[CTL_SLOT_DAEMON];
	int r = byte_lock(c->fd, F_OFD_SETLK, F_WRLCK, CTL_LOCK_SLOT(CTL_SLOT_DAEMON), 1);

	if (r < 0)
		return r == -EAGAIN || r == -EACCES ? -EBUSY : r;
	ret->slot = CTL_SLOT_DAEMON;
	ret->generation = raise_generation(slot);
	describe(slot);
	/* Its note is struck out at the next recount; a hostile domain may hold the lane lock now. */
	atomic_store_relaxed(&slot->note, 0);
	return 0;
}

bool slot_dead(const struct control *c, uint64_t word)
{
	uint32_t slot = word_slot(word);

	if (slot >= CTL_SLOTS)
		return true; /* no process's: left by lock_release_died, or garbage */
	/* Generation first: a new holder locks the byte and then raises it, so a byte seen locked
	 * with the word's generation still there is looked at again 100 ms later. */
	if ((atomic_load_seq(&c->slots[slot].generation) & WORD_GENERATION_MASK) !=
	    word_generation(word))
		return true;
	return !byte_locked(c, CTL_LOCK_SLOT(slot), 1);
}

bool slot_daemon_live(const struct control *c)
{
	return byte_locked(c, CTL_LOCK_SLOT(CTL_SLOT_DAEMON), 1);
}

bool slot_any_live(const struct control *c)
{
	return byte_locked(c, CTL_LOCK_SLOT(CTL_SLOT_DAEMON + 1), CTL_SLOTS - CTL_SLOT_DAEMON - 1);
}

bool slot_of_process(const struct control *c)
{
	int64_t at = CTL_LOCK_SLOT(CTL_SLOT_DAEMON + 1), end = CTL_LOCK_SLOT(CTL_SLOTS);

	while (at < end) {
		struct flock lock = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = end - at
		};

		if (sys_call3(SYS_fcntl, c->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
			return false;
		/* An OFD lock's owner is told as -1. */
		if (lock.l_pid == (pid_t)sys_call0(SYS_getpid))
			return true;
		at = lock.l_start + max_of(lock.l_len, (off_t)1);
	}
	return false;
}

unsigned slot_count(const struct control *c, unsigned *ret_versions, unsigned n)
{
	unsigned count = 0;

	for (unsigned v = 0; v < n; v++)
		ret_versions[v] = 0;
	for (uint32_t i = CTL_SLOT_DAEMON + 1; i < CTL_SLOTS; i++) {
		uint32_t version;

		/* never taken: no system call for the many that nobody used */
		if (atomic_load_relaxed(&c->slots[i].generation) == 0 ||
		    !byte_locked(c, CTL_LOCK_SLOT(i), 1))
			continue;
		count++;
		version = atomic_load_relaxed(&c->slots[i].version);
		if (version < n)
			ret_versions[version]++;
	}
	return count;
}

int session_lock_exclusive(const struct control *c, unsigned timeout_ms)
{
	return lock_within(c->fd, F_OFD_SETLK, F_WRLCK, (uint64_t)timeout_ms * 1000000u);
}

void session_unlock(const struct control *c)
{
	(void)byte_lock(c->fd, F_OFD_SETLK, F_UNLCK, CTL_LOCK_SESSION, 1);
}
