/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/pool/verdict.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/crc.h"

const char *const verdict_names[VERDICTS] = {
	[HARMLESS] = "harmless", [NAMED] = "named", [NEWEST] = "newest since heartbeat dropped",
	[SILENT] = "SILENT",	 [WRONG] = "WRONG",
};

/* Names and bytes of a folder's files, whatever their order. */
static uint64_t folder_sum(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	uint64_t sum = 0;

	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
		struct stat st;
		uint32_t crc = crc32c(0, entry->d_name, strlen(entry->d_name));
		void *p;

		if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
			if (fd >= 0)
				(void)close(fd);
			continue;
		}
		p = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)
			       : MAP_FAILED;
		if (p != MAP_FAILED) {
			crc = crc32c(crc, p, (size_t)st.st_size);
			(void)munmap(p, (size_t)st.st_size);
		}
		(void)close(fd);
		sum += crc;
	}
	(void)closedir(dir);
	return sum;
}

static uint64_t pool_sum(const struct scene *s)
{
	return folder_sum(s->w->pool_dir) + 3 * folder_sum(s->w->state_dir);
}

static bool files_as(const struct scene *s, unsigned domain, size_t bytes_of)
{
	for (unsigned i = domain ? 3 : 0; i < (domain ? 4u : 3u); i++) {
		const struct scene_file *f = &s->files[i];

		if (!f->gone && !scene_holds(f, (const uint8_t *)f + bytes_of))
			return false;
	}
	return true;
}

#define BEFORE	offsetof(struct scene_file, before)
#define WANT	offsetof(struct scene_file, want)
#define WITHOUT offsetof(struct scene_file, without)

static enum verdict say(enum verdict v, char *why, size_t n, const char *domain, const char *text)
{
	(void)snprintf(why, n, "%s: %s", domain, text);
	return v;
}

static enum verdict domain_clean(const struct scene *s, unsigned domain, bool may_lose_newest,
				 char *why, size_t n)
{
	const char *name = s->domains[domain].name;

	if (files_as(s, domain, WANT))
		return say(HARMLESS, why, n, name, "replayed");
	if (files_as(s, domain, WITHOUT))
		return may_lose_newest
			       ? say(NEWEST, why, n, name, "the newest record is not replayed")
			       : say(SILENT, why, n, name, "clean without the newest record");
	if (files_as(s, domain, BEFORE))
		return say(SILENT, why, n, name, "clean, and no record was replayed");
	return say(WRONG, why, n, name, "clean, and bytes that nobody wrote");
}

/* Words for a domain say which lane, file or device. */
static bool names_it(const char *reason)
{
	return strstr(reason, "lane") || strstr(reason, "/mnt/") || strstr(reason, "file id") ||
	       strstr(reason, "catalog");
}

/* ... and what to do. */
static bool tells_what_to_do(const char *reason)
{
	return strstr(reason, "recover") || strstr(reason, "restore") ||
	       strstr(reason, "Tried again") || strstr(reason, "release");
}

static enum verdict domain_down(struct scene *s, unsigned domain, char *why, size_t n)
{
	struct pool_domain d = { .name = "" };
	int r = catalog_domain_get(s->w->pool, s->index[domain], &d);

	if (r < 0)
		return say(WRONG, why, n, s->domains[domain].name, "down, and not in the catalog");
	if (!files_as(s, domain, BEFORE))
		return say(WRONG, why, n, d.name, "quarantined, and files were changed");
	if (d.verdict != VERDICT_QUARANTINED && d.verdict != VERDICT_HELD)
		return say(WRONG, why, n, d.name, "the verdict is not in the catalog");
	if (!names_it(d.reason) || !tells_what_to_do(d.reason))
		return say(WRONG, why, n, d.reason, "does not say what, or not what to do");
	return say(NAMED, why, n, d.name, d.reason);
}

static enum verdict domain_verdict(struct scene *s, unsigned domain, bool may_lose_newest,
				   char *why, size_t n)
{
	const struct recover_options o = { .clock_wait_ns = 0 };
	const struct pool_domain *d = &s->domains[domain];
	int index = catalog_domain_find(s->w->pool, d->uid, d->name);
	int r;

	if (index < 0)
		return domain_clean(s, domain, may_lose_newest, why, n);
	r = recover_domain(s->w->pool, (uint32_t)index, &o, NULL);
	if (r < 0)
		return say(WRONG, why, n, d->name, strerror(-r));
	if (r == RECOVER_CLEAN)
		return domain_clean(s, domain, may_lose_newest, why, n);
	return domain_down(s, domain, why, n);
}

static enum verdict refused(struct scene *s, uint64_t sum, const struct pool_error *e, char *why,
			    size_t n)
{
	if (pool_sum(s) != sum)
		return say(WRONG, why, n, "refused, and bytes were changed", e->text);
	if (!files_as(s, 0, BEFORE) || !files_as(s, 1, BEFORE))
		return say(WRONG, why, n, "refused, and files were changed", e->text);
	if (!strstr(e->text, s->w->pool_dir) && !strstr(e->text, s->w->state_dir))
		return say(WRONG, why, n, "refused, and does not say what", e->text);
	return say(NAMED, why, n, "pool", e->text);
}

static enum verdict look(struct scene *s, bool may_lose_newest, char *why, size_t n)
{
	uint64_t sum = pool_sum(s);
	struct pool_error e = { "" };
	enum verdict v, two;
	char other[600];

	if (pool_open(&s->w->pool, s->w->pool_dir, s->w->state_dir, true, false, &e) < 0)
		return refused(s, sum, &e, why, n);
	v = domain_verdict(s, 0, may_lose_newest, why, n);
	two = domain_verdict(s, 1, false, other, sizeof(other));
	s->w->pool = pool_close(s->w->pool);
	if (two > v) {
		(void)snprintf(why, n, "%s", other);
		return two;
	}
	return v;
}

enum verdict verdict_of(struct scene *s, bool may_lose_newest, char *why, size_t n)
{
	enum verdict first = look(s, may_lose_newest, why, n);
	char again[600];

	if (first > NEWEST)
		return first;
	if (look(s, may_lose_newest, again, sizeof(again)) != first)
		return say(WRONG, why, n, "another result at the second try", again);
	return first;
}
