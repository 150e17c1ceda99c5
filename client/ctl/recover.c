/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/local.h"
#include "client/ctl/report.h"
#include "daemon/recover/offline.h"
#include "pool/dir/register.h"

/* What was asked for. */
struct order {
	enum wire_recover_mode mode;
	const char *domain;
	struct domain_name name;
	bool json;
	int fd; /* ADOPT: the file */
};

static const char *const warnings[] = {
	[WIRE_RECOVER_DRY_RUN] = "",
	[WIRE_RECOVER_APPLY] =
		"The records are put into the files although it cannot be proven that this is right.",
	[WIRE_RECOVER_DISCARD] =
		("The records, and with them acknowledged commits, are given up. A database whose\n"
		 "files are those of the crash must be restored from a backup afterwards."),
	[WIRE_RECOVER_ADOPT] = "",
};

/* ---- without a daemon ---------------------------------------------------------------------------- */

static int adopt_local(struct pool *p, int fd)
{
	struct pool_error error = { "" };
	int r = register_adopt(p, fd, &error);

	if (r < 0)
		return ctl_fail(CTL_REFUSED, "%s", error.text[0] ? error.text : strerror(-r));
	printf("The file bears no foreign mark any more.\n");
	return CTL_GOOD;
}

static int discard_local(struct ctl *c, struct pool *p, uint32_t index, const struct pool_domain *d,
			 struct json_object **ret_report, char *why, size_t n)
{
	const char *run_dir = ctl_config(c)->run_dir;
	int r = offline_claim(p, index, run_dir, false, why, n);

	if (r == OFFLINE_LIVE)
		return -EBUSY;
	if (r >= 0)
		r = recover_discard(p, index, ret_report);
	if (r >= 0)
		offline_finish(run_dir, d->lane);
	return r < 0 ? r : RECOVER_CLEAN;
}

static int work_local(struct ctl *c, const struct order *o, struct pool *p, uint32_t index,
		      const struct pool_domain *d)
{
	const struct recover_options options = {
		.clock_wait_ns = ctl_config(c)->clock_wait_ns,
		.dry_run = o->mode == WIRE_RECOVER_DRY_RUN,
		.apply = o->mode == WIRE_RECOVER_APPLY,
	};
	struct json_object *report = NULL;
	char why[512] = "";
	int r;

	if (o->mode == WIRE_RECOVER_DISCARD)
		r = discard_local(c, p, index, d, &report, why, sizeof(why));
	else
		r = offline_recover(p, index, ctl_config(c)->run_dir, &options, &report, why,
				    sizeof(why));
	if (report)
		report_print(stdout, json_object_to_json_string(report), o->json);
	json_object_put(report);
	if (r == RECOVER_CLEAN)
		return CTL_GOOD;
	return ctl_fail(CTL_REFUSED, "%s: %s", o->domain,
			*why	? why
			: r < 0 ? strerror(-r)
				: "not recovered, see above");
}

static int recover_local(struct ctl *c, const struct order *o)
{
	struct pool_domain d;
	struct pool *p;
	int code = local_open(c, o->mode == WIRE_RECOVER_DRY_RUN, &p);
	int index;

	if (code == -EBUSY)
		return ctl_fail(
			CTL_UNREACHABLE,
			"somebody has the pool and does not answer; is pmemlogd starting or "
			"stopping? Try again");
	if (code != 0)
		return code;
	index = o->mode == WIRE_RECOVER_ADOPT ? 0 : local_find_one(p, &o->name, &d);
	if (index == -ENOENT)
		code = ctl_fail(CTL_REFUSED, "%s: no such domain in %s", o->domain, p->path);
	else if (index < 0)
		code = ctl_fail(CTL_REFUSED, "several users have a domain %s; say USER/NAME",
				o->domain);
	else if (o->mode == WIRE_RECOVER_ADOPT)
		code = adopt_local(p, o->fd);
	else
		code = work_local(c, o, p, (uint32_t)index, &d);
	pool_close(p);
	return code;
}

/* ---- command line -------------------------------------------------------------------------------- */

static int parse_mode(const struct verb *v, bool dry_run, bool apply, bool discard,
		      const char *adopt, enum wire_recover_mode *ret)
{
	if (dry_run + apply + discard + (adopt != NULL) > 1)
		return ctl_fail(CTL_USAGE,
				"recover: one of --dry-run, --apply, --discard, --adopt; "
				"pmemlogctl %s --help",
				v->name);
	*ret = apply	 ? WIRE_RECOVER_APPLY
	       : discard ? WIRE_RECOVER_DISCARD
	       : adopt	 ? WIRE_RECOVER_ADOPT
			 : WIRE_RECOVER_DRY_RUN;
	return 0;
}

static int recover_by_daemon(const char *socket, const struct order *o, struct answer *a)
{
	struct wire_recover body = { .mode = o->mode };

	memset(a, 0, sizeof(*a));
	if (strlen(o->domain) >= sizeof(body.domain))
		return -ENAMETOOLONG;
	memcpy(body.domain, o->domain, strlen(o->domain) + 1);
	return ctl_ask(socket, WIRE_RECOVER, &body, sizeof(body), o->fd, CTL_PATIENCE_MS, NULL, a);
}

static int recover(struct ctl *c, const struct order *o)
{
	const char *socket = ctl_socket(c);
	struct answer a;
	int code, r;

	if (!socket)
		return CTL_CONFIG;
	r = recover_by_daemon(socket, o, &a);
	if (r < 0 && !local_nobody_there(r))
		return ctl_unreachable(socket, r);
	if (r < 0 || a.status == -ESHUTDOWN) {
		free(a.document);
		return recover_local(c, o);
	}
	if (a.document)
		report_print(stdout, a.document, o->json);
	free(a.document);
	code = ctl_report(&a);
	return code;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool dry_run = false, apply = false, discard = false;
	const char *adopt = NULL, *yes = NULL;
	struct order o = { .fd = -1 };
	const struct ctl_option options[] = {
		{ .name = "dry-run", .flag = &dry_run },
		{ .name = "apply", .flag = &apply },
		{ .name = "discard", .flag = &discard },
		{ .name = "adopt", .value = &adopt },
		{ .name = "yes", .value = &yes },
		{ .name = "json", .flag = &o.json },
		{ 0 },
	};
	cleanup_close int fd = -1;
	char **words;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code < 0)
		code = parse_mode(v, dry_run, apply, discard, adopt, &o.mode);
	else
		return code;
	if (code == 0)
		code = local_name(words[0], &o.name);
	if (code != 0)
		return code;
	o.domain = words[0];
	if ((apply || discard) && !ctl_confirm("domain's name", o.domain, yes, warnings[o.mode]))
		return CTL_REFUSED;
	if (adopt) {
		fd = open(adopt, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (fd < 0)
			return ctl_fail(CTL_REFUSED, "%s: %s", adopt, strerror(errno));
		o.fd = fd;
	}
	return recover(c, &o);
}

const struct verb verb_recover = {
	.name = "recover",
	.arguments =
		"[--dry-run | --apply | --discard | --adopt PATH] [--yes=NAME] [--json] DOMAIN",
	.summary = "decide about what a crash left and recovery could not prove right",
	.help = "  --dry-run     say what recovery would do to each file and why; changes nothing (default)\n"
		"  --apply       put the records into the files in spite of the named reasons; refused for\n"
		"                damaged records and files that are gone\n"
		"  --discard     give the records up: restore this database from a backup afterwards\n"
		"  --adopt PATH  take the mark of another pool or machine off a file\n"
		"  --yes=NAME    the domain's name as confirmation, instead of typing it\n"
		"  --json        the report for programs\n"
		"\n"
		"What the reasons mean and how to decide: RECOVERY in pmemlogctl(1). Without a daemon this\n"
		"works on the pool itself.\n",
	.run = run,
};
