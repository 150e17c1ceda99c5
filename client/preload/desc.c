/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/desc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/sys.h"

#define HIDDEN_FROM 1000 /* select() programs use numbers below 1024, most programs below 100 */

uintptr_t *desc_table;
static struct desc *pool;
static uint32_t next_free; /* atomic, relaxed: where to look first */
static uint32_t high;	   /* atomic: 1 + highest number ever set */

static struct desc ours = { .refs = 1, .kind = DESC_OURS };

static void *map(size_t bytes)
{
	long p = sys_call6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

int desc_init(void)
{
	uintptr_t *table = map(DESC_FDS * sizeof(*table));

	pool = map(DESC_COUNT * sizeof(*pool));
	if (!pool || !table)
		return -ENOMEM;
	desc_table = table;
	return 0;
}

static struct desc *pointer_of(uintptr_t word)
{
	return (struct desc *)(word & ~DESC_INHERIT);
}

struct desc *desc_get(int fd)
{
	for (;;) {
		struct desc *d = desc_peek(fd);
		uint32_t refs;

		if (!d)
			return NULL;
		if (d == &ours)
			return d;
		refs = atomic_load_acquire(&d->refs);
		/* 0: it was dropped between the two loads, the word has changed by now. */
		if (refs == 0 || !atomic_cas_seq(&d->refs, &refs, refs + 1)) {
			cpu_relax();
			continue;
		}
		if (desc_peek(fd) == d)
			return d;
		desc_put(d);
	}
}

void desc_put(struct desc *d)
{
	uint32_t refs = atomic_load_acquire(&d->refs);

	if (d == &ours)
		return;
	do {
		/* The last one: no word leads here any more and no call is under way, so nobody can
		 * need the token. It goes before the description may be given out anew. */
		if (refs == 1) {
			int32_t token = atomic_xchg_seq(&d->token, -1);

			if (token >= 0)
				desc_unhide_close(token);
		}
	} while (!atomic_cas_seq(&d->refs, &refs, refs - 1));
}

struct desc *desc_new(void)
{
	/* Relaxed: a hint. */
	uint32_t start = atomic_add_relaxed(&next_free, 1);

	for (uint32_t i = 0; i < DESC_COUNT; i++) {
		struct desc *d = &pool[(start + i) % DESC_COUNT];
		uint32_t none = 0;

		/* Relaxed: a hint, the exchange decides. The others, too: no word leads here yet, and desc_set
		 * shows them all. */
		if (atomic_load_relaxed(&d->refs) != 0 || !atomic_cas_seq(&d->refs, &none, 1))
			continue;
		atomic_store_relaxed(&d->kind, 0);
		atomic_store_relaxed(&d->token, -1);
		atomic_store_relaxed(&d->users, 0);
		atomic_store_relaxed(&d->stay, 0);
		return d;
	}
	return NULL;
}

int desc_set(int fd, struct desc *d, bool inherit)
{
	uintptr_t word = (uintptr_t)d | (inherit ? DESC_INHERIT : 0);
	uint32_t seen;

	if ((unsigned)fd >= DESC_FDS)
		return -EMFILE;
	/* Raised before the word shows (seq_cst, both): who sees the word and asks for `high` finds it below. */
	seen = atomic_load_relaxed(&high);
	while (seen <= (uint32_t)fd && !atomic_cas_seq(&high, &seen, (uint32_t)fd + 1))
		;
	/* Pairs with desc_get: the description is whole before its word shows. */
	word = atomic_xchg_seq(&desc_table[fd], word);
	if (pointer_of(word))
		desc_put(pointer_of(word));
	return 0;
}

void desc_clear(int fd)
{
	uintptr_t word;

	if (!desc_peek(fd))
		return;
	word = atomic_xchg_seq(&desc_table[fd], 0);
	if (pointer_of(word))
		desc_put(pointer_of(word));
}

void desc_clear_if(int fd, const struct desc *d)
{
	uintptr_t word = atomic_load_acquire(&desc_table[fd]);

	/* Once: whatever changes the word meanwhile has looked after the old description. */
	if (pointer_of(word) == d && atomic_cas_seq(&desc_table[fd], &word, 0))
		desc_put(pointer_of(word));
}

bool desc_inherits(int fd)
{
	return atomic_load_relaxed(&desc_table[fd]) & DESC_INHERIT;
}

void desc_set_inherit(int fd, bool inherit)
{
	uintptr_t word = atomic_load_relaxed(&desc_table[fd]);

	/* Fails only if the number was closed or given to another file meanwhile. */
	if (pointer_of(word))
		(void)atomic_cas_seq(&desc_table[fd], &word,
				     inherit ? word | DESC_INHERIT : word & ~DESC_INHERIT);
}

unsigned desc_high(void)
{
	return desc_table ? atomic_load_seq(&high) : 0;
}

int desc_find_fd(uint32_t session, uint32_t entry, uint64_t id)
{
	unsigned end = desc_high();

	for (unsigned fd = 0; fd < end; fd++) {
		const struct desc *d = desc_peek((int)fd);

		if (d && atomic_load_acquire(&d->kind) == DESC_ENTRY && d->session == session &&
		    d->entry == entry && d->id == id)
			return (int)fd;
	}
	return -1;
}

int desc_hide(int fd)
{
	long moved = sys_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIDDEN_FROM);

	/* A low limit on descriptors: it stays where it is. */
	if (moved >= 0)
		(void)sys_call1(SYS_close, fd);
	else
		moved = fd;
	if (desc_set((int)moved, &ours, false) < 0) {
		(void)sys_call1(SYS_close, moved);
		return -EMFILE;
	}
	return (int)moved;
}

void desc_keep(int fd)
{
	/* A number beyond the table is beyond the program's use as well. */
	(void)desc_set(fd, &ours, false);
}

void desc_unhide_close(int fd)
{
	desc_clear(fd);
	(void)sys_call1(SYS_close, fd);
}
