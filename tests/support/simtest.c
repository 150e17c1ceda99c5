/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The medium of the test build (pool/sim.h), with simcut's path as argument: a cut keeps what was drained,
 * by the thread that stored it, in whichever process, and nothing else.
 */

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/ops.h"
#include "pool/sim.h"

#define BYTES	 65536u
#define MANY	 200u /* more ranges than a thread keeps a list of */
#define LINE(i)	 (base + (size_t)(i)*SIM_LINE)
#define CHECK(x) check(x, #x)

static char folder[] = "/dev/shm/pmemlogd-simtest.XXXXXX";
static const char *simcut;
static uint8_t *base;
static int failed;

static void check(bool good, const char *words)
{
	if (good)
		return;
	printf("FAILED: %s\n", words);
	failed++;
}

static void copy(unsigned line, uint8_t c)
{
	uint8_t bytes[SIM_LINE];

	memset(bytes, c, sizeof(bytes));
	pool_ops->copy(LINE(line), bytes, sizeof(bytes));
}

static bool has(unsigned line, uint8_t c)
{
	for (unsigned i = 0; i < SIM_LINE; i++)
		if (LINE(line)[i] != c)
			return false;
	return true;
}

static void cut(const char *kind)
{
	char command[512];

	(void)snprintf(command, sizeof(command), "%s %s/shadows %s/pool %s 7 > /dev/null", simcut,
		       folder, folder, kind);
	CHECK(system(command) == 0);
}

static void *other_thread(void *arg)
{
	(void)arg;
	copy(3, 'o');
	pool_ops->drain();
	copy(4, 'o');
	return NULL;
}

static void prepare(void)
{
	char path[256];
	int fd;

	CHECK(mkdtemp(folder) != NULL);
	(void)snprintf(path, sizeof(path), "%s/pool", folder);
	CHECK(mkdir(path, 0755) == 0);
	(void)snprintf(path, sizeof(path), "%s/shadows", folder);
	CHECK(mkdir(path, 0777) == 0 && setenv("PMEMLOGD_SIM", path, 1) == 0);
	(void)snprintf(path, sizeof(path), "%s/pool/lane", folder);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
	base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pool_ops_select();
	CHECK(base != MAP_FAILED && sim_map(base, BYTES, fd) == 0);
	CHECK(strcmp(pool_ops_name(), "simulated") == 0);
}

static void threads(void)
{
	pthread_t t;

	copy(1, 'm');
	pool_ops->drain();
	copy(2, 'm');
	CHECK(pthread_create(&t, NULL, other_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
	CHECK(has(2, 'm') && has(4, 'o')); /* seen by all before they are durable */
	cut("none");
	CHECK(has(1, 'm') && has(2, 0) && has(3, 'o') && has(4, 0));
}

/* A child's drain is not its parent's, and the shadow is one for both. */
static void processes(void)
{
	int status = 1;
	pid_t child;

	copy(10, 'p');
	child = fork();
	if (child == 0) {
		copy(11, 'c');
		pool_ops->drain();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	cut("none");
	CHECK(has(10, 0) && has(11, 'c'));
	pool_ops->drain(); /* the cut has taken the store: nothing is left to drain */
	cut("none");
	CHECK(has(10, 0));
}

static void kinds(void)
{
	copy(20, 'a');
	LINE(21)[0] = 'b'; /* a plain store, flushed */
	pool_ops->flush(LINE(21), 1);
	memset(LINE(20), 'z', SIM_LINE); /* after the copy, and never flushed */
	cut("flushed");
	CHECK(has(20, 'a') && LINE(21)[0] == 'b');
	copy(22, 'a');
	memset(LINE(23), 'z', SIM_LINE);
	cut("all");
	CHECK(has(22, 'a') && has(23, 'z'));
	memset(LINE(24), 'z',
	       SIM_LINE); /* stored, never flushed: an eviction alone could keep it */
	cut("none");
	CHECK(has(24, 0) && has(23, 'z'));
}

static void many(void)
{
	unsigned good = 0;

	for (unsigned i = 0; i < MANY; i++)
		copy(100 + 2 * i, 'n');
	pool_ops->drain();
	cut("none");
	for (unsigned i = 0; i < MANY; i++)
		good += has(100 + 2 * i, 'n');
	CHECK(good == MANY);
}

/* By words, each old or new; over many lines both must come. */
static void words(void)
{
	unsigned old = 0, new = 0;

	for (unsigned i = 600; i < 900; i++)
		copy(i, 'w');
	cut("words");
	for (uint8_t *p = LINE(600); p < LINE(900); p += 8) {
		old += memcmp(p, "\0\0\0\0\0\0\0", 8) == 0;
		new += memcmp(p, "wwwwwwww", 8) == 0;
	}
	CHECK(old + new == 300 * 8 && old > 0 && new > 0);
}

int main(int argc, char **argv)
{
	char command[256];

	if (argc != 2)
		return 64;
	simcut = argv[1];
	prepare();
	if (!failed) {
		threads();
		processes();
		kinds();
		many();
		words();
	}
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command) != 0)
		failed++;
	printf("simulated medium: %d failed\n", failed);
	return failed != 0;
}
