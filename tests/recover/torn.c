/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/recover/torn.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/ops.h"
#include "tests/crash/random.h"

#define LINE  64u
#define WORD  8u
#define LINES 4096 /* not drained at once */
#define PAGE  4096u

enum mix {
	MIX_NONE,
	MIX_ALL,
	MIX_LINES,
	MIX_WORDS,
	MIXES,
};

/* A line that was stored to and not drained: what it was before. */
struct open_line {
	uint8_t *at;
	uint8_t before[LINE];
};

/* A mapping of a file: stores to it reach the file system's device only when they are told to. */
struct mapping {
	uintptr_t from, to;
	off_t offset;
	int fd;
};

static struct open_line lines[LINES];
static unsigned n_lines;
static struct mapping known;
static struct rng chance;
static enum mix mix;
static void (*before_step)(void);
static bool active;

void __real_pool_ops_select(void);
void __wrap_pool_ops_select(void);

void __wrap_pool_ops_select(void)
{
	if (!active)
		__real_pool_ops_select();
}

static void find_mapping(uintptr_t address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], path[256];
	uint64_t from, to, offset;

	if (known.fd > 0)
		(void)close(known.fd);
	known = (struct mapping){ .fd = -1 };
	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %255s", &from,
			   &to, &offset, path) != 4 ||
		    address < from || address >= to)
			continue;
		known = (struct mapping){ from, to, (off_t)offset,
					  open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) };
		break;
	}
	if (maps)
		(void)fclose(maps);
}

/* To the device, past the journal: the blocks were allocated and written when the file was made. */
static void write_through(const uint8_t *at)
{
	uintptr_t page = (uintptr_t)at & ~(uintptr_t)(PAGE - 1);

	if (page < known.from || page >= known.to)
		find_mapping(page);
	if (known.fd >= 0)
		(void)sync_file_range(known.fd, known.offset + (off_t)(page - known.from), PAGE,
				      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					      SYNC_FILE_RANGE_WAIT_AFTER);
}

static void write_lines_through(void)
{
	for (unsigned i = 0; i < n_lines; i++)
		if (i == 0 || (((uintptr_t)lines[i].at ^ (uintptr_t)lines[i - 1].at) & ~(PAGE - 1)))
			write_through(lines[i].at);
}

static void open_line(uint8_t *at)
{
	for (unsigned i = 0; i < n_lines; i++)
		if (lines[i].at == at)
			return;
	if (n_lines == LINES)
		abort();
	lines[n_lines].at = at;
	memcpy(lines[n_lines++].before, at, LINE);
}

static void torn_copy(void *dst, const void *src, size_t n)
{
	size_t half = n / 2 & ~(size_t)(LINE - 1);

	before_step();
	for (size_t i = 0; i < n; i += LINE) {
		if (i > 0 && i == half)
			before_step();
		open_line((uint8_t *)dst + i);
		memcpy((uint8_t *)dst + i, (const uint8_t *)src + i, n - i < LINE ? n - i : LINE);
	}
}

static void torn_flush(const void *p, size_t n)
{
	/* What others left was mixed at their death, and is as it will stay. */
	(void)p;
	(void)n;
}

static void torn_drain(void)
{
	before_step();
	write_lines_through();
	n_lines = 0;
}

static const struct pool_ops torn_ops = { torn_copy, torn_flush, torn_drain };

void torn_begin(uint64_t seed, void (*step)(void))
{
	rng_seed(&chance, seed, 1);
	mix = (enum mix)(seed % MIXES);
	before_step = step;
	active = true;
	pool_ops = &torn_ops;
}

void torn_cut(void)
{
	for (unsigned i = 0; i < n_lines; i++) {
		bool keep = mix == MIX_ALL || (mix == MIX_LINES && rng_one_in(&chance, 2));

		for (size_t w = 0; w < LINE; w += WORD)
			if (!keep && (mix != MIX_WORDS || rng_one_in(&chance, 2)))
				memcpy(lines[i].at + w, lines[i].before + w, WORD);
	}
	write_lines_through();
}
