/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/page.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/sys.h"
#include "client/preload/link.h"

#define PAGE_BYTES   4096
#define LOCK_LOOK_NS UINT64_C(10000000) /* a waiter looks whether the owner still lives */

struct page *page;

/* initial-exec: no allocation on first use, so it may be touched in a signal handler. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	uint64_t key; /* of the process that the rest was written in */
	uint32_t tid;
	struct call_mark *mark; /* innermost call of ours, or NULL */
} self;

int page_init(void)
{
	long p = sys_call6(SYS_mmap, 0, PAGE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long r;

	if (p < 0 && p > -4096)
		return (int)p;
	r = sys_call3(SYS_madvise, p, PAGE_BYTES, MADV_WIPEONFORK);
	if (r < 0) {
		(void)sys_call2(SYS_munmap, p, PAGE_BYTES);
		return (int)r;
	}
	page = (struct page *)p;
	page_own();
	return 0;
}

void page_own(void)
{
	uint64_t none = 0;

	/* Acquire: pairs with the CAS below in another thread of this process. */
	if (atomic_load_acquire(&page->key))
		return;
	link_after_fork();
	atomic_store_relaxed(&page->pid, (uint32_t)sys_call0(SYS_getpid));
	/* A forked child has one thread; a handler that comes here meanwhile writes the same. The
	 * clock never shows a child the time that its parent saw. */
	(void)atomic_cas_seq(&page->key, &none, now_monotonic_ns() | 1);
}

bool page_foreign(void)
{
	/* Relaxed: written before this process had a second thread. */
	uint32_t owner = atomic_load_relaxed(&page->pid);

	return owner != 0 && owner != (uint32_t)sys_call0(SYS_getpid);
}

/* True if the call that made the mark is still under way below us on the stack. */
static bool mark_lives(const struct call_mark *outer, const struct call_mark *inner)
{
	stack_t ss = { .ss_flags = 0 };

	/* Stacks grow down: a handler's frame lies below the frame that it interrupted, unless it has
	 * a stack of its own. */
	if (inner > outer) {
		(void)sys_call2(SYS_sigaltstack, NULL, &ss);
		if (!(ss.ss_flags & SS_ONSTACK))
			return false;
	}
	return outer->canary == ((uint64_t)(uintptr_t)outer ^ self.key);
}

int mark_enter(struct call_mark *m, struct caller *who)
{
	uint64_t key;

	page_own();
	key = atomic_load_relaxed(&page->key);
	if (self.key != key) {
		/* First call of this thread, or of a forked child: nothing it knows is true here. */
		self.mark = NULL;
		self.tid = sys_gettid();
		self.key = key;
	}
	who->tid = self.tid;
	who->stale_self = 0;
	if (self.mark) {
		if (mark_lives(self.mark, m))
			return -EDEADLK;
		who->stale_self = 1;
	}
	m->canary = (uint64_t)(uintptr_t)m ^ key;
	/* A handler of this thread may come at any instruction: the mark is whole before it shows. */
	__asm__ volatile("" ::: "memory");
	self.mark = m;
	__asm__ volatile("" ::: "memory");
	return 0;
}

void mark_leave(struct call_mark *m)
{
	__asm__ volatile("" ::: "memory");
	self.mark = NULL;
	m->canary = 0;
}

int page_lock(const struct caller *who, bool wait)
{
	for (;;) {
		uint32_t seen = 0;

		/* Seq_cst: acquires what the last holder did; pairs with page_unlock. */
		if (atomic_cas_seq(&page->lock, &seen, who->tid))
			return 0;
		/* Our own word: left by a longjmp, since the mark rules out that we are inside. */
		if (seen == who->tid)
			return 0;
		if (!wait)
			return -EAGAIN;
		if (futex_wait(&page->lock, seen, LOCK_LOOK_NS) == -ETIMEDOUT &&
		    sys_call3(SYS_tgkill, page->pid, seen, 0) == -ESRCH)
			(void)atomic_cas_seq(&page->lock, &seen, 0);
	}
}

void page_unlock(void)
{
	/* Releases. The wake always, since no count of waiters is kept: once per attach. */
	atomic_store_seq(&page->lock, 0);
	(void)futex_wake(&page->lock, 1);
}
