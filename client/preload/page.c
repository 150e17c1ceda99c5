/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/page.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/futex.h"
#include "base/sys.h"
#include "client/preload/link.h"

#define PAGE_BYTES   4096
#define LOCK_LOOK_NS UINT64_C(10000000) /* a waiter looks whether the owner still lives */

struct page *page;

static _Thread_local __attribute__((tls_model("initial-exec"))) struct mark_self self;

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

int mark_enter(struct call_mark *m, struct caller *who)
{
	page_own();
	return mark_begin(&self, atomic_load_relaxed(&page->key), m, who);
}

void mark_leave(struct call_mark *m)
{
	mark_end(&self, m);
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
