/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which process a connection belongs to: a forked child has its parent's memory and none of its locks. */

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "client/lib/lib.h"

/* Wiped by the kernel in any child, however it was made. */
static uint64_t *page;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmemlogd *list;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static _Thread_local __attribute__((tls_model("initial-exec"))) struct mark_self self;

static void before_fork(void)
{
	(void)pthread_mutex_lock(&list_lock);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&list_lock);
}

/* The description, and with it the parent's slot, would outlive the parent in here. The mappings are not
 * there (MADV_DONTFORK). */
static void in_child(void)
{
	for (struct pmemlogd *c = list; c; c = c->next) {
		if (c->control_fd >= 0)
			(void)close(c->control_fd);
		if (c->socket_fd >= 0)
			(void)close(c->socket_fd);
		c->control_fd = c->socket_fd = -1;
	}
	list = NULL;
	(void)pthread_mutex_unlock(&list_lock);
}

static void start(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return;
	if (madvise(p, 4096, MADV_WIPEONFORK) < 0 ||
	    pthread_atfork(before_fork, after_fork, in_child) != 0) {
		(void)munmap(p, 4096);
		return;
	}
	page = p;
}

uint64_t process_key(void)
{
	uint64_t none = 0;

	(void)pthread_once(&once, start);
	if (!page)
		return 0;
	/* A child has one thread when its page is wiped; the clock never shows it the time that its parent
	 * saw. */
	if (atomic_load_acquire(page) == 0)
		(void)atomic_cas_seq(page, &none, now_monotonic_ns() | 1);
	return atomic_load_acquire(page);
}

int process_check(const struct pmemlogd *c)
{
	/* Acquire: pairs with the exchange above. */
	return atomic_load_acquire(page) == c->key ? 0 : -ECHILD;
}

void process_add(struct pmemlogd *c)
{
	(void)pthread_mutex_lock(&list_lock);
	c->next = list;
	list = c;
	(void)pthread_mutex_unlock(&list_lock);
}

void process_remove(struct pmemlogd *c)
{
	(void)pthread_mutex_lock(&list_lock);
	for (struct pmemlogd **p = &list; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	(void)pthread_mutex_unlock(&list_lock);
}

int lib_enter(const struct pmemlogd *c, struct call_mark *m, struct caller *who)
{
	int r = process_check(c);

	return r < 0 ? r : mark_begin(&self, c->key, m, who);
}

void lib_leave(struct call_mark *m)
{
	mark_end(&self, m);
}
