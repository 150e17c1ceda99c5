/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the constructor of the library between two copies of this one costs: what is preloaded last starts first.
 * The first copy looks at the clock; the second appends to the file that STAMP names: nanoseconds since, page
 * faults since, and the nanoseconds of one page fault.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define PAGE  4096
#define PAGES 32

struct stamp {
	uint64_t ns;
	long faults;
};

static struct stamp look(void)
{
	struct rusage usage;
	struct timespec t;

	getrusage(RUSAGE_SELF, &usage);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (struct stamp){ (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec,
			       usage.ru_minflt };
}

#ifdef STAMP_FIRST
__attribute__((visibility("default"))) struct stamp stamp_first;

__attribute__((constructor)) static void start(void)
{
	stamp_first = look();
}
#else
extern struct stamp stamp_first __attribute__((weak));

static uint64_t fault_ns(void)
{
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	struct stamp before, after;

	if (p == MAP_FAILED)
		return 0;
	before = look();
	for (size_t i = 0; i < PAGES; i++)
		p[i * PAGE] = 1;
	after = look();
	munmap(p, PAGES * PAGE);
	return (after.ns - before.ns) / PAGES;
}

__attribute__((constructor)) static void start(void)
{
	struct stamp now = look();
	const char *path = getenv("STAMP");
	FILE *f = path && &stamp_first ? fopen(path, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%lu %ld %lu\n", (unsigned long)(now.ns - stamp_first.ns),
		now.faults - stamp_first.faults, (unsigned long)fault_ns());
	fclose(f);
}
#endif
