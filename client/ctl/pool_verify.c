/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The verb pool verify: every copy of everything, on after damage, also in a copy of a pool. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/verify.h"
#include "daemon/log.h"
#include "pool/guard.h"

static const char *const severities[] = { "note", "degraded", "damage" };

void verify_say(struct verify *v, enum finding f, const char *where, const char *format, ...)
{
	struct json_object *o = json_object_new_object();
	char text[768], printable[768];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_printable(printable, sizeof(printable), text);
	v->count[f]++;
	doc_put_text(o, "severity", severities[f]);
	doc_put_text(o, "where", where);
	doc_put_text(o, "text", printable);
	(void)json_object_array_add(v->findings, o);
}

struct json_object *verify_pool(struct pool_copy *pool, bool *ret_good)
{
	struct verify v = {
		.pool = pool,
		.in_use = pool_copy_in_use(pool),
		.findings = json_object_new_array(),
		.domains = json_object_new_array(),
	};
	struct json_object *root = json_object_new_object();
	const struct pool_superblock *sb = &pool->pool.sb;

	verify_catalog(&v);
	verify_lanes(&v);
	doc_put_text(root, "path", pool->pool.path);
	doc_put_bool(root, "in_use", v.in_use);
	if (!pool->why.text[0]) {
		doc_put_uuid(root, "uuid", sb->uuid);
		doc_put_uuid(root, "machine_id", sb->machine_id);
		doc_put_number(root, "version", sb->version);
		doc_put_number(root, "generation", sb->generation);
		doc_put_number(root, "unsafe_shutdown", sb->unsafe_shutdown);
		doc_put_bool(root, "emulated", sb->emulated != 0);
	}
	(void)json_object_object_add(root, "domains", v.domains);
	(void)json_object_object_add(root, "findings", v.findings);
	doc_put_number(root, "notes", v.count[FINDING_NOTE]);
	doc_put_number(root, "degraded", v.count[FINDING_DEGRADED]);
	doc_put_number(root, "damage", v.count[FINDING_DAMAGE]);
	*ret_good = v.count[FINDING_DEGRADED] + v.count[FINDING_DAMAGE] == 0;
	return root;
}

static void print_domain(struct json_object *d)
{
	char user[64], name[CTL_DOMAIN_MAX], bytes[32];

	printf("  %s/%s: lane %" PRIu64 ", %" PRIu64 " records, %s live\n",
	       ctl_user(user, sizeof(user), (uint32_t)doc_number(d, "uid")),
	       doc_text(d, "name", name, sizeof(name)), doc_number(d, "lane"),
	       doc_number(d, "records"),
	       ctl_bytes(bytes, sizeof(bytes), doc_number(d, "live_bytes")));
}

static void print_text(struct json_object *root, bool good)
{
	struct json_object *domains = doc_member(root, "domains");
	struct json_object *findings = doc_member(root, "findings");
	char path[512], uuid[64], severity[16], where[64], text[768];

	printf("Pool %s, %s, generation %" PRIu64 "%s\n",
	       doc_text(root, "path", path, sizeof(path)),
	       doc_text(root, "uuid", uuid, sizeof(uuid)), doc_number(root, "generation"),
	       doc_true(root, "in_use") ? "; in use: its lanes move while they are read" : "");
	for (size_t i = 0; i < doc_count(domains); i++)
		print_domain(json_object_array_get_idx(domains, i));
	for (size_t i = 0; i < doc_count(findings); i++) {
		struct json_object *f = json_object_array_get_idx(findings, i);

		printf("%-8s %s: %s\n", doc_text(f, "severity", severity, sizeof(severity)),
		       doc_text(f, "where", where, sizeof(where)),
		       doc_text(f, "text", text, sizeof(text)));
	}
	if (good)
		printf("Every copy and every record is whole.\n");
	else
		printf("%" PRIu64 " damaged, %" PRIu64
		       " degraded. Nothing was changed. Keep a copy "
		       "of the whole folder before anything else; see RECOVERY in pmemlogctl(1).\n",
		       doc_number(root, "damage"), doc_number(root, "degraded"));
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool json = false, good;
	const char *folder = NULL;
	const struct ctl_option options[] = { { .name = "json", .flag = &json },
					      { .name = "pool", .value = &folder },
					      { 0 } };
	struct pool_error error = { "" };
	const struct config *config;
	struct pool_copy *pool;
	struct json_object *root;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 0, 0, &words, &n);
	if (code >= 0)
		return code;
	if (!folder) {
		config = ctl_config(c);
		if (!config)
			return CTL_CONFIG;
		folder = config->pool;
	}
	r = guard_install();
	if (r == 0)
		r = pool_copy_open(&pool, folder, &error);
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "%s", error.text[0] ? error.text : strerror(-r));
	root = verify_pool(pool, &good);
	if (json)
		doc_print(root);
	else
		print_text(root, good);
	json_object_put(root);
	pool_copy_close(pool);
	return good ? CTL_GOOD : CTL_REFUSED;
}

const struct verb verb_pool_verify = {
	.name = "pool verify",
	.arguments = "[--json] [--pool=DIR]",
	.summary = "read every copy of everything in a pool, also in a copied or damaged one",
	.help = "  --json      for programs\n"
		"  --pool=DIR  a pool, or a copy of one, in this folder instead of the configuration's\n"
		"\n"
		"Each copy of superblock, catalog entries and lane headers by itself, every page, every\n"
		"record. Goes on after damage, locks nothing, changes nothing, and may run beside the daemon.\n"
		"Exit 1 when anything is damaged, also where a second copy makes up for it.\n",
	.run = run,
};
