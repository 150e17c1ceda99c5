/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/interval.h"

#include <errno.h>
#include <linux/mman.h>
#include <string.h>
#include <sys/mman.h>

#include "base/overflow.h"
#include "base/sys.h"

#define SCRATCH_STEP ((size_t)65536) /* smallest mapping */

int scratch_grow(struct scratch *m, size_t bytes)
{
	size_t want = m->bytes ? m->bytes : SCRATCH_STEP;
	long p;

	while (want < bytes)
		if (mul_overflow(want, 2, &want))
			return -ENOMEM;
	if (want == m->bytes)
		return 0;

	if (m->base)
		p = sys_call4(SYS_mremap, m->base, m->bytes, want, MREMAP_MAYMOVE);
	else
		p = sys_call6(SYS_mmap, 0, (long)want, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p < 0 && p > -4096)
		return -ENOMEM;
	m->base = (void *)p;
	m->bytes = want;
	return 0;
}

void scratch_free(struct scratch *m)
{
	if (m->base)
		(void)sys_call2(SYS_munmap, m->base, m->bytes);
	m->base = NULL;
	m->bytes = 0;
}

/* Index of the first interval that ends at or after `at`. */
static size_t first_reaching(const struct interval_set *set, uint64_t at)
{
	const struct interval *v = set->memory.base;
	size_t low = 0;
	size_t high = set->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (v[middle].end < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int interval_add(struct interval_set *set, uint64_t start, uint64_t end)
{
	struct interval *v;
	size_t first, last;

	if (start >= end)
		return 0;
	if (scratch_grow(&set->memory, (set->count + 1) * sizeof(*v)) < 0)
		return -ENOMEM;
	v = set->memory.base;

	first = first_reaching(set, start);
	for (last = first; last < set->count && v[last].start <= end; last++) {
		start = min_of(start, v[last].start);
		end = max_of(end, v[last].end);
	}
	/* [first, last) become one; with first == last the rest moves up by one. */
	memmove(&v[first + 1], &v[last], (set->count - last) * sizeof(*v));
	set->count = set->count - (last - first) + 1;
	v[first] = (struct interval){ start, end };
	return 0;
}

bool interval_gap(const struct interval_set *set, uint64_t *start, uint64_t end, uint64_t *ret_end)
{
	const struct interval *v = set->memory.base;

	for (size_t i = first_reaching(set, *start); i < set->count && *start < end; i++) {
		if (v[i].start > *start) {
			*ret_end = min_of(end, v[i].start);
			return true;
		}
		*start = max_of(*start, v[i].end);
	}
	*ret_end = end;
	return *start < end;
}

void interval_free(struct interval_set *set)
{
	scratch_free(&set->memory);
	set->count = 0;
}
