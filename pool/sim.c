/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Test builds only: see sim.h. Runs inside databases, too: raw calls, no libc function a shim takes over. */
#include "pool/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "base/overflow.h"
#include "base/sys.h"

#define MAPS	256u
#define RANGES	64u
#define HOLD_MS 2000 /* a test that has died holds up nobody for ever */

struct sim_map {
	uint8_t *base; /* NULL: free */
	size_t bytes;
	uint8_t *shadow;
	uint8_t *safe, *flown;
	uint32_t *owner;
};

static struct sim_map maps[MAPS];
static uint32_t maps_lock;
static char hold[512];
static bool no_drain; /* a control: stores are never waited for, so commits must be lost */

/* Lines that this thread has under way. After a fork they are the parent's: the owner says so. */
static __thread struct range {
	struct sim_map *map;
	uint32_t first, end;
} ranges[RANGES];
static __thread uint32_t ranges_n;
static __thread bool too_many; /* then a drain looks at every line */

static void lock(void)
{
	while (__atomic_exchange_n(&maps_lock, 1, __ATOMIC_ACQUIRE))
		_mm_pause();
}

static void unlock(void)
{
	__atomic_store_n(&maps_lock, 0, __ATOMIC_RELEASE);
}

/* A store beside every shadowed mapping would be one that no cut can take away: the test would be blind. */
static struct sim_map *map_of(const void *p, size_t n)
{
	for (uint32_t i = 0; i < MAPS; i++) {
		struct sim_map *m = &maps[i];
		const uint8_t *base = __atomic_load_n(&m->base, __ATOMIC_ACQUIRE);

		if (base && (const uint8_t *)p >= base && (const uint8_t *)p + n <= base + m->bytes)
			return m;
	}
	abort();
}

/* The owner last: a cut in between finds the line as stored, or as it was. */
static void start_line(struct sim_map *m, uint32_t line, uint32_t me)
{
	size_t at = (size_t)line * SIM_LINE;

	memcpy(m->flown + at, m->base + at, SIM_LINE);
	__atomic_store_n(&m->owner[line], me, __ATOMIC_RELEASE);
}

static void note(struct sim_map *m, uint32_t first, uint32_t end)
{
	struct range *last = ranges_n ? &ranges[ranges_n - 1] : NULL;

	if (last && last->map == m && last->end == first)
		last->end = end;
	else if (ranges_n < RANGES)
		ranges[ranges_n++] = (struct range){ m, first, end };
	else
		too_many = true;
}

static void sim_copy(void *dst, const void *src, size_t n)
{
	struct sim_map *m = map_of(dst, n);
	size_t at = (size_t)((uint8_t *)dst - m->base);
	uint32_t first = (uint32_t)(at / SIM_LINE), line = first;
	const uint8_t *from = src;
	uint32_t me = sys_gettid();

	/* What the interface promises to the real stores. */
	if (at % SIM_LINE != 0 || n % sizeof(uint64_t) != 0)
		abort();
	for (; n > 0; line++) {
		size_t part = n < SIM_LINE ? n : SIM_LINE;

		memcpy(m->base + (size_t)line * SIM_LINE, from, part);
		start_line(m, line, me);
		from += part;
		n -= part;
	}
	note(m, first, line);
}

static void sim_flush(const void *p, size_t n)
{
	struct sim_map *m = map_of(p, n);
	size_t at = (size_t)((const uint8_t *)p - m->base);
	uint32_t first = (uint32_t)(at / SIM_LINE), line = first;
	uint32_t me = sys_gettid();

	for (; (size_t)line * SIM_LINE < at + n; line++)
		start_line(m, line, me);
	note(m, first, line);
}

static void drain_lines(struct sim_map *m, uint32_t first, uint32_t end, uint32_t me)
{
	for (uint32_t line = first; line < end; line++) {
		size_t at = (size_t)line * SIM_LINE;

		if (__atomic_load_n(&m->owner[line], __ATOMIC_RELAXED) != me)
			continue;
		memcpy(m->safe + at, m->flown + at, SIM_LINE);
		__atomic_store_n(&m->owner[line], 0, __ATOMIC_RELEASE);
	}
}

/* Between store and drain lie a few instructions, where hardly any cut would ever fall. As long as the file
 * `hold` lies in the folder, drains take as long as this one does on no machine: the test then has its cut. */
static void linger(void)
{
	static const struct timespec while_ = { .tv_nsec = 1000000 };

	for (int i = 0; i < HOLD_MS; i++) {
		if (sys_call3(SYS_faccessat, AT_FDCWD, hold, F_OK) < 0)
			return;
		(void)sys_call2(SYS_nanosleep, &while_, NULL);
	}
}

static void sim_drain(void)
{
	uint32_t me = sys_gettid();

	_mm_sfence();
	linger();
	if (no_drain)
		return;
	if (too_many) {
		for (uint32_t i = 0; i < MAPS; i++)
			if (__atomic_load_n(&maps[i].base, __ATOMIC_ACQUIRE))
				drain_lines(&maps[i], 0, (uint32_t)(maps[i].bytes / SIM_LINE), me);
	}
	for (uint32_t i = 0; i < ranges_n && !too_many; i++)
		if (ranges[i].map->base)
			drain_lines(ranges[i].map, ranges[i].first, ranges[i].end, me);
	ranges_n = 0;
	too_many = false;
}

const struct pool_ops sim_ops = { sim_copy, sim_flush, sim_drain };

/* Under the file's lock, so that one process makes it whole and the others find it whole. */
static int fill(int shadow, const uint8_t *base, size_t bytes)
{
	struct sim_head head = { .magic = SIM_MAGIC, .bytes = bytes };
	size_t done = 0;
	long r = sys_call2(SYS_ftruncate, shadow, sim_shadow_bytes(bytes));

	while (r >= 0 && done < bytes) {
		r = sys_call4(SYS_pwrite64, shadow, base + done, bytes - done,
			      SIM_HEAD_BYTES + done);
		done += r < 0 ? 0 : (size_t)r;
	}
	if (r >= 0)
		r = sys_call2(SYS_fchmod, shadow, 0666); /* every user's processes map it */
	if (r >= 0)
		r = sys_call4(SYS_pwrite64, shadow, &head, sizeof(head), 0);
	return r < 0 ? (int)r : 0;
}

static int open_shadow(const uint8_t *base, size_t bytes, int fd)
{
	const char *folder = secure_getenv("PMEMLOGD_SIM");
	struct sim_head head = { 0 };
	char path[512];
	struct stat st;
	long shadow, r;
	int n;

	if (!folder)
		return -ENOKEY;
	n = snprintf(hold, sizeof(hold), "%s/hold", folder);
	if (n < 0 || (size_t)n >= sizeof(hold))
		return -ENAMETOOLONG;
	no_drain = secure_getenv("PMEMLOGD_SIM_NO_DRAIN") != NULL;
	r = sys_call2(SYS_fstat, fd, &st);
	if (r < 0)
		return (int)r;
	n = snprintf(path, sizeof(path), "%s/%llu", folder, (unsigned long long)st.st_ino);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	shadow = sys_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (shadow == -ENOENT)
		shadow = sys_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (shadow < 0)
		return (int)shadow;
	r = sys_call2(SYS_flock, shadow, LOCK_EX);
	if (r >= 0)
		r = sys_call4(SYS_pread64, shadow, &head, sizeof(head), 0);
	if (r == 0)
		r = fill((int)shadow, base, bytes);
	else if (r > 0)
		r = memcmp(head.magic, SIM_MAGIC, 8) == 0 && head.bytes == bytes ? 0 : -EBADMSG;
	(void)sys_call2(SYS_flock, shadow, LOCK_UN);
	if (r < 0) {
		(void)sys_call1(SYS_close, shadow);
		return (int)r;
	}
	return (int)shadow;
}

int sim_map(uint8_t *base, size_t bytes, int fd)
{
	int shadow = open_shadow(base, bytes, fd);
	int r = -ENFILE;
	long p;

	if (shadow < 0)
		return shadow;
	p = sys_call6(SYS_mmap, 0, (long)sim_shadow_bytes(bytes), PROT_READ | PROT_WRITE,
		      MAP_SHARED, shadow, 0);
	(void)sys_call1(SYS_close, shadow);
	if (p < 0 && p > -4096)
		return (int)p;
	lock();
	for (uint32_t i = 0; i < MAPS && r < 0; i++) {
		struct sim_map *m = &maps[i];

		if (m->base)
			continue;
		m->bytes = bytes;
		m->shadow = (uint8_t *)p;
		m->safe = m->shadow + SIM_HEAD_BYTES;
		m->flown = m->safe + bytes;
		m->owner = (uint32_t *)(void *)(m->flown + bytes);
		__atomic_store_n(&m->base, base, __ATOMIC_RELEASE);
		r = 0;
	}
	unlock();
	if (r < 0)
		(void)sys_call2(SYS_munmap, p, sim_shadow_bytes(bytes));
	return r;
}

void sim_unmap(const uint8_t *base)
{
	lock();
	for (uint32_t i = 0; i < MAPS; i++) {
		struct sim_map *m = &maps[i];

		if (m->base != base)
			continue;
		__atomic_store_n(&m->base, NULL, __ATOMIC_RELEASE);
		(void)sys_call2(SYS_munmap, m->shadow, sim_shadow_bytes(m->bytes));
	}
	unlock();
}

bool sim_fs_uuid(int fd, uint8_t ret_uuid[16])
{
	return sys_call4(SYS_fgetxattr, fd, "trusted.losefs.uuid", ret_uuid, 16) == 16;
}
