/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What pmemlogd.h says of cancellation and of signal handlers, function by function. "cancel NAME at its
 * beginning|held off" is what was seen of each; run-api.py holds it against libpmemlogd(3).
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "logload.h"

#define RECORD 24u /* bytes of each record of the signal tests */

static unsigned wrong;
static char **argv_;
static struct pmemlogd *c;
static struct pmemlogd_log *the_log, *beside;
static struct pmemlogd_cursor *cursor;

static void check(int good, const char *what, long value)
{
	if (good)
		return;
	if (wrong++ < 10)
		fprintf(stderr, "safety: %s: %ld\n", what, value);
}

static uint64_t appended(void)
{
	struct pmemlogd_stat st = { .size = sizeof(st) };

	check(pmemlogd_stat(the_log, &st) == 0, "stat", 0);
	return st.appended;
}

/* ---- cancellation -------------------------------------------------------------------------------- */

static const struct iovec iov[1] = { { (void *)(uintptr_t) "abc", 3 } };
static uint64_t lsn;

static long do_connect(void)
{
	struct pmemlogd_options o = { .size = sizeof(o), .socket = argv_[2], .domain = argv_[3] };
	struct pmemlogd *second;
	int r = pmemlogd_connect(&second, &o);

	if (r == 0)
		(void)pmemlogd_disconnect(second);
	return r;
}

static long do_open(void)
{
	struct pmemlogd_log *log;
	int r = pmemlogd_open(c, "opened", PMEMLOGD_CREATE, 0600, 0, &log);

	if (r == 0)
		(void)pmemlogd_close(log);
	return r;
}

static long do_cursor(void)
{
	struct pmemlogd_cursor *another;
	int r = pmemlogd_cursor_new(the_log, 0, &another);

	if (r == 0)
		(void)pmemlogd_cursor_free(another);
	return r;
}

static long do_next(void)
{
	struct pmemlogd_record rec;

	return pmemlogd_next(cursor, &rec, 20);
}

static long do_stat(void)
{
	struct pmemlogd_stat st = { .size = sizeof(st) };

	return pmemlogd_stat(the_log, &st);
}

static long do_append(void)
{
	return pmemlogd_append(the_log, "abc", 3, &lsn);
}
static long do_appendv(void)
{
	return pmemlogd_appendv(the_log, iov, 1, &lsn);
}
static long do_append_nowait(void)
{
	return pmemlogd_append_nowait(the_log, "abc", 3, &lsn);
}
static long do_appendv_nowait(void)
{
	return pmemlogd_appendv_nowait(the_log, iov, 1, &lsn);
}
static long do_wait(void)
{
	return pmemlogd_wait(the_log, 0);
}
static long do_sync(void)
{
	return pmemlogd_sync(the_log, 0, -1);
}
static long do_trim(void)
{
	return pmemlogd_trim(the_log, 3, NULL);
}
static long do_reconnect(void)
{
	return pmemlogd_reconnect(c);
}
static long do_remove(void)
{
	return pmemlogd_remove(c, "opened");
}

static long do_read(void)
{
	char buf[3];

	return pmemlogd_read(the_log, 0, buf, sizeof(buf)) - 3;
}

static long do_message(void)
{
	char buf[64];

	return pmemlogd_message(c, buf, sizeof(buf)) != buf;
}

static long do_version(void)
{
	return pmemlogd_version() == NULL;
}
static long do_cursor_lsn(void)
{
	return pmemlogd_cursor_lsn(cursor) != 6;
}

/* names: what besides the first is called in there, with the same result. In this order. */
static const struct {
	long (*call)(void);
	const char *names[2];
	int point; /* a cancellation point, at its beginning */
} calls[] = {
	{ do_append, { "append" }, 1 },
	{ do_appendv, { "appendv" }, 1 },
	{ do_append_nowait, { "append_nowait" }, 1 },
	{ do_appendv_nowait, { "appendv_nowait" }, 1 },
	{ do_wait, { "wait" }, 1 },
	{ do_connect, { "connect", "disconnect" }, 0 },
	{ do_open, { "open", "close" }, 0 },
	{ do_cursor, { "cursor_new", "cursor_free" }, 0 },
	{ do_next, { "next" }, 0 },
	{ do_cursor_lsn, { "cursor_lsn" }, 0 },
	{ do_read, { "read" }, 0 },
	{ do_stat, { "stat" }, 0 },
	{ do_message, { "message" }, 0 },
	{ do_version, { "version" }, 0 },
	{ do_sync, { "sync" }, 0 },
	{ do_reconnect, { "reconnect" }, 0 },
	{ do_remove, { "remove" }, 0 },
	{ do_trim, { "trim" }, 0 },
};

struct outcome {
	unsigned i;
	int returned;
	long value;
};

static void *cancelled(void *arg)
{
	struct outcome *o = arg;

	(void)pthread_cancel(pthread_self());
	o->value = calls[o->i].call();
	o->returned = 1;
	pthread_testcancel();
	return NULL;
}

static void cancellation(void)
{
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct outcome o = { .i = i };
		uint64_t before = appended();
		pthread_t t;
		void *end;

		(void)pthread_create(&t, NULL, cancelled, &o);
		(void)pthread_join(t, &end);
		check(end == PTHREAD_CANCELED, "cancelled in the end", i);
		check(o.returned == !calls[i].point, calls[i].names[0], o.returned);
		check(o.value == 0, calls[i].names[0], o.value);
		check(appended() == before, "left something behind", i);
		for (unsigned n = 0; n < 2 && calls[i].names[n]; n++)
			printf("cancel pmemlogd_%s %s\n", calls[i].names[n],
			       o.returned ? "held off" : "at its beginning");
	}
}

/* ---- signal handlers ----------------------------------------------------------------------------- */

static volatile sig_atomic_t inside, went_well, otherwise;
static sigjmp_buf out;

static int one(uint64_t number)
{
	uint64_t record[RECORD / 8] = { number, ~number, number * 3 };

	return pmemlogd_append(the_log, record, RECORD, NULL);
}

static void appends_too(int sig)
{
	int r = one(UINT64_MAX), w = pmemlogd_wait(the_log, 0);

	(void)sig;
	if (r == -EDEADLK && w == -EDEADLK)
		inside++;
	else if (r == 0 && w == 0)
		went_well++;
	else
		otherwise++;
}

static void jumps(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static void every(long us)
{
	struct itimerval t = { { 0, us }, { 0, us } };

	(void)setitimer(ITIMER_REAL, &t, NULL);
}

static void interrupted(void)
{
	uint64_t before = appended(), n = 0;
	time_t until = time(NULL) + 20;

	(void)signal(SIGALRM, appends_too);
	every(60);
	while ((inside < 20 || went_well < 20) && time(NULL) < until) {
		int r = one(n++);

		check(r == 0, "append, interrupted", r);
	}
	every(0);
	check(inside >= 20 && went_well >= 20, "a handler inside of an append, and outside",
	      inside);
	check(otherwise == 0, "a handler saw something else", otherwise);
	check(appended() - before == (n + (uint64_t)went_well) * RECORD, "records of it all",
	      (long)(appended() - before));
}

/* Whole or not at all, each once, in order, and none that returned 0 is missing. Marks: 1 returned. */
static void look_at_jumped(const char *marks, uint64_t begin, uint64_t n)
{
	struct pmemlogd_cursor *at;
	struct pmemlogd_record rec;
	uint64_t next = 0;
	int r = pmemlogd_cursor_new(the_log, begin, &at);

	check(r == 0, "cursor", r);
	while (r == 0 && pmemlogd_next(at, &rec, 0) == 1) {
		uint64_t v[RECORD / 8] = { 0 };

		check(rec.length == RECORD, "length", (long)rec.length);
		memcpy(v, rec.data, rec.length < RECORD ? rec.length : RECORD);
		check(v[1] == ~v[0] && v[2] == v[0] * 3, "torn", (long)rec.lsn);
		check(v[0] >= next && v[0] < n, "double, or out of order", (long)v[0]);
		for (; next < v[0] && next < n; next++)
			check(!marks[next], "acknowledged and lost", (long)next);
		next = v[0] + 1;
	}
	for (; next < n; next++)
		check(!marks[next], "acknowledged and lost", (long)next);
	(void)pmemlogd_cursor_free(at);
}

static void left_by_a_jump(void)
{
	enum {
		ALL = 400000,
		JUMPS = 300
	};
	static char marks[ALL + 1];
	static volatile uint64_t n;
	static volatile unsigned jumped;
	uint64_t begin = appended();
	time_t until = time(NULL) + 20;

	(void)signal(SIGALRM, jumps);
	if (sigsetjmp(out, 1) != 0) {
		/* On one log what was left on another is not noticed; it is, when that has its turn. */
		int r = ++jumped % 2 ? pmemlogd_append(beside, "x", 1, NULL) : 0;

		check(r == 0, "append to another log behind a jump", r);
	}
	every(90);
	while (jumped < JUMPS && n < ALL && time(NULL) < until) {
		uint64_t number = n++;
		int r = one(number);

		check(r == 0, "append behind a jump", r);
		marks[number] = r == 0;
	}
	every(0);
	check(jumped > 20, "jumps", jumped);
	/* The last one's lock goes with this. */
	check(pmemlogd_append(beside, "x", 1, NULL) == 0, "append to another log", 0);
	check(one(n) == 0, "append at the end", 0);
	marks[n++] = 1;
	look_at_jumped(marks, begin, n);
	printf("jumps %u records %llu\n", jumped, (unsigned long long)n);
}

int do_safety(char **argv)
{
	char *words[] = { argv[0], argv[1], argv[2], argv[3], strdup("safety"), NULL };
	int r;

	argv_ = argv;
	the_log = open_log(words, PMEMLOGD_CREATE);
	c = the_connection();
	check(pmemlogd_append(the_log, "abc", 3, NULL) == 0, "append", 0);
	check(pmemlogd_append(the_log, "def", 3, NULL) == 0, "append", 0);
	check(pmemlogd_cursor_new(the_log, 6, &cursor) == 0, "cursor", 0);
	check(pmemlogd_open(c, "beside", PMEMLOGD_CREATE, 0600, 0, &beside) == 0, "open", 0);
	cancellation();
	interrupted();
	left_by_a_jump();
	(void)pmemlogd_cursor_free(cursor);
	(void)pmemlogd_close(the_log);
	r = pmemlogd_remove(c, "safety");
	check(r == 0, "remove", r);
	(void)pmemlogd_disconnect(c);
	free(words[4]);
	printf("safety wrong %u\n", wrong);
	return wrong ? 1 : 0;
}
