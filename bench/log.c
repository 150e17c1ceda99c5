/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pmemlogd-bench log: native logs by the library and by the socket, beside what one would use instead. It needs a
 * daemon (PMEMLOGD_SOCKET, PMEMLOGD_DOMAIN): bench/log starts one.
 *
 *	append		pmemlogd_append
 *	raw		the same bytes copied to the same tmpfs or device and drained, nothing else
 *	group		pmemlogd_append_nowait and pmemlogd_wait for it
 *	group8		of each thread eight without waiting, then one wait; a row's time is that of one of them
 *	socket		LOG_APPEND and its answer
 *	follow		from before the append until another thread, which slept in pmemlogd_next, has the record
 */
#include <errno.h>
#include <pmemlogd.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "bench/bench.h"

#define SYNC_MS	 30000
#define PAUSE_NS 300000 /* long enough for a follower to fall asleep */
#define BATCH	 8u
#define THREADS	 64u

static struct pmemlogd *connection;
static struct pmemlogd_log *the_log;

/* Each round begins with an empty lane, whatever the one before it left there. */
static int log_open(unsigned size, unsigned threads)
{
	struct pmemlogd_stat st = { .size = sizeof(st) };
	int r = pmemlogd_stat(the_log, &st);

	(void)size;
	(void)threads;
	if (r == 0 && st.appended > st.first) {
		r = pmemlogd_sync(the_log, st.appended - 1, SYNC_MS);
		if (r == 0)
			r = pmemlogd_trim(the_log, st.appended, NULL);
	}
	return r < 0 ? failed("emptying the log", -r) : 0;
}

static void append_once(unsigned thread, const void *bytes, unsigned size)
{
	int r = pmemlogd_append(the_log, bytes, size, NULL);

	(void)thread;
	if (r < 0)
		die("pmemlogd_append", -r);
}

static uint64_t append_nowait(const void *bytes, unsigned size)
{
	uint64_t lsn = 0;
	int r = pmemlogd_append_nowait(the_log, bytes, size, &lsn);

	if (r < 0)
		die("pmemlogd_append_nowait", -r);
	return lsn;
}

static void group_once(unsigned thread, const void *bytes, unsigned size)
{
	int r = pmemlogd_wait(the_log, append_nowait(bytes, size));

	(void)thread;
	if (r < 0)
		die("pmemlogd_wait", -r);
}

static struct {
	unsigned n;
} counts[THREADS] __attribute__((aligned(64)));

static void group8_once(unsigned thread, const void *bytes, unsigned size)
{
	uint64_t lsn = append_nowait(bytes, size);
	int r = 0;

	if (++counts[thread % THREADS].n % BATCH == 0)
		r = pmemlogd_wait(the_log, lsn);
	if (r < 0)
		die("pmemlogd_wait", -r);
}

/* ---- a follower ---- */

static pthread_t follower;
static uint64_t seen; /* LSN behind the last record that it has */
static int follower_stop;

static void *follow(void *arg)
{
	struct pmemlogd_cursor *cursor = arg;
	struct pmemlogd_record record;
	int r;

	while (!atomic_load_relaxed(&follower_stop)) {
		r = pmemlogd_next(cursor, &record, 50);
		if (r < 0)
			die("pmemlogd_next", -r);
		/* Release: pairs with follow_once. */
		if (r == 1)
			atomic_store_release(&seen, record.lsn + record.length);
	}
	return pmemlogd_cursor_free(cursor);
}

static int follow_open(unsigned size, unsigned threads)
{
	struct pmemlogd_cursor *cursor;
	int r = threads == 1 ? log_open(size, threads) : -EINVAL;

	if (r == 0)
		r = pmemlogd_cursor_new(the_log, PMEMLOGD_END, &cursor);
	if (r < 0)
		return r;
	atomic_store_relaxed(&follower_stop, 0);
	return -pthread_create(&follower, NULL, follow, cursor);
}

static void let_it_sleep(unsigned thread)
{
	struct timespec pause = { 0, PAUSE_NS };

	(void)thread;
	(void)nanosleep(&pause, NULL);
}

static void follow_once(unsigned thread, const void *bytes, unsigned size)
{
	uint64_t lsn = 0;
	int r = pmemlogd_append(the_log, bytes, size, &lsn);

	(void)thread;
	if (r < 0)
		die("pmemlogd_append", -r);
	/* Acquire: pairs with the follower. It has a processor of its own, or none of this is to be measured. */
	while (atomic_load_acquire(&seen) <= lsn)
		_mm_pause();
}

static void follow_close(void)
{
	atomic_store_relaxed(&follower_stop, 1);
	(void)pthread_join(follower, NULL);
}

/* ---- the set ---- */

static const struct target targets[] = {
	{ "append", log_open, append_once, nothing_to_close, NULL, false },
	{ "raw", raw_open, raw_once, nothing_to_close, NULL, false },
	{ "group", log_open, group_once, nothing_to_close, NULL, false },
	{ "group8", log_open, group8_once, nothing_to_close, NULL, false },
	{ "socket", socket_open, socket_once, socket_close, NULL, true },
	{ "follow", follow_open, follow_once, follow_close, let_it_sleep, true },
#ifdef HAVE_LIBPMEMLOG
	{ "libpmemlog", pmlog_open, pmlog_once, pmlog_close, NULL, false },
#endif
	{ "fdatasync", fdatasync_open, fdatasync_once, disk_close, NULL, true },
#ifdef HAVE_SQLITE
	{ "sqlite", sqlite_open, sqlite_once, sqlite_close, NULL, true },
#endif
};

static int set_up(const char *pool_folder, const char *disk_folder)
{
	int r = targets_set_up(pool_folder, disk_folder);

	if (r < 0)
		return r;
#ifdef HAVE_SQLITE
	sqlite_folder(disk_folder);
#endif
	r = pmemlogd_connect(&connection, NULL);
	if (r == 0)
		r = pmemlogd_open(connection, "bench", PMEMLOGD_CREATE, 0600, 0, &the_log);
	return r < 0 ? failed("pmemlogd", -r) : 0;
}

static void tear_down(void)
{
	the_log = pmemlogd_close(the_log);
	connection = pmemlogd_disconnect(connection);
	targets_tear_down();
}

static const struct target_set log_set = {
	.name = "log",
	.sizes = "128",
	.threads = "1,8",
	.set_up = set_up,
	.tear_down = tear_down,
	.targets = targets,
	.count = ARRAY_SIZE(targets),
};

int bench_log(int argc, char **argv)
{
	return run_set(&log_set, argc, argv);
}
