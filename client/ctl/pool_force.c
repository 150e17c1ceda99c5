/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What `pool create --force` would destroy. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <json-c/json.h>

#include "client/ctl/ctl.h"
#include "daemon/recover/recover.h"

static uint64_t number(struct json_object *o, const char *key)
{
	return json_object_get_uint64(json_object_object_get(o, key));
}

static void print_files(struct json_object *report)
{
	struct json_object *files = json_object_object_get(report, "files");

	for (size_t i = 0; files && i < json_object_array_length(files); i++) {
		struct json_object *f = json_object_array_get_idx(files, i);
		const char *path = json_object_get_string(json_object_object_get(f, "path"));
		char bytes[32];

		if (number(f, "records") > 0)
			(void)fprintf(stderr, "    %s: %s\n",
				      *path ? path : "a file that the catalog does not know",
				      ctl_bytes(bytes, sizeof(bytes), number(f, "live_bytes")));
	}
}

/* True: the domain has something to lose, or that cannot be told. */
static bool print_domain(struct pool *p, uint32_t index, const struct pool_domain *d)
{
	const struct recover_options o = { .dry_run = true };
	struct json_object *report = NULL;
	char user[64], bytes[32];
	int r = recover_domain(p, index, &o, &report);
	uint64_t records = report ? number(report, "records") : 0;
	const char *reason =
		report ? json_object_get_string(json_object_object_get(report, "reason")) : NULL;

	(void)ctl_user(user, sizeof(user), d->uid);
	if (records > 0)
		(void)fprintf(stderr, "  %s/%s (uid %" PRIu32 "): %" PRIu64 " records, %s, of\n",
			      user, d->name, d->uid, records,
			      ctl_bytes(bytes, sizeof(bytes), number(report, "live_bytes")));
	else if (r != RECOVER_CLEAN)
		(void)fprintf(stderr, "  %s/%s (uid %" PRIu32 "): how much cannot be told: %s\n",
			      user, d->name, d->uid, reason ? reason : strerror(-r));
	print_files(report);
	json_object_put(report);
	return records > 0 || r != RECOVER_CLEAN;
}

static bool print_all(struct pool *p)
{
	struct pool_domain d;
	bool any = false;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++)
		if (catalog_domain_get(p, i, &d) == 0 && print_domain(p, i, &d))
			any = true;
	return any;
}

static bool there(const struct config *config)
{
	char path[512];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/pool", config->pool);
	return lstat(path, &st) == 0;
}

bool ctl_confirm_force(const struct config *config, const char *yes)
{
	struct pool_error error = { "" };
	struct pool *p = NULL;
	bool any = true;

	if (!there(config))
		return true;
	(void)fprintf(stderr, "%s: --force destroys the pool that lies there", config->pool);
	if (pool_open(&p, config->pool, config->state_dir, true, true, &error) < 0) {
		(void)fprintf(stderr, ". What it holds cannot be told: %s\n", error.text);
	} else {
		(void)fprintf(stderr, ", and in it:\n");
		any = print_all(p);
		if (!any)
			(void)fprintf(stderr, "  no records\n");
		pool_close(p);
	}
	return !any || ctl_confirm("pool's path", config->pool, yes,
				   "Their databases lose these commits: restore them.");
}
