/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writers: every way in which a program changes a log, by several threads and processes at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shared.h"

#define PUNCH	   (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define ZERO	   FALLOC_FL_ZERO_RANGE
#define WAYS	   3u
#define RECORD_MAX 64u /* units in one append; a page and more */

struct writer {
	uint64_t random;
	int fds[FILES][WAYS]; /* plain, O_DSYNC, O_DIRECT */
	int source;	      /* a file that is no log: what is copied into one */
	/* appending */
	uint32_t id;
	int append_fd;
	uint64_t index, units;
	uint64_t text[FILE_BYTES / 8];
};

enum call {
	PWRITE,
	SEEK_WRITE,
	WRITEV,
	BIG,
	COPY,
	SHORTEN,
	LENGTHEN,
	EMPTY,
	HOLE,
	ZEROES,
	APPEND,
};

static int stopped(void)
{
	return (int)__atomic_load_n(&sh->stop, __ATOMIC_SEQ_CST);
}

static int failed(const char *what, long r)
{
	if (!stopped() && !__atomic_exchange_n(&sh->error, 1, __ATOMIC_SEQ_CST))
		snprintf(sh->words, sizeof(sh->words), "%s: %ld %s", what, r,
			 r < 0 ? strerrorname_np(errno) : "(short)");
	return -1;
}

static void count(enum call kind)
{
	__atomic_add_fetch(&sh->calls[kind], 1, __ATOMIC_RELAXED);
}

static int open_log(struct writer *w, uint32_t file, uint32_t way)
{
	static const int flags[WAYS] = { 0, O_DSYNC, O_DIRECT };
	char path[1024];

	file_path(path, "log.", file);
	if (w->fds[file][way] >= 0)
		close(w->fds[file][way]);
	for (;;) {
		w->fds[file][way] = open(path, O_RDWR | O_CLOEXEC | flags[way]);
		/* no daemon and no other process of the domain: nobody may write such a file */
		if (w->fds[file][way] >= 0 || errno != EIO || stopped())
			break;
		usleep(20000);
	}
	return w->fds[file][way] < 0 ? failed("open", -1) : 0;
}

/* What a writer that was killed has left: its call was made, or not, or in part. */
static void after_death(struct block *b, uint32_t n)
{
	__atomic_add_fetch(&sh->owners_died, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < n; i++)
		if (b[i].issued != b[i].acked)
			__atomic_store_n(&b[i].dead, b[i].issued, __ATOMIC_SEQ_CST);
}

static void issue(struct block *b, uint32_t n, int gone)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t v = b[i].issued;

		__atomic_store_n(&b[i].issued, gone ? next_gone(v) : next_written(v),
				 __ATOMIC_SEQ_CST);
	}
}

static void ack(struct block *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		__atomic_store_n(&b[i].acked, b[i].issued, __ATOMIC_SEQ_CST);
}

static long copy_in(struct writer *w, int fd, size_t bytes, off_t at)
{
	off_t from = 0;
	long n, done = 0;

	if (pwrite(w->source, w->text, bytes, 0) != (ssize_t)bytes)
		return -1;
	while ((size_t)done < bytes) {
		n = copy_file_range(w->source, &from, fd, &at, bytes - (size_t)done, 0);
		if (n <= 0)
			return n < 0 ? n : done;
		done += n;
	}
	return done;
}

static long write_by(struct writer *w, int fd, enum call kind, size_t bytes, off_t at)
{
	struct iovec iov[3] = { { w->text, 8 }, { w->text + 1, bytes / 2 }, { NULL, 0 } };

	switch (kind) {
	case SEEK_WRITE:
		if (lseek(fd, at, SEEK_SET) != at)
			return -1;
		return write(fd, w->text, bytes);
	case WRITEV:
		iov[2].iov_base = (char *)w->text + 8 + bytes / 2;
		iov[2].iov_len = bytes - 8 - bytes / 2;
		return pwritev(fd, iov, 3, at);
	case COPY:
		return copy_in(w, fd, bytes, at);
	default:
		return pwrite(fd, w->text, bytes, at);
	}
}

/* Writes blocks of one region; its lock is held. */
static int change(struct writer *w, uint32_t file, uint32_t first, uint32_t n, enum call kind)
{
	struct block *b = &sh->block[file][first];
	int fd = w->fds[file][below(&w->random, WAYS)];
	long r;

	issue(b, n, 0);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < WORDS; k++)
			w->text[i * WORDS + k] = word_of(b[i].issued, file, first + i, k);
	r = write_by(w, fd, kind, (size_t)n * BLOCK, (off_t)first * BLOCK);
	if (r != (long)(n * BLOCK))
		return failed(kind == COPY ? "copy" : "write", r);
	ack(b, n);
	/* nothing to do, mostly; a real one in bypass */
	if (below(&w->random, 8) == 0 && fdatasync(fd) < 0)
		return failed("fdatasync", -1);
	count(kind);
	return 0;
}

/* The blocks become zeros, or the file ends before them. */
static int take_away(struct writer *w, uint32_t file, uint32_t first, uint32_t n, enum call kind)
{
	struct block *b = &sh->block[file][first];
	int fd = w->fds[file][below(&w->random, WAYS)];
	off_t at = (off_t)first * BLOCK;
	char path[1024];
	int r;

	issue(b, n, 1);
	if (kind == SHORTEN) {
		r = ftruncate(fd, at);
	} else if (kind == EMPTY) {
		file_path(path, "log.", file);
		fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
		/* EIO before anything was done where nobody serves the file: try again, by name */
		r = fd < 0 && errno == EIO ? truncate(path, 0) : fd < 0 ? -1 : close(fd);
	} else {
		r = fallocate(fd, kind == HOLE ? PUNCH : ZERO, at, (off_t)n * BLOCK);
	}
	if (r < 0)
		return failed("truncate or fallocate", kind);
	ack(b, n);
	count(kind);
	return 0;
}

static int one_cut(struct writer *w)
{
	uint32_t first = below(&w->random, BLOCKS), n = BLOCKS - first;
	int fd = w->fds[CUT_FILE][0];

	switch (below(&w->random, 8)) {
	case 0:
		if (below(&w->random, 3) == 0)
			return take_away(w, CUT_FILE, 0, BLOCKS, EMPTY);
		return take_away(w, CUT_FILE, first, n, SHORTEN);
	case 1:
		return take_away(w, CUT_FILE, first, 1 + below(&w->random, n), HOLE);
	case 2:
		return take_away(w, CUT_FILE, first, 1 + below(&w->random, n), ZEROES);
	case 3: /* longer: zeros where there was nothing */
		count(LENGTHEN);
		return fallocate(fd, 0, 0, FILE_BYTES) < 0 ? failed("fallocate", -1) : 0;
	default:
		n = n < 32 ? n : 32;
		return change(w, CUT_FILE, first, 1 + below(&w->random, n), PWRITE);
	}
}

static int one_change(struct writer *w, uint32_t file, uint32_t region)
{
	uint32_t first = region * REGION;
	uint32_t n, at;

	switch (below(&w->random, 64)) {
	case 0: /* above bypass_size */
		return change(w, file, first, REGION, BIG);
	case 1:
		return change(w, file, first + 7, 1 + below(&w->random, 128), COPY);
	case 2 ... 10:
		n = 1 + below(&w->random, 4);
		return change(w, file, first + below(&w->random, REGION - n), n, SEEK_WRITE);
	case 11 ... 20:
		n = 1 + below(&w->random, 64);
		return change(w, file, first + below(&w->random, REGION - n), n, WRITEV);
	case 21 ... 40: /* the last block of a log, again and again: its end, the whole of it */
		at = first + REGION - 64;
		n = below(&w->random, 4) ? 8 : 64;
		return change(w, file, at + (n == 8 ? 8 * below(&w->random, 8) : 0), n, PWRITE);
	default:
		n = 1 + below(&w->random, below(&w->random, 4) ? 8 : 256);
		return change(w, file, first + below(&w->random, REGION - n), n, PWRITE);
	}
}

static int one_in_place(struct writer *w)
{
	uint32_t file = below(&w->random, FILES);
	uint32_t region = file == CUT_FILE ? 0 : below(&w->random, REGIONS);
	uint32_t blocks = file == CUT_FILE ? BLOCKS : REGION;
	pthread_mutex_t *lock = &sh->region[file][region];
	int r = pthread_mutex_lock(lock);

	if (r == EOWNERDEAD) {
		after_death(&sh->block[file][region * blocks], blocks);
		pthread_mutex_consistent(lock);
	}
	r = file == CUT_FILE ? one_cut(w) : one_change(w, file, region);
	pthread_mutex_unlock(lock);
	return r;
}

static int next_append_file(struct writer *w)
{
	char path[1024];

	if (w->append_fd >= 0)
		close(w->append_fd);
	w->index = __atomic_load_n(&sh->append_index, __ATOMIC_SEQ_CST);
	w->units = 0;
	/* a number of its own for each file: what was acknowledged is told by (file, number) */
	w->id = __atomic_fetch_add(&sh->appenders, 1, __ATOMIC_SEQ_CST);
	if (w->id >= APPENDERS) {
		w->append_fd = -1;
		return 0;
	}
	sh->append[w->id].file = w->index;
	file_path(path, "log.a.", w->index);
	do {
		w->append_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	} while (w->append_fd < 0 && errno == EIO && !stopped() && usleep(20000) == 0);
	if (w->append_fd < 0)
		return failed("open to append", -1);
	if (w->index >= APPEND_FILES) {
		file_path(path, "log.a.", w->index - APPEND_FILES);
		if (unlink(path) < 0 && errno != ENOENT)
			return failed("unlink", -1);
	}
	return 0;
}

static int one_append(struct writer *w)
{
	uint32_t n = 1 + below(&w->random, below(&w->random, 4) ? 4 : RECORD_MAX);
	long r;

	if (w->append_fd < 0 || w->index != __atomic_load_n(&sh->append_index, __ATOMIC_SEQ_CST))
		if (next_append_file(w) < 0)
			return -1;
	if (w->append_fd < 0)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < WORDS; k++)
			w->text[i * WORDS + k] = append_word(w->id, w->units + i, k);
	r = write(w->append_fd, w->text, n * BLOCK);
	if (r != (long)(n * BLOCK))
		return failed("append", r);
	w->units += n;
	__atomic_store_n(&sh->append[w->id].acked, w->units, __ATOMIC_SEQ_CST);
	count(APPEND);
	if (lseek(w->append_fd, 0, SEEK_END) > (off_t)APPEND_BYTES) {
		uint64_t now = w->index;

		__atomic_compare_exchange_n(&sh->append_index, &now, now + 1, 0, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
	return 0;
}

static void *writer(void *arg)
{
	struct writer *w = arg;

	while (!stopped()) {
		uint32_t k = below(&w->random, 1024);

		if (k == 0 && open_log(w, below(&w->random, FILES), below(&w->random, WAYS)) < 0)
			break;
		if ((k < 128 ? one_append(w) : one_in_place(w)) < 0)
			break;
	}
	return NULL;
}

int writers(uint64_t seed, uint32_t threads)
{
	pthread_t id[64];

	for (uint32_t t = 0; t < threads && t < 64; t++) {
		struct writer *w = calloc(1, sizeof(*w));
		char path[1024];

		if (!w)
			return 1;
		w->random = seed * 1000 + t;
		w->append_fd = -1;
		file_path(path, "source.", (uint64_t)getpid() << 8 | t);
		w->source = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		unlink(path);
		for (uint32_t i = 0; i < FILES; i++)
			for (uint32_t k = 0; k < WAYS; k++) {
				w->fds[i][k] = -1;
				if (open_log(w, i, k) < 0)
					return 1;
			}
		if (pthread_create(&id[t], NULL, writer, w) != 0)
			return 1;
	}
	__atomic_add_fetch(&sh->ready, 1, __ATOMIC_SEQ_CST);
	for (uint32_t t = 0; t < threads && t < 64; t++)
		pthread_join(id[t], NULL);
	return sh->error ? 1 : 0;
}
