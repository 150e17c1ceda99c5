/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* libpmemlogd's functions one by one: wrong use, limits, what a forked child may do. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "logload.h"

static unsigned done, wrong;
static char fork_name[] = "fork", closed_name[] = "closed", first_name[] = "first";

static void is(long got, long want, const char *what, int line)
{
	done++;
	if (got == want)
		return;
	wrong++;
	fprintf(stderr, "api.c:%d: %s is %ld, not %ld\n", line, what, got, want);
}
#define IS(what, want) is((long)(what), (long)(want), #what, __LINE__)

static void misuse(struct pmemlogd *c)
{
	struct pmemlogd_options odd = { .size = 3 };
	struct pmemlogd_options long_name = {
		.size = sizeof(long_name),
		.domain = "0123456789012345678901234567890123456789012345678901234567890123456789",
	};
	struct pmemlogd_log *log;
	struct pmemlogd *other;

	IS(pmemlogd_connect(NULL, NULL), -EINVAL);
	IS(pmemlogd_connect(&other, &odd), -EINVAL);
	IS(pmemlogd_connect(&other, &long_name), -EINVAL);
	IS(pmemlogd_open(c, "a", 8, 0, 0, &log), -EINVAL);
	IS(pmemlogd_open(c, "a/b", PMEMLOGD_CREATE, 0600, 0, &log), -EINVAL);
	IS(pmemlogd_open(c, "..", PMEMLOGD_CREATE, 0600, 0, &log), -EINVAL);
	IS(pmemlogd_open(c, "", PMEMLOGD_CREATE, 0600, 0, &log), -EINVAL);
	IS(pmemlogd_open(c, "a", PMEMLOGD_CREATE, 0644, 0, &log), -EINVAL);
	IS(pmemlogd_open(c, "a", PMEMLOGD_CREATE, 0600, 10, &log), -EINVAL);
	IS(pmemlogd_open(c, "a", PMEMLOGD_EXCLUSIVE, 0, 0, &log), -EINVAL);
	IS(pmemlogd_open(c, "none", 0, 0, 0, &log), -ENOENT);
	IS(pmemlogd_remove(c, "none"), -ENOENT);
	IS(pmemlogd_append(NULL, "a", 1, NULL), -EINVAL);
	IS(pmemlogd_close(NULL) == NULL, 1);
	IS(pmemlogd_disconnect(NULL) == NULL, 1);
	IS(pmemlogd_cursor_free(NULL) == NULL, 1);
}

static void limits(struct pmemlogd *c)
{
	struct pmemlogd_stat st = { .size = sizeof(st) };
	struct pmemlogd_log *log, *reader, *own;
	uint64_t lsn = 99, first;
	static char buf[8192];
	char *big;
	unsigned n = 0;

	IS(pmemlogd_open(c, "limits", PMEMLOGD_CREATE | PMEMLOGD_EXCLUSIVE, 0600, 65536, &log), 0);
	IS(pmemlogd_open(c, "limits", PMEMLOGD_CREATE | PMEMLOGD_EXCLUSIVE, 0600, 0, &reader),
	   -EEXIST);
	IS(pmemlogd_stat(log, &st), 0);
	IS(st.first, 0);
	IS(st.appended, 0);
	IS(st.capacity, 65536);
	IS(pmemlogd_append(log, "a", 0, &lsn), -EINVAL);
	IS(pmemlogd_append(log, NULL, 1, &lsn), -EINVAL);
	big = calloc(1, st.record_max + 1);
	IS(pmemlogd_append(log, big, st.record_max + 1, &lsn), -EMSGSIZE);
	IS(pmemlogd_append(log, big, SIZE_MAX / 2, &lsn), -EMSGSIZE);
	free(big);
	IS(lsn, 99);
	IS(pmemlogd_wait(log, 0), -ENXIO);
	IS(pmemlogd_sync(log, 0, 0), -ENXIO);
	IS(pmemlogd_read(log, 0, buf, 10), 0);
	IS(pmemlogd_read(log, 1, buf, 10), -ENXIO);
	memset(buf, 'x', sizeof(buf));
	while (n < 100 && pmemlogd_append(log, buf, sizeof(buf), NULL) == 0)
		n++;
	IS(n, 8);
	IS(pmemlogd_append(log, buf, 1, NULL), -ENOSPC);
	IS(pmemlogd_append_nowait(log, buf, 1, NULL), -ENOSPC);
	/* Inside a record: that one stays. */
	IS(pmemlogd_trim(log, 3 * 8192 + 5, &first), 0);
	IS(first, 3 * 8192);
	IS(pmemlogd_read(log, 3 * 8192 - 1, buf, 10), -ERANGE);
	IS(pmemlogd_read(log, 3 * 8192 + 1, buf, sizeof(buf)), sizeof(buf));
	IS(pmemlogd_append(log, buf, sizeof(buf), &lsn), 0);
	IS(lsn, 65536);
	IS(pmemlogd_trim(log, lsn + 8193, &first), -ENXIO);
	IS(pmemlogd_sync(log, lsn, 10000), 0);
	IS(pmemlogd_stat(log, &st), 0);
	IS(st.disk, lsn + 8192);

	IS(pmemlogd_open(c, "limits", PMEMLOGD_READ_ONLY, 0, 0, &reader), 0);
	IS(pmemlogd_append(reader, "a", 1, NULL), -EBADF);
	IS(pmemlogd_trim(reader, lsn, NULL), -EBADF);
	reader = pmemlogd_close(reader);
	IS(pmemlogd_open(c, "own", PMEMLOGD_CREATE, 0400, 0, &own), 0);
	IS(pmemlogd_open(c, "own", 0, 0, 0, &reader), -EACCES);
	IS(pmemlogd_append(own, "a", 1, NULL), 0);
	own = pmemlogd_close(own);
	IS(pmemlogd_remove(c, "own"), 0);
	IS(pmemlogd_remove(c, "limits"), 0);
	IS(pmemlogd_append(log, "a", 1, NULL), -ESTALE);
	IS(pmemlogd_stat(log, &st), -ESTALE);
	log = pmemlogd_close(log);
	/* Another one of that name begins anew. */
	IS(pmemlogd_open(c, "limits", PMEMLOGD_CREATE | PMEMLOGD_EXCLUSIVE, 0600, 0, &log), 0);
	IS(pmemlogd_append(log, "a", 1, &lsn), 0);
	IS(lsn, 0);
	log = pmemlogd_close(log);
	IS(pmemlogd_remove(c, "limits"), 0);
}

static void child_may_not(char **argv, struct pmemlogd *c)
{
	struct pmemlogd_log *log;
	pid_t pid;
	int status;

	IS(pmemlogd_open(c, "fork", PMEMLOGD_CREATE, 0600, 0, &log), 0);
	IS(pmemlogd_append(log, "parent", 6, NULL), 0);
	pid = fork();
	if (pid == 0) {
		char *again[] = { argv[0], argv[1], argv[2], argv[3], fork_name, NULL };
		struct pmemlogd_stat st = { .size = sizeof(st) };
		struct pmemlogd_log *mine;

		done = wrong = 0;
		IS(pmemlogd_append(log, "a", 1, NULL), -ECHILD);
		IS(pmemlogd_wait(log, 0), -ECHILD);
		IS(pmemlogd_stat(log, &st), -ECHILD);
		IS(pmemlogd_reconnect(c), -ECHILD);
		log = pmemlogd_close(log);
		c = pmemlogd_disconnect(c);
		mine = open_log(again, 0);
		IS(pmemlogd_append(mine, "child", 5, NULL), 0);
		_exit(wrong ? 1 : 0);
	}
	IS(waitpid(pid, &status, 0), pid);
	IS(status, 0);
	/* The child's end has taken nothing of the parent's away. */
	IS(pmemlogd_append(log, "parent", 6, NULL), 0);
	log = pmemlogd_close(log);
}

/* A program that closes descriptors that it has not opened keeps its place in the domain. */
static void closes_everything(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		char *again[] = { argv[0], argv[1], argv[2], argv[3], closed_name, NULL };
		struct pmemlogd_log *log = open_log(again, PMEMLOGD_CREATE);
		struct pmemlogd_stat st = { .size = sizeof(st) };
		struct pmemlogd_cursor *cursor;
		struct pmemlogd_record rec;
		uint64_t lsn;

		done = wrong = 0;
		for (int fd = 3; fd < 1024; fd++)
			(void)close(fd);
		(void)open("/dev/null", O_RDWR);
		(void)open("/dev/null", O_RDWR);
		/* Longer than the daemon takes to notice that nobody is there. */
		(void)sleep(3);
		IS(pmemlogd_append(log, "still", 5, &lsn), 0);
		IS(pmemlogd_cursor_new(log, PMEMLOGD_FIRST, &cursor), 0);
		IS(pmemlogd_next(cursor, &rec, 0), 1);
		IS(pmemlogd_reconnect(the_connection()), 0);
		IS(pmemlogd_sync(log, lsn, 10000), 0);
		IS(pmemlogd_stat(log, &st), 0);
		IS(st.disk, 5);
		_exit(wrong ? 1 : 0);
	}
	IS(waitpid(pid, &status, 0), pid);
	IS(status, 0);
}

static struct pmemlogd_log *race_log;

static void *follower(void *arg)
{
	struct pmemlogd_cursor *c;
	struct pmemlogd_record rec;
	uint64_t *worst = arg;

	IS(pmemlogd_cursor_new(race_log, PMEMLOGD_END, &c), 0);
	for (unsigned i = 0; i < 50; i++) {
		struct timespec now;
		uint64_t sent, took;

		if (pmemlogd_next(c, &rec, 5000) != 1 || rec.length != sizeof(sent)) {
			*worst = UINT64_MAX;
			break;
		}
		(void)clock_gettime(CLOCK_MONOTONIC, &now);
		memcpy(&sent, rec.data, sizeof(sent));
		took = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - sent;
		*worst = took > *worst ? took : *worst;
	}
	(void)pmemlogd_cursor_free(c);
	return NULL;
}

/* A follower sees every record; how soon is measured by bench/, since machines differ. */
static void follows(struct pmemlogd *c)
{
	uint64_t worst = 0;
	pthread_t t;

	IS(pmemlogd_open(c, "follow", PMEMLOGD_CREATE, 0600, 0, &race_log), 0);
	(void)pthread_create(&t, NULL, follower, &worst);
	(void)usleep(100000);
	for (unsigned i = 0; i < 50; i++) {
		struct timespec now;
		uint64_t ns;

		(void)clock_gettime(CLOCK_MONOTONIC, &now);
		ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
		IS(pmemlogd_append(race_log, &ns, sizeof(ns), NULL), 0);
		(void)usleep(3000);
	}
	(void)pthread_join(t, NULL);
	IS(worst == UINT64_MAX, 0);
	printf("follower: slowest of 50 %llu us\n", (unsigned long long)(worst / 1000));
	race_log = pmemlogd_close(race_log);
}

int do_api(char **argv)
{
	char *first[] = { argv[0], argv[1], argv[2], argv[3], first_name, NULL };
	struct pmemlogd_log *log;

	closes_everything(argv);
	log = open_log(first, PMEMLOGD_CREATE);
	misuse(the_connection());
	limits(the_connection());
	child_may_not(argv, the_connection());
	follows(the_connection());
	(void)pmemlogd_close(log);
	(void)pmemlogd_disconnect(the_connection());
	printf("api %u wrong %u\n", done, wrong);
	return wrong || !done;
}
