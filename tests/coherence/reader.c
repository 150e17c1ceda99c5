/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers: whatever was acknowledged before a read began is there, by every way, and no word that a reader
 * has seen is followed by an older one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ways.h"

#define READ_MAX  (64u << 10)
#define PAGE_SIZE 4096u
#define TAIL_MAX  (APPEND_BYTES + (4u << 20))

struct tail {
	struct way way;
	int open;
	uint64_t index;
	size_t have;	 /* bytes of the file that are known */
	uint64_t *text;	 /* those */
	uint64_t *next;	 /* by number of the appender: units seen */
	uint64_t *acked; /* before the read */
};

struct reader {
	uint64_t random;
	uint32_t number;
	struct way way[FILES];
	struct tail tail;
	uint64_t seen[FILES][BLOCKS * WORDS];
	uint64_t low[BLOCKS];
	uint64_t text[FILE_BYTES / 8];
};

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

/* The first one is told in words. */
static void wrong(uint64_t *counter, const char *what, enum mode mode, const char *file,
		  uint64_t place, uint64_t found, uint64_t low, uint64_t high)
{
	if (__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED) == 0)
		fprintf(stderr,
			"%s by %s: %s at byte %lu: version %lu, acknowledged or seen before %lu, "
			"issued %lu\n",
			what, mode_names[mode], file, place, found, low, high);
}

static void check_word(struct reader *r, enum mode mode, uint32_t file, uint32_t at, uint64_t word)
{
	uint32_t block = at / WORDS;
	const struct block *b = &sh->block[file][block];
	uint64_t *seen = &r->seen[file][at];
	uint64_t low = r->low[block], high = load(&b->issued);
	uint64_t v = word >> 24, floor = *seen;
	char name[16];

	snprintf(name, sizeof(name), "log.%u", file);
	if (word && (v % 2 == 0 || word != word_of(v, file, block, at % WORDS))) {
		wrong(&sh->foreign, "foreign bytes", mode, name, at * 8, word, low, high);
		return;
	}
	/* What its writer took to the grave was never acknowledged: it may yield to what was. */
	if (*seen > low && *seen == load(&b->dead))
		floor = low;
	if (word == 0) /* the oldest version that can be meant */
		v = next_gone(low > floor ? low : floor);
	if (v < low || v > high) {
		wrong(&sh->stale, "stale", mode, name, at * 8, word ? v : 0, low, high);
	} else if (v < floor) {
		wrong(&sh->backward, "backward", mode, name, at * 8, v, *seen, high);
	} else {
		if (v < *seen)
			__atomic_add_fetch(&sh->given_up, 1, __ATOMIC_RELAXED);
		*seen = v;
	}
}

static void look(struct reader *r, enum mode mode, uint32_t file, uint32_t page, uint32_t pages)
{
	uint32_t first = page * (PAGE_SIZE / BLOCK), n = pages * (PAGE_SIZE / BLOCK);
	char path[1024];
	ssize_t got;

	for (uint32_t i = first; i < first + n; i++)
		r->low[i] = load(&sh->block[file][i].acked);
	file_path(path, "log.", file);
	if (mode == BY_CP)
		got = way_cp(&r->way[file], path, r->text, FILE_BYTES);
	else
		got = way_read(&r->way[file], mode, r->text, pages * PAGE_SIZE,
			       (off_t)page * PAGE_SIZE);
	if (got < 0) {
		/* cp may find a file that shrinks under it, and says so */
		if (mode != BY_CP)
			wrong(&sh->foreign, strerrorname_np(errno), mode, path, 0, 0, 0, 0);
		return;
	}
	for (uint32_t i = 0; i < n * WORDS; i++)
		check_word(r, mode, file, first * WORDS + i, r->text[i]);
	__atomic_add_fetch(&sh->reads[mode], 1, __ATOMIC_RELAXED);
}

static int tail_open(struct reader *r)
{
	struct tail *t = &r->tail;
	char path[1024];

	if (t->open)
		way_close(&t->way);
	t->open = 0;
	t->index = load(&sh->append_index);
	file_path(path, "log.a.", t->index);
	if (access(path, R_OK) < 0 || way_open(&t->way, path, TAIL_MAX, 100 + r->number) < 0)
		return -1;
	t->open = 1;
	t->have = 0;
	memset(t->next, 0, APPENDERS * sizeof(*t->next));
	return 0;
}

/* The units that came: each appender's own stand in order, none is missing, none twice. */
static void tail_units(struct tail *t, const char *name, size_t from)
{
	for (size_t at = from; at + BLOCK <= t->have; at += BLOCK) {
		const uint64_t *unit = &t->text[at / 8];
		uint32_t id = (uint32_t)((unit[0] - 1) >> 8) & 0xffff;
		uint64_t n = (unit[0] - 1) >> 24;
		int good = unit[0] && id < APPENDERS;

		for (uint32_t k = 0; k < WORDS && good; k++)
			good = unit[k] == append_word(id, n, k);
		if (!good)
			wrong(&sh->foreign, "foreign bytes", BY_TAIL, name, at, unit[0], 0, 0);
		else if (n != t->next[id])
			wrong(&sh->stale, "out of order", BY_TAIL, name, at, n, t->next[id], 0);
		else
			t->next[id]++;
	}
}

static void tail_look(struct reader *r)
{
	struct tail *t = &r->tail;
	uint64_t moved_on = load(&sh->append_index) != t->index;
	uint32_t ids = __atomic_load_n(&sh->appenders, __ATOMIC_SEQ_CST), from;
	enum mode mode = (enum mode)below(&r->random, BY_CP);
	size_t start, again;
	char name[32];
	ssize_t got;

	if (!t->open && tail_open(r) < 0)
		return;
	snprintf(name, sizeof(name), "log.a.%lu", t->index);
	if (ids > APPENDERS)
		ids = APPENDERS;
	for (uint32_t i = 0; i < ids; i++)
		t->acked[i] = sh->append[i].file == t->index ? load(&sh->append[i].acked) : 0;

	/* on to the end, as tail -f does */
	from = (uint32_t)(t->have / BLOCK * BLOCK);
	do {
		start = t->have;
		got = pread(t->way.fd, (uint8_t *)t->text + start,
			    start + READ_MAX <= TAIL_MAX ? READ_MAX : 0, (off_t)start);
		t->have += got > 0 ? (size_t)got : 0;
	} while (got > 0);
	tail_units(t, name, from);
	for (uint32_t i = 0; i < ids; i++)
		if (t->next[i] < t->acked[i])
			wrong(&sh->stale, "stale", BY_TAIL, name, 0, t->next[i], t->acked[i], i);

	/* what was read once stays as it is, whichever way it is read */
	if (t->have >= READ_MAX) {
		again = below(&r->random, (uint32_t)((t->have - READ_MAX) / PAGE_SIZE + 1)) *
			PAGE_SIZE;
		got = way_read(&t->way, mode, r->text, READ_MAX, (off_t)again);
		if (got != READ_MAX || memcmp(r->text, (uint8_t *)t->text + again, READ_MAX) != 0)
			wrong(&sh->backward, "changed", mode, name, again, (uint64_t)got, READ_MAX,
			      0);
	}
	__atomic_add_fetch(&sh->reads[BY_TAIL], 1, __ATOMIC_RELAXED);
	if (moved_on)
		tail_open(r);
}

static void one_read(struct reader *r)
{
	uint32_t file = below(&r->random, FILES);
	uint32_t all = FILE_BYTES / PAGE_SIZE;
	uint32_t page = below(&r->random, all), kind = below(&r->random, 256);
	uint32_t pages = 1 + below(&r->random, READ_MAX / PAGE_SIZE);
	/* where the writers are busiest */
	if (file != CUT_FILE && below(&r->random, 2)) {
		page = (1 + below(&r->random, REGIONS)) * (all / REGIONS) - 1;
		pages = 1;
	}
	if (page + pages > all)
		pages = all - page;
	if (kind == 0)
		look(r, BY_CP, file, 0, all);
	else if (kind < 32)
		tail_look(r);
	else if (kind < 64)
		look(r, BY_DIRECT, file, page, pages);
	else if (kind < 80)
		look(r, BY_COPY, file, page, pages);
	else
		look(r,
		     kind % 3 == 0   ? BY_PREAD
		     : kind % 3 == 1 ? BY_MMAP
				     : BY_SENDFILE,
		     file, page, pages);
}

static struct reader *reader_new(uint64_t seed, uint32_t number)
{
	struct reader *r = calloc(1, sizeof(*r));
	char path[1024];

	if (!r)
		return NULL;
	r->random = seed * 77777 + number;
	r->number = number;
	r->tail.text = calloc(1, TAIL_MAX);
	r->tail.next = calloc(APPENDERS, sizeof(uint64_t));
	r->tail.acked = calloc(APPENDERS, sizeof(uint64_t));
	for (uint32_t i = 0; i < FILES; i++) {
		file_path(path, "log.", i);
		if (way_open(&r->way[i], path, FILE_BYTES, number * FILES + i) < 0) {
			fprintf(stderr, "%s: %s\n", path, strerrorname_np(errno));
			return NULL;
		}
	}
	return r;
}

static void *reader(void *arg)
{
	while (!__atomic_load_n(&sh->stop, __ATOMIC_SEQ_CST))
		one_read(arg);
	return NULL;
}

int readers(uint64_t seed, uint32_t threads)
{
	pthread_t id[16];

	for (uint32_t t = 0; t < threads && t < 16; t++) {
		struct reader *r = reader_new(seed, t);

		if (!r || pthread_create(&id[t], NULL, reader, r) != 0)
			return 1;
	}
	__atomic_add_fetch(&sh->ready, 1, __ATOMIC_SEQ_CST);
	for (uint32_t t = 0; t < threads && t < 16; t++)
		pthread_join(id[t], NULL);
	return sh->stale || sh->backward || sh->foreign;
}

int everything(void)
{
	struct reader *r = reader_new(1, 0);

	if (!r)
		return 1;
	for (uint32_t i = 0; i < FILES; i++)
		for (enum mode m = BY_PREAD; m <= BY_CP; m++)
			for (uint32_t page = 0; page < FILE_BYTES / PAGE_SIZE; page += 16)
				if (m != BY_CP || page == 0)
					look(r, m, i, page,
					     m == BY_CP ? FILE_BYTES / PAGE_SIZE : 16);
	tail_look(r);
	return sh->stale || sh->backward || sh->foreign;
}
