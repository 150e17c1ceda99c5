/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The verb dump: which lane, which file. */
#include "client/ctl/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/local.h"
#include "pool/guard.h"

static bool number_whole(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && end != text && !*end && *text != '-';
}

/* "lane-000007": its number; also where the catalog does not name it. */
static bool lane_number(const char *text, uint32_t *ret)
{
	uint64_t v;

	if (strncmp(text, "lane-", 5) != 0 || !number_whole(text + 5, &v) || v > UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static void list_domains(struct pool *p)
{
	struct pool_domain d;
	char user[64];

	for (uint32_t i = 0; i < POOL_DOMAINS; i++)
		if (catalog_domain_get(p, i, &d) == 0)
			ctl_fail(0, "  %s/%s (lane-%06" PRIu32 ")",
				 ctl_user(user, sizeof(user), d.uid), d.name, d.lane);
}

static int find_any(struct dump *d)
{
	struct pool *p = &d->pool->pool;
	unsigned n = 0;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		struct pool_domain one;

		if (catalog_domain_get(p, i, &one) < 0)
			continue;
		d->domain = one;
		n++;
	}
	if (n == 1)
		return 0;
	if (n == 0)
		return ctl_fail(CTL_REFUSED, "%s: its catalog names no domain%s", p->path,
				d->pool->domains_damaged
					? ", and is damaged; lane-NUMBER names a lane "
					  "by its file"
					: "");
	ctl_fail(0, "dump: which domain?");
	list_domains(p);
	return CTL_USAGE;
}

static int find_domain(struct dump *d, const char *word)
{
	struct pool *p = &d->pool->pool;
	struct domain_name name;
	uint32_t number;
	int r;

	if (!word)
		return find_any(d);
	r = local_name(word, &name);
	if (r != 0)
		return r;
	r = local_find_one(p, &name, &d->domain);
	if (r >= 0)
		return 0;
	memset(&d->domain, 0, sizeof(d->domain));
	if (r == -EINVAL)
		return ctl_fail(CTL_REFUSED, "several users have a domain %s; say USER/NAME", word);
	if (!lane_number(word, &number)) {
		ctl_fail(0, "%s: no such domain in %s%s", word, p->path,
			 d->pool->domains_damaged
				 ? ", whose catalog is damaged; lane-NUMBER names a "
				   "lane by its file"
				 : "");
		list_domains(p);
		return CTL_REFUSED;
	}
	/* By its file: the domain is the one that the catalog has for it, if it has. */
	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, &d->domain) == 0 && d->domain.lane == number)
			return 0;
	}
	memset(&d->domain, 0, sizeof(d->domain));
	d->domain.lane = number;
	return 0;
}

/* --file: an id, or a path as the catalog has it. */
static int find_file(struct dump *d, const char *text)
{
	struct pool_file f;
	uint32_t from = 0;
	int index;

	if (!text || number_whole(text, &d->file_id))
		return 0;
	while ((index = catalog_file_next(&d->pool->pool, d->domain.lane, from, &f)) >= 0) {
		from = (uint32_t)index + 1;
		/* the newest of that name: ids only grow */
		if (strcmp(f.path, text) == 0 && f.id > d->file_id)
			d->file_id = f.id;
	}
	if (d->file_id)
		return 0;
	return ctl_fail(CTL_REFUSED,
			"%s: the catalog names no such file for this lane; without --file all are "
			"shown, with their paths",
			text);
}

static int dump_pool(struct dump *d, const char *word, const char *file)
{
	struct pool_error error = { "" };
	int code = find_domain(d, word), r;

	if (code == 0)
		code = find_file(d, file);
	if (code != 0)
		return code;
	r = pool_copy_map(d->pool, d->domain.lane, &d->lane, &error);
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "%s", error.text);
	if (d->pool->why.text[0])
		ctl_fail(0, "%s", d->pool->why.text);
	r = dump_walk(d);
	pool_copy_unmap(&d->lane);
	if (r == -ENOENT)
		return ctl_fail(CTL_REFUSED, "no whole record stands at or after %" PRIu64,
				d->from);
	return r < 0 ? CTL_REFUSED : CTL_GOOD;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	struct dump d = { .out = stdout };
	const char *file = NULL, *from = NULL, *folder = NULL;
	const struct ctl_option options[] = {
		{ .name = "json", .flag = &d.json },  { .name = "data", .flag = &d.data },
		{ .name = "file", .value = &file },   { .name = "from", .value = &from },
		{ .name = "pool", .value = &folder }, { 0 },
	};
	struct pool_error error = { "" };
	const struct config *config;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 0, 1, &words, &n);
	if (code >= 0)
		return code;
	if (from && !number_whole(from, &d.from))
		return ctl_fail(CTL_USAGE, "dump: --from=%s is no position (a number)", from);
	if (!folder) {
		config = ctl_config(c);
		if (!config)
			return CTL_CONFIG;
		folder = config->pool;
	}
	r = guard_install();
	if (r == 0)
		r = pool_copy_open(&d.pool, folder, &error);
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "%s", error.text[0] ? error.text : strerror(-r));
	code = dump_pool(&d, n > 0 ? words[0] : NULL, file);
	pool_copy_close(d.pool);
	return code;
}

const struct verb verb_dump = {
	.name = "dump",
	.arguments = "[--json] [--data] [--file=FILE] [--from=POSITION] [--pool=DIR] [DOMAIN]",
	.summary = "show the records of a lane",
	.help = "  --json           for programs\n"
		"  --data           their bytes as well, in hexadecimal: rows of the database are in them\n"
		"  --file=FILE      of this file alone: its id, or its path as the catalog has it\n"
		"  --from=POSITION  from there on; beyond damage: whatever is whole there\n"
		"  --pool=DIR       a pool, or a copy of one, in this folder instead of the configuration's;\n"
		"                   also another machine's, and a damaged one\n"
		"\n"
		"DOMAIN may be left out where there is one, and may be the name of the lane's file\n"
		"(lane-000001). Changes nothing, and may run beside the daemon: then the lane moves while it\n"
		"is read. Exit 1 when the lane is damaged; what can be read of it is shown.\n",
	.run = run,
};
