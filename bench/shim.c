/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pmemlogd-bench shim: what a program feels. Each figure is taken in a child process, with the preload
 * library or without it; the candidates take turns, and the medians over the rounds are told.
 *
 *	shim, buffered			pwrite of 4 KiB + fdatasync through the library; pwrite alone without it
 *	shim-idle-xfs, shim-destage-xfs	the first, 20,000 a second, while nothing is destaged and while all is
 *	norule-X, bare-X		write, pwrite, close on a file under no rule, with and without the library
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

#define BLOCK	   4096u
#define BLOCKS	   1024u /* a log's file of 4 MiB, written round and round */
#define PACE_NS	   50000.0
#define ROUNDS_MAX 32u

struct figures {
	double p50, p99, p999, max, rate;
};

/* ---- the child: one candidate, one round ---- */

struct candidate {
	const char *what;
	const char *place; /* disk, xfs, memory */
	bool library;
	bool paced;
	unsigned size;
	/* One timed operation. */
	void (*once)(int fd, uint64_t n);
};

static uint8_t block[BLOCK] __attribute__((aligned(BLOCK)));
static const char *file_name;

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "pmemlogd-bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void write_synced(int fd, uint64_t n)
{
	must(pwrite(fd, block, BLOCK, (off_t)(n % BLOCKS * BLOCK)) == BLOCK, "pwrite");
	must(fdatasync(fd) == 0, "fdatasync");
}

static void write_buffered(int fd, uint64_t n)
{
	must(pwrite(fd, block, BLOCK, (off_t)(n % BLOCKS * BLOCK)) == BLOCK, "pwrite");
}

static void small_write(int fd, uint64_t n)
{
	(void)n;
	must(write(fd, block, 64) == 64, "write");
}

static void small_pwrite(int fd, uint64_t n)
{
	must(pwrite(fd, block, 64, (off_t)(n % 64 * 64)) == 64, "pwrite");
}

static void close_copy(int fd, uint64_t n)
{
	(void)n;
	must(close(fd) == 0, "close");
}

static const struct candidate candidates[] = {
	{ "buffered", "disk", false, false, BLOCK, write_buffered },
	{ "shim", "disk", true, false, BLOCK, write_synced },
	{ "shim-idle-xfs", "xfs", true, true, BLOCK, write_synced },
	{ "shim-destage-xfs", "xfs", true, true, BLOCK, write_synced },
	{ "bare-write", "memory", false, false, 64, small_write },
	{ "norule-write", "memory", true, false, 64, small_write },
	{ "bare-pwrite", "memory", false, false, 64, small_pwrite },
	{ "norule-pwrite", "memory", true, false, 64, small_pwrite },
	{ "bare-close", "memory", false, false, 0, close_copy },
	{ "norule-close", "memory", true, false, 0, close_copy },
};
#define CANDIDATES (sizeof(candidates) / sizeof(candidates[0]))

/* Time of one operation; what has to be made ready for it is not in it. */
static uint64_t timed(const struct candidate *c, int fd, uint64_t n)
{
	uint64_t before, after;
	int target = fd;

	if (c->once == close_copy) {
		target = open(file_name, O_RDONLY | O_CLOEXEC);
		must(target >= 0, "open");
	} else if (c->once == small_write && n % 64 == 0) {
		must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
	}
	before = ticks();
	c->once(target, n);
	after = ticks();
	return after - before > ticks_overhead() ? after - before - ticks_overhead() : 0;
}

static int child(const struct candidate *c, const char *path, double seconds)
{
	static struct histogram h;
	uint64_t begin, next, n = 0;
	int fd;

	file_name = path;
	memset(block, 'b', sizeof(block));
	ticks_calibrate();
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(fd >= 0, path);
	/* The file has its blocks and pages: a log is made once and rewritten for ever. */
	for (uint64_t i = 0; i < (c->size == BLOCK ? BLOCKS : 64); i++)
		c->size == BLOCK ? write_buffered(fd, i) : small_pwrite(fd, i);
	for (uint64_t i = 0; i < 1000; i++)
		(void)timed(c, fd, i);

	begin = next = ticks();
	do {
		while (c->paced && ticks() < next)
			;
		next += ticks_of_ns(PACE_NS);
		histogram_add(&h, timed(c, fd, n++));
	} while (ticks() - begin < ticks_of_ns(seconds * 1e9));
	printf("%f %f %f %f %f\n", ticks_to_ns(histogram_share(&h, 0.5)),
	       ticks_to_ns(histogram_share(&h, 0.99)), ticks_to_ns(histogram_share(&h, 0.999)),
	       ticks_to_ns(h.max), (double)h.count * 1e9 / ticks_to_ns(ticks() - begin));
	return 0;
}

/* ---- the parent: folders, daemons, rounds ---- */

static struct {
	char build[512];
	char *disk, *memory; /* our folders there */
	char *library;
	pid_t daemon;
	bool xfs;
} site;

/* Formatted text in one of a few buffers that take turns; good until sixteen calls later. */
static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *format, ...)
{
	static char buffers[16][700];
	static unsigned turn;
	char *ret = buffers[turn++ % 16];
	va_list ap;
	int r;

	va_start(ap, format);
	r = vsnprintf(ret, sizeof(buffers[0]), format, ap);
	va_end(ap);
	errno = ENAMETOOLONG;
	must(r >= 0 && (size_t)r < sizeof(buffers[0]), "path");
	return ret;
}

static void put_file(const char *path, const char *bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	must(fd >= 0 && write(fd, bytes, strlen(bytes)) == (ssize_t)strlen(bytes), path);
	close(fd);
}

/* Runs a program, quietly, to its end. Exit status. */
static int command(char *const argv[])
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 1);
		dup2(null, 2);
		execvp(argv[0], argv);
		_exit(127);
	}
	must(pid > 0 && waitpid(pid, &status, 0) == pid, argv[0]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void stop_daemon(void)
{
	if (site.daemon > 0) {
		kill(site.daemon, SIGTERM);
		waitpid(site.daemon, NULL, 0);
	}
	site.daemon = 0;
}

/* A daemon with a fresh pool. idle: one that has no reason to destage while we measure. */
static void start_daemon(bool idle)
{
	char *config = text("%s/conf", site.memory);
	char *daemon = text("%s/daemon/pmemlogd", site.build);
	char *ctl = text("%s/client/ctl/pmemlogctl", site.build);
	char *socket = text("%s/run/pmemlogd.sock", site.memory);
	char *pool = text("%s/pool", site.memory), *state = text("%s/state", site.memory);
	const pid_t parent = getpid();

	stop_daemon();
	(void)command((char *[]){ (char[]){ "rm" }, (char[]){ "-rf" }, pool, state,
				  text("%s/run", site.memory), NULL });
	must(mkdir(pool, 0755) == 0 && mkdir(state, 0755) == 0, pool);
	put_file(config,
		 text("pool = \"%s\"; emulate = true; run_dir = \"%s/run\";\n"
		      "state_dir = \"%s\"; lane_size = \"%s\"; destage_age = \"%s\";\n",
		      pool, site.memory, state, idle ? "1GiB" : "256MiB", idle ? "60s" : "100ms"));
	must(command((char *[]){ ctl, (char[]){ "-c" }, config, (char[]){ "pool" },
				 (char[]){ "create" }, (char[]){ "--emulate" }, NULL }) == 0,
	     "pmemlogctl pool create");
	site.daemon = fork();
	if (site.daemon == 0) {
		int null = open("/dev/null", O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(null, 2);
		if (getppid() == parent)
			execl(daemon, "pmemlogd", "-c", config, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; access(socket, F_OK) < 0; i++) {
		must(i < 200, "pmemlogd does not start");
		usleep(20000);
	}
}

static void make_xfs(void)
{
	char *image = text("%s/xfs.img", site.disk), *folder = text("%s/xfs", site.disk);
	int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	must(fd >= 0 && ftruncate(fd, 512 << 20) == 0 && mkdir(folder, 0755) == 0, image);
	close(fd);
	site.xfs =
		unshare(CLONE_NEWNS) == 0 &&
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		command((char *[]){ (char[]){ "mkfs.xfs" }, (char[]){ "-q" }, image, NULL }) == 0 &&
		command((char *[]){ (char[]){ "mount" }, (char[]){ "-o" }, (char[]){ "loop" },
				    image, folder, NULL }) == 0;
	if (!site.xfs)
		fputs("pmemlogd-bench: no loop-mounted xfs here: its figures are left out\n",
		      stderr);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

static void tear_down(void)
{
	stop_daemon();
	if (site.xfs)
		(void)umount(text("%s/xfs", site.disk));
	site.xfs = false;
	if (site.disk)
		(void)nftw(site.disk, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (site.memory)
		(void)nftw(site.memory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void set_up(const char *disk, const char *memory)
{
	char *slash;
	ssize_t n = readlink("/proc/self/exe", site.build, sizeof(site.build) - 1);

	must(n > 0, "/proc/self/exe");
	for (int i = 0; i < 2 && (slash = strrchr(site.build, '/')); i++)
		*slash = '\0'; /* BUILD/bench/pmemlogd-bench */
	site.library = strdup(text("%s/client/preload/libpmemlogd-preload.so", site.build));
	must(site.library && access(site.library, R_OK) == 0, site.library);
	site.disk = strdup(text("%s/pmemlogd-bench.XXXXXX", disk));
	must(site.disk && mkdtemp(site.disk) != NULL, site.disk);
	site.memory = strdup(text("%s/pmemlogd-bench.XXXXXX", memory));
	must(site.memory && mkdtemp(site.memory) != NULL, site.memory);
	must(chmod(site.memory, 0755) == 0 && mkdir(text("%s/rules", site.memory), 0755) == 0,
	     site.memory);
	put_file(text("%s/rules/bench.ini", site.memory),
		 "[bench]\nprogram = pmemlogd-bench\npath = */bench.log\n");
	make_xfs();
}

/* Runs one candidate in a process of its own. */
static struct figures measure(const struct candidate *c, double seconds)
{
	struct figures f = { 0 };
	bool memory = strcmp(c->place, "memory") == 0;
	char *path =
		text("%s%s/%s", memory ? site.memory : site.disk,
		     strcmp(c->place, "xfs") == 0 ? "/xfs" : "", memory ? "plain" : "bench.log");
	char *duration = text("%f", seconds);
	char line[256];
	ssize_t n;
	int pipes[2], status;
	pid_t pid;

	must(pipe2(pipes, O_CLOEXEC) == 0, "pipe");
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], 1);
		if (c->library) {
			setenv("LD_PRELOAD", site.library, 1);
			setenv("PMEMLOGD_SOCKET", text("%s/run/pmemlogd.sock", site.memory), 1);
			setenv("PMEMLOGD_PRELOAD_CONFIG", text("%s/rules", site.memory), 1);
		}
		execl("/proc/self/exe", "pmemlogd-bench", "shim", "--child", c->what, path,
		      duration, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	n = read(pipes[0], line, sizeof(line) - 1);
	line[n > 0 ? n : 0] = '\0';
	close(pipes[0]);
	must(waitpid(pid, &status, 0) == pid && status == 0, c->what);
	must(sscanf(line, "%lf %lf %lf %lf %lf", &f.p50, &f.p99, &f.p999, &f.max, &f.rate) == 5,
	     c->what);
	return f;
}

static int by_value(const void *a, const void *b)
{
	double x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x < y ? -1 : x > y;
}

/* Median of one field over the rounds. */
static double median(const struct figures *rounds, unsigned n, size_t field)
{
	double v[ROUNDS_MAX];

	for (unsigned i = 0; i < n; i++)
		memcpy(&v[i], (const char *)&rounds[i] + field, sizeof(v[i]));
	qsort(v, n, sizeof(v[0]), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
#define MEDIAN(rounds, n, field) median(rounds, n, offsetof(struct figures, field))

static void print_one(bool json, const struct candidate *c, const struct figures *r, unsigned n)
{
	static bool first = true;
	double max = 0;

	for (unsigned i = 0; i < n; i++)
		max = r[i].max > max ? r[i].max : max;
	printf(json ? "%s{\"what\": \"%s\", \"size\": %u, \"threads\": 1, \"p50_ns\": %.1f, "
		      "\"p99_ns\": %.1f, \"p999_ns\": %.1f, \"max_ns\": %.1f, \"ops_per_s\": %.0f}"
		    : "%s%-17s %5u B  p50 %8.1f  p99 %8.1f  p999 %9.1f  max %11.1f ns  %9.0f/s\n",
	       !json   ? ""
	       : first ? "[\n "
		       : ",\n ",
	       c->what, c->size, MEDIAN(r, n, p50), MEDIAN(r, n, p99), MEDIAN(r, n, p999), max,
	       MEDIAN(r, n, rate));
	first = false;
	fflush(stdout);
}

static bool is_idle(const struct candidate *c)
{
	return strcmp(c->what, "shim-idle-xfs") == 0;
}

static int run_child(char **argv)
{
	for (unsigned i = 0; i < CANDIDATES; i++)
		if (strcmp(candidates[i].what, argv[0]) == 0)
			return child(&candidates[i], argv[1], strtod(argv[2], NULL));
	return 64;
}

int bench_shim(int argc, char **argv)
{
	static const struct option names[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "seconds", required_argument, NULL, 'S' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "pool", required_argument, NULL, 'p' },
		{ "disk", required_argument, NULL, 'd' },
		{ 0 },
	};
	static struct figures all[CANDIDATES][ROUNDS_MAX];
	const char *disk = "/var/tmp", *memory = "/dev/shm";
	double seconds = 3.0; /* of each candidate, over all rounds */
	unsigned rounds = 5;
	bool json = false;
	int c;

	if (argc == 5 && strcmp(argv[1], "--child") == 0)
		return run_child(argv + 2);
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'j')
			json = true;
		else if (c == 'S')
			seconds = strtod(optarg, NULL);
		else if (c == 'r')
			rounds = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'p')
			memory = optarg;
		else if (c == 'd')
			disk = optarg;
		else
			return 64;
	}
	if (optind != argc || !(seconds > 0) || rounds < 1 || rounds > ROUNDS_MAX) {
		fputs("pmemlogd-bench shim: wrong option\n", stderr);
		return 64;
	}
	atexit(tear_down);
	set_up(disk, memory);
	/* The idle daemon is another one, with a lane that a round does not fill to a quarter. */
	for (unsigned round = 0; round < rounds; round++) {
		for (int idle = 0; idle <= (site.xfs ? 1 : 0); idle++) {
			start_daemon(idle);
			for (unsigned i = 0; i < CANDIDATES; i++)
				if (is_idle(&candidates[i]) == (idle == 1) &&
				    (site.xfs || strcmp(candidates[i].place, "xfs") != 0))
					all[i][round] = measure(&candidates[i], seconds / rounds);
		}
	}
	for (unsigned i = 0; i < CANDIDATES; i++)
		if (all[i][0].rate > 0)
			print_one(json, &candidates[i], all[i], rounds);
	if (json)
		puts("\n]");
	return 0;
}
