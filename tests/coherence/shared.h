/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What writers and readers know of each other: a file on a tmpfs, mapped by all of them.
 *
 * Each 64-byte block of a file has a version. Odd: written; every word of it says which version, where.
 * Even: not there, that is zeros or the file's end. `issued` is raised before the call and `acked` after
 * it has returned; so a reader that loads `acked`, reads, and loads `issued` must find for each word a
 * version between the two. Words of a block may differ within these bounds: write(2) promises no
 * more to a reader that runs beside it.
 *
 * Appended files (log.a.N) have units of 64 bytes, which say whose they are and their place in that
 * writer's sequence; acked[] counts the units of each.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define BLOCK	   64u
#define WORDS	   8u /* of a block */
#define BLOCKS	   4096u
#define FILE_BYTES (BLOCK * BLOCKS)
#define FILES	   4u /* log.0 ...; the last one is cut, punched and emptied as well */
#define CUT_FILE   (FILES - 1)
#define REGIONS	   4u /* of a file: what one writer at a time changes; the last file is one region */
#define REGION	   (BLOCKS / REGIONS)

#define APPENDERS    16384u	/* a writer's thread takes a number for each file and life */
#define APPEND_FILES 4u		/* so many are kept */
#define APPEND_BYTES (8u << 20) /* then the next one */

enum mode {
	BY_PREAD,
	BY_MMAP,
	BY_DIRECT,
	BY_SENDFILE,
	BY_COPY,
	BY_CP,
	BY_TAIL,
	MODES
};

struct block {
	uint64_t acked, issued;
	uint64_t dead; /* a version whose writer was killed before it was acknowledged; 0: none */
};

struct shared {
	uint64_t seed;
	uint32_t stop, ready;
	uint32_t error; /* of a writer */
	uint32_t appenders;
	uint64_t append_index; /* log.a.N that is written now */
	uint64_t calls[16];    /* of writers, by kind */
	uint64_t owners_died;
	uint64_t reads[MODES], stale, backward, foreign, given_up;
	char words[256];
	pthread_mutex_t region[FILES][REGIONS]; /* robust */
	struct block block[FILES][BLOCKS];
	struct {
		uint64_t file, acked; /* N of log.a.N; units */
	} append[APPENDERS];
};

static inline uint64_t next_written(uint64_t v)
{
	return v + 1 + v % 2;
}

static inline uint64_t next_gone(uint64_t v)
{
	return v + v % 2;
}

/* version 40 bits, check 5, file 4, block 12, word 3 */
static inline uint64_t word_of(uint64_t version, uint32_t file, uint32_t block, uint32_t word)
{
	uint64_t check = (version * 7 + version / 31) % 31 + 1;

	return version << 24 | check << 19 | (uint64_t)file << 15 | (uint64_t)block << 3 | word;
}

/* A unit of an appended file: who, which of his units, and the same again. */
static inline uint64_t append_word(uint32_t id, uint64_t n, uint32_t word)
{
	return (n << 24 | (uint64_t)id << 8 | (n + id) % 31 << 3 | word) + 1;
}

static inline uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static inline uint32_t below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(random_next(state) >> 33) % n;
}

extern struct shared *sh;
extern const char *dir;

static inline void file_path(char path[1024], const char *name, uint64_t n)
{
	snprintf(path, 1024, "%s/%s%lu", dir, name, n);
}

int writers(uint64_t seed, uint32_t threads);
int readers(uint64_t seed, uint32_t threads);
int everything(void); /* once, by every way; nobody writes any more */
