/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writers and readers of one native log that know what they wrote.
 *
 *	logload write SOCKET DOMAIN LOG WRITER WORDS MODE	4 threads, until killed or SIGTERM
 *	logload follow SOCKET DOMAIN LOG SECONDS [SEEN]		from the first record on
 *	logload check SOCKET DOMAIN LOG WORDS			everything, against what was acknowledged
 *	logload trim SOCKET DOMAIN LOG				up to the middle of what is on disk
 *	logload api SOCKET DOMAIN				wrong use, limits, fork, threads
 *	logload safety SOCKET DOMAIN				cancellation, signal handlers
 *
 * A record is {magic, writer, thread, number, length, check} and bytes that follow from these. WORDS is a
 * file of u64, one for each writer and thread: the number that was acknowledged last; SEEN another one, of what the
 * follower was shown. MODE: append; nowait (8 and a wait); mixed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pmemlogd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "logload.h"

#define THREADS 4u
#define WRITERS 256u
#define MAGIC	0x4c4f474cu
#define EXTRA	700u /* bytes at most behind the head */

struct head {
	uint32_t magic, writer, thread, length;
	uint64_t number, check;
};

static _Atomic uint64_t *words;
static atomic_int stopping; /* by a handler, read by the threads */
static struct pmemlogd *connection;
static struct pmemlogd_log *the_log;
static uint32_t writer;
static const char *mode;

void die(const char *what, int r)
{
	char text[512] = "";

	if (connection)
		(void)pmemlogd_message(connection, text, sizeof(text));
	fprintf(stderr, "%s: %s %s\n", what, strerror(-r), text);
	exit(2);
}

static uint64_t mix(uint64_t v)
{
	v ^= v >> 31;
	v *= UINT64_C(0x9e3779b97f4a7c15);
	return v ^ v >> 29;
}

static uint64_t check_of(const struct head *h)
{
	return mix(h->number ^ mix((uint64_t)h->writer << 32 | h->thread) ^ h->length);
}

static uint8_t byte_of(const struct head *h, uint32_t i)
{
	return (uint8_t)(h->check >> i % 8 * 8 ^ i);
}

static void map_words(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	void *p;

	if (fd < 0 || ftruncate(fd, WRITERS * THREADS * 8) < 0)
		die(path, -errno);
	p = mmap(NULL, WRITERS * THREADS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(path, -errno);
	words = p;
}

struct pmemlogd_log *open_log(char **argv, unsigned flags)
{
	struct pmemlogd_options o = { .size = sizeof(o), .socket = argv[2], .domain = argv[3] };
	struct pmemlogd_log *log;
	int r = pmemlogd_connect(&connection, &o);

	if (r < 0)
		die("connect", r);
	r = pmemlogd_open(connection, argv[4], flags, 0600, 0, &log);
	if (r < 0)
		die("open", r);
	return log;
}

struct pmemlogd *the_connection(void)
{
	return connection;
}

/* ---- writers ------------------------------------------------------------------------------------ */

static int append(uint32_t thread, uint64_t number, bool wait, uint64_t *lsn)
{
	uint8_t bytes[sizeof(struct head) + EXTRA];
	struct head h = { MAGIC, writer, thread, 0, number, 0 };
	struct iovec iov[2];
	int r;

	h.length = (uint32_t)(sizeof(h) + mix(number * 7 + thread + writer) % EXTRA);
	h.check = check_of(&h);
	for (uint32_t i = 0; i < h.length - sizeof(h); i++)
		bytes[i] = byte_of(&h, i);
	iov[0] = (struct iovec){ &h, sizeof(h) };
	iov[1] = (struct iovec){ bytes, h.length - sizeof(h) };
	do {
		r = wait ? pmemlogd_appendv(the_log, iov, 2, lsn)
			 : pmemlogd_appendv_nowait(the_log, iov, 2, lsn);
		/* The daemon may be away for longer than a full lane lasts: nothing was appended. */
	} while (r == -ENOSPC && !atomic_load_explicit(&stopping, memory_order_relaxed));
	return r;
}

static void *write_thread(void *arg)
{
	uint32_t thread = (uint32_t)(uintptr_t)arg;
	_Atomic uint64_t *word = &words[writer * THREADS + thread];
	uint64_t number = 0, lsn;
	int r = 0;

	while (!atomic_load_explicit(&stopping, memory_order_relaxed) && r == 0) {
		bool batch = mode[0] == 'n' || (mode[0] == 'm' && (thread & 1));

		if (!batch) {
			r = append(thread, ++number, true, &lsn);
		} else {
			for (unsigned i = 0; i < 8 && r == 0; i++)
				r = append(thread, ++number, false, &lsn);
			while (r == 0 && (r = pmemlogd_wait(the_log, lsn)) == -ENOSPC &&
			       !atomic_load_explicit(&stopping, memory_order_relaxed))
				r = 0;
		}
		if (r == 0)
			atomic_store(word, number);
		/* Other people's machines. */
		if (number % 64 == 0)
			(void)usleep(200);
	}
	if (r < 0 && !(r == -ENOSPC && atomic_load_explicit(&stopping, memory_order_relaxed)))
		die("append", r);
	return NULL;
}

static void stop(int sig)
{
	(void)sig;
	atomic_store_explicit(&stopping, 1, memory_order_relaxed);
}

static int do_write(char **argv)
{
	pthread_t threads[THREADS];

	writer = (uint32_t)strtoul(argv[5], NULL, 10);
	map_words(argv[6]);
	mode = argv[7];
	the_log = open_log(argv, PMEMLOGD_CREATE);
	(void)signal(SIGTERM, stop);
	for (uint32_t i = 0; i < THREADS; i++)
		(void)pthread_create(&threads[i], NULL, write_thread, (void *)(uintptr_t)i);
	puts("writing");
	(void)fflush(stdout);
	for (uint32_t i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	(void)pmemlogd_close(the_log);
	(void)pmemlogd_disconnect(connection);
	return 0;
}

/* ---- readers ------------------------------------------------------------------------------------ */

struct seen {
	uint64_t last[WRITERS * THREADS]; /* number, 0: none yet */
	uint64_t next;			  /* LSN */
	uint64_t records, bad;
	bool begun, from_zero;
};

/* Each record whole, each thread's numbers without gap, double or change of order, each LSN behind the last. */
static void look(struct seen *s, const struct pmemlogd_record *rec)
{
	const struct head *h = rec->data;
	uint64_t *last;
	bool good = rec->length >= sizeof(*h) && h->magic == MAGIC && h->length == rec->length &&
		    h->writer < WRITERS && h->thread < THREADS && h->check == check_of(h);

	for (uint32_t i = 0; good && i < h->length - sizeof(*h); i++)
		good = ((const uint8_t *)(h + 1))[i] == byte_of(h, i);
	if (s->begun && rec->lsn != s->next)
		good = false;
	s->begun = true;
	s->next = rec->lsn + rec->length;
	s->records++;
	if (good) {
		last = &s->last[h->writer * THREADS + h->thread];
		/* What was trimmed may have had the first ones. */
		good = h->number == *last + 1 || (*last == 0 && !s->from_zero);
		*last = h->number;
	}
	if (!good && s->bad++ < 5)
		fprintf(stderr, "bad record at %llu, %zu bytes, number %llu of %u/%u\n",
			(unsigned long long)rec->lsn, rec->length, (unsigned long long)h->number,
			h->writer, h->thread);
}

/* Whoever has been shown a record may have acted on it: it is as good as acknowledged. */
static void note_seen(const struct pmemlogd_record *rec)
{
	const struct head *h = rec->data;

	if (rec->length >= sizeof(*h) && h->writer < WRITERS && h->thread < THREADS)
		atomic_store(&words[h->writer * THREADS + h->thread], h->number);
}

/* So that a sanitizer finds nothing left. */
static void end(struct pmemlogd_cursor *c, struct pmemlogd_log *log)
{
	(void)pmemlogd_cursor_free(c);
	(void)pmemlogd_close(log);
	connection = pmemlogd_disconnect(connection);
}

/* At the first record. The daemon may be away for longer than the library waits for it. */
static struct pmemlogd_cursor *cursor_first(struct pmemlogd_log *log)
{
	struct pmemlogd_cursor *c;
	int r;

	while ((r = pmemlogd_cursor_new(log, PMEMLOGD_FIRST, &c)) == -ETIMEDOUT)
		(void)usleep(50000);
	if (r < 0)
		die("cursor", r);
	return c;
}

static int do_follow(int argc, char **argv)
{
	static struct seen s;
	struct pmemlogd_log *log = open_log(argv, PMEMLOGD_READ_ONLY);
	time_t until = time(NULL) + strtol(argv[5], NULL, 10);
	struct pmemlogd_cursor *c = cursor_first(log);

	(void)signal(SIGTERM, stop);
	s.from_zero = pmemlogd_cursor_lsn(c) == 0;
	if (argc == 7)
		map_words(argv[6]);
	printf("following\n");
	(void)fflush(stdout);
	while (!atomic_load_explicit(&stopping, memory_order_relaxed) && time(NULL) < until) {
		struct pmemlogd_record rec;
		int r = pmemlogd_next(c, &rec, 200);

		if (r == 1) {
			look(&s, &rec);
			if (argc == 7)
				note_seen(&rec);
		} else if (r == -ERANGE) {
			/* Trimmed where we stood: a follower that is slow is told, and begins anew. */
			c = pmemlogd_cursor_free(c);
			c = cursor_first(log);
			memset(s.last, 0, sizeof(s.last));
			s.begun = s.from_zero = false;
		} else if (r == -ETIMEDOUT)
			(void)usleep(50000); /* the daemon is away, and what we want is on disk */
		else if (r < 0)
			die("next", r);
	}
	printf("followed %llu bad %llu\n", (unsigned long long)s.records,
	       (unsigned long long)s.bad);
	end(c, log);
	return s.bad || s.records == 0;
}

static int do_check(char **argv)
{
	static struct seen s;
	struct pmemlogd_log *log = open_log(argv, PMEMLOGD_READ_ONLY);
	uint64_t lost = 0, acked = 0;
	struct pmemlogd_record rec;
	struct pmemlogd_cursor *c;
	int r = pmemlogd_cursor_new(log, PMEMLOGD_FIRST, &c);

	if (r < 0)
		die("cursor", r);
	map_words(argv[5]);
	s.from_zero = pmemlogd_cursor_lsn(c) == 0;
	while ((r = pmemlogd_next(c, &rec, 0)) == 1)
		look(&s, &rec);
	if (r < 0)
		die("next", r);
	for (unsigned i = 0; i < WRITERS * THREADS; i++) {
		uint64_t word = atomic_load(&words[i]);

		acked += word;
		/* All of a writer may have been trimmed. */
		if (word > s.last[i] && (s.from_zero || s.last[i]))
			lost += word - s.last[i];
	}
	printf("acked %llu records %llu lost %llu bad %llu end %llu\n", (unsigned long long)acked,
	       (unsigned long long)s.records, (unsigned long long)lost, (unsigned long long)s.bad,
	       (unsigned long long)s.next);
	end(c, log);
	return lost || s.bad;
}

static int do_trim(char **argv)
{
	struct pmemlogd_log *log = open_log(argv, 0);
	struct pmemlogd_stat st = { .size = sizeof(st) };
	uint64_t first = 0;
	int r = pmemlogd_stat(log, &st);

	if (r == 0)
		r = pmemlogd_trim(log, st.first + (st.disk - st.first) / 2, &first);
	if (r < 0)
		die("trim", r);
	printf("first %llu was %llu\n", (unsigned long long)first, (unsigned long long)st.first);
	end(NULL, log);
	return first < st.first;
}

int main(int argc, char **argv)
{
	if (argc == 8 && strcmp(argv[1], "write") == 0)
		return do_write(argv);
	if ((argc == 6 || argc == 7) && strcmp(argv[1], "follow") == 0)
		return do_follow(argc, argv);
	if (argc == 6 && strcmp(argv[1], "check") == 0)
		return do_check(argv);
	if (argc == 5 && strcmp(argv[1], "trim") == 0)
		return do_trim(argv);
	if (argc == 4 && strcmp(argv[1], "api") == 0)
		return do_api(argv);
	if (argc == 4 && strcmp(argv[1], "safety") == 0)
		return do_safety(argv);
	fprintf(stderr, "see the head of tests/lib/logload.c\n");
	return 64;
}
