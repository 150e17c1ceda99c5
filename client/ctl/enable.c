/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/enable.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/blockers.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"

/* The drop-in. systemd puts Environment= of several files together, the last one of a name counts: what the
 * unit preloads already has to be in ours. */
static char *dropin_text(const struct unit *u)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	(void)fprintf(
		out,
		"# Written by `pmemlogctl enable`. Not by hand out of here: `pmemlogctl disable %s` sees to it\n"
		"# first that no commit lies outside the database's files.\n"
		"\n[Unit]\n"
		"# Wants=, never Requires=: the database goes on while the daemon is stopped or upgraded.\n"
		"Wants=pmemlogd.service\nAfter=pmemlogd.service\n\n[Service]\n",
		u->name);
	if (u->kind != UNIT_PG_CLUSTER)
		(void)fprintf(out,
			      "Environment=\"LD_PRELOAD=%s%s%s\"\nEnvironment=PMEMLOGD_DOMAIN=%s\n",
			      CTL_PRELOAD_PATH, *u->preload ? " " : "", u->preload, u->domain);
	if (u->strict)
		(void)fprintf(
			out,
			"# tokens of writers that go on without the daemon; ProtectSystem=strict\n"
			"ReadWritePaths=-/run/pmemlogd\n");
	(void)fprintf(out,
		      "# 0 only if no commit of this database lies outside its files.\n"
		      "ExecStartPre=+%s/pmemlogctl gate %s/%s\n",
		      CTL_BINDIR, u->user, u->domain);
	(void)fclose(out);
	return text;
}

static bool domain_good(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n >= CTL_DOMAIN_MAX)
		return false;
	/* it stands in a unit file and in a file of assignments as it is */
	return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-") ==
	       n;
}

static int domain_bad(const char *name)
{
	return ctl_fail(CTL_USAGE,
			"enable: \"%s\" cannot be a domain's name; --domain=NAME, of up to %u "
			"letters, digits and _ . @ -",
			name, CTL_DOMAIN_MAX - 1);
}

/* Which name: as it is now, else as asked for, else the instance of a cluster, else the unit's. Another one than
 * now would leave commits of the old one behind a gate that nobody asks. */
static int choose_domain(struct unit *u, const char *asked)
{
	if (asked && !domain_good(asked))
		return domain_bad(asked);
	if (*u->domain && asked && strcmp(u->domain, asked) != 0)
		return ctl_fail(CTL_REFUSED,
				"%s has the domain %s, and commits of it may lie in the pool: "
				"pmemlogctl disable %s first",
				u->name, u->domain, u->name);
	if (!*u->domain && asked)
		(void)snprintf(u->domain, sizeof(u->domain), "%.63s", asked);
	if (!*u->domain) {
		const char *name = u->kind == UNIT_PG_CLUSTER ? u->instance : u->name;
		size_t n = strlen(name) - (name == u->name ? strlen(".service") : 0);

		/* cut off, two units could have one domain */
		if (n >= sizeof(u->domain))
			return domain_bad(name);
		(void)snprintf(u->domain, sizeof(u->domain), "%.*s", (int)n, name);
	}
	return domain_good(u->domain) ? 0 : domain_bad(u->domain);
}

static int choose_user(struct unit *u, const char *asked)
{
	if (asked)
		(void)snprintf(u->user, sizeof(u->user), "%.63s", asked);
	if (!*u->user)
		return ctl_fail(CTL_REFUSED,
				"%s says no User=: as whom does the database run? --user=NAME",
				u->name);
	if (strpbrk(u->user, " \t/%\"'"))
		return ctl_fail(CTL_USAGE, "enable: \"%s\" is no user", u->user);
	return 0;
}

static int plan(struct unit *u, struct changes *c)
{
	char *text = dropin_text(u);

	if (!text)
		return ctl_fail(CTL_REFUSED, "no memory");
	/* The gate before the library: a cut between leaves a database that is only kept down when it must. */
	changes_add(c, u->dropin, text);
	if (u->kind != UNIT_PG_CLUSTER)
		return 0;
	text = environment_with(u, u->domain);
	if (!text)
		return ctl_fail(CTL_REFUSED, "no memory");
	changes_add(c, u->environment, text);
	return 0;
}

static int enable(struct unit *u, bool dry, bool json)
{
	struct json_object *notes = json_object_new_array();
	struct changes c = { .n = 0 };
	int code;

	blockers_find(u, notes);
	if (advice_worst(notes) == ADVICE_FAULT) {
		changes_print(&c, u, notes, true, json);
		json_object_put(notes);
		return ctl_fail(CTL_REFUSED, "%s was not changed", u->name);
	}
	code = plan(u, &c);
	if (code == 0 && !dry)
		code = changes_apply(&c, u->root);
	if (code == 0) {
		changes_print(&c, u, notes, dry, json);
		if (!dry)
			code = changes_reload(u->root);
		if (!dry && !json && code == 0)
			printf("It takes effect with the next start: systemctl restart %s, then "
			       "pmemlogctl check %s\n",
			       u->name, u->name);
	}
	changes_free(&c);
	json_object_put(notes);
	return code;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool dry = false, json = false;
	const char *root = "", *domain = NULL, *user = NULL;
	const struct ctl_option options[] = {
		{ .name = "dry-run", .flag = &dry }, { .name = "json", .flag = &json },
		{ .name = "root", .value = &root },  { .name = "domain", .value = &domain },
		{ .name = "user", .value = &user },  { 0 },
	};
	struct unit *u = calloc(1, sizeof(*u));
	char **words;
	int code, n;

	if (!u)
		return ctl_fail(CTL_REFUSED, "no memory");
	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code < 0) {
		code = unit_load(u, root, words[0]);
		if (code == 0)
			code = choose_domain(u, domain);
		if (code == 0)
			code = choose_user(u, user);
		if (code == 0)
			code = enable(u, dry, json);
	}
	free(u);
	return code;
}

const struct verb verb_enable = {
	.name = "enable",
	.arguments = "[--dry-run] [--json] [--domain=NAME] [--user=NAME] [--root=DIR] UNIT",
	.summary = "let a database's unit load the library, with its gate",
	.help = "  --dry-run      say what would be written, and write nothing\n"
		"  --json         for programs\n"
		"  --domain=NAME  instead of the unit's name, or the PostgreSQL cluster's\n"
		"  --user=NAME    where the unit does not say as whom the database runs\n"
		"  --root=DIR     the files below DIR instead of this machine's; nothing is reloaded\n"
		"\n"
		"UNIT: mysql, mysqld, mysqld@INSTANCE, mariadb, mariadb@INSTANCE, postgresql@15-main and the\n"
		"like. Writes a drop-in, and the environment file of a cluster that pg_ctlcluster starts. Says\n"
		"what would keep the library out, and does nothing then (exit 1). Never restarts a database.\n",
	.run = run,
};
