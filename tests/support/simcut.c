/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The power cut of a pool in a test build (pool/sim.h): what each file holds afterwards.
 *
 *   simcut SHADOWS POOL KIND SEED        KIND: none, flushed, all, lines, words
 *
 * Every process that maps the pool must stand still (or be dead), and must never run again. Prints how
 * many lines were not durable, and how many of them were lost.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "pool/sim.h"
#include "tests/crash/image.h"

static const struct {
	const char *name;
	enum image_kind kind;
} kinds[] = {
	{ "none", IMAGE_NONE },	  { "flushed", IMAGE_FLUSHED }, { "all", IMAGE_ALL },
	{ "lines", IMAGE_LINES }, { "words", IMAGE_WORDS },
};

static unsigned long open_lines, lost_lines;

static void cut_line(uint8_t *work, uint8_t *safe, const uint8_t *flown, enum image_kind kind,
		     uint32_t chance, struct rng *r)
{
	switch (kind) {
	case IMAGE_FLUSHED:
		if (flown)
			memcpy(safe, flown, SIM_LINE);
		break;
	case IMAGE_ALL:
		memcpy(safe, work, SIM_LINE);
		break;
	case IMAGE_LINES:
	case IMAGE_WORDS:
		image_mix(safe, work, flown, kind == IMAGE_WORDS, chance, r);
		break;
	default:
		break;
	}
	open_lines++;
	lost_lines += memcmp(safe, work, SIM_LINE) != 0;
	memcpy(work, safe, SIM_LINE);
}

static void cut(uint8_t *work, uint8_t *shadow, uint64_t bytes, enum image_kind kind, struct rng *r)
{
	uint8_t *safe = shadow + SIM_HEAD_BYTES, *flown = safe + bytes;
	uint32_t *owner = (uint32_t *)(void *)(flown + bytes);
	uint32_t chance = image_chance(r);

	for (uint64_t at = 0; at < bytes; at += SIM_LINE) {
		bool pending = owner[at / SIM_LINE] != 0;

		if (!pending && memcmp(work + at, safe + at, SIM_LINE) == 0)
			continue;
		cut_line(work + at, safe + at, pending ? flown + at : NULL, kind, chance, r);
		owner[at / SIM_LINE] = 0;
	}
}

static uint8_t *map(int fd, size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* 0, also for a file that has no shadow: nobody has mapped it. */
static int cut_file(int shadows, int pool, const char *name, enum image_kind kind, uint64_t seed)
{
	cleanup_close int fd = openat(pool, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	cleanup_close int shadow = -1;
	struct sim_head head;
	uint8_t *work, *beside;
	char number[32];
	struct stat st;
	struct rng r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	(void)snprintf(number, sizeof(number), "%" PRIu64, (uint64_t)st.st_ino);
	shadow = openat(shadows, number, O_RDWR | O_CLOEXEC);
	if (shadow < 0)
		return errno == ENOENT ? 0 : -errno;
	/* A creation that the cut fell into: nothing was stored yet. */
	if (pread(shadow, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    memcmp(head.magic, SIM_MAGIC, sizeof(head.magic)) != 0)
		return unlinkat(shadows, number, 0) < 0 ? -errno : 0;
	if (head.bytes > (uint64_t)st.st_size)
		return -EBADMSG;
	work = map(fd, head.bytes);
	beside = map(shadow, sim_shadow_bytes(head.bytes));
	if (!work || !beside)
		return -ENOMEM;
	rng_seed(&r, seed, head.bytes);
	cut(work, beside, head.bytes, kind, &r);
	munmap(work, head.bytes);
	munmap(beside, sim_shadow_bytes(head.bytes));
	return 0;
}

int main(int argc, char **argv)
{
	enum image_kind kind = IMAGE_KINDS;
	int shadows, pool, r = 0;
	struct dirent *e;
	DIR *d;

	for (size_t i = 0; argc == 5 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(argv[3], kinds[i].name) == 0)
			kind = kinds[i].kind;
	if (kind == IMAGE_KINDS) {
		fprintf(stderr, "usage: simcut SHADOWS POOL none|flushed|all|lines|words SEED\n");
		return 64;
	}
	shadows = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pool = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = opendir(argv[2]);
	if (shadows < 0 || pool < 0 || !d) {
		perror("simcut");
		return 1;
	}
	while ((e = readdir(d))) {
		int one = e->d_type == DT_REG ? cut_file(shadows, pool, e->d_name, kind,
							 strtoull(argv[4], NULL, 10))
					      : 0;

		if (one < 0) {
			fprintf(stderr, "simcut: %s: %s\n", e->d_name, strerror(-one));
			r = 1;
		}
	}
	closedir(d);
	printf("%lu lines not durable, %lu lost\n", open_lines, lost_lines);
	return r;
}
